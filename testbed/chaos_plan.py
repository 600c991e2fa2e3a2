"""What is struck, and in which order. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

Kind = Literal["Python worker", "executor", "driver", "standalone worker", "broker"]
Plan = Literal["stateless", "stateful"]
PHASES = ("init", "data", "pre-commit", "marker", "commit")
"""Of a shard; ``pre-commit`` is the flush."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is struck, and how."""

    kind: Kind
    frozen: bool = False
    """SIGSTOP, and SIGCONT once others have gone on; otherwise SIGKILL."""

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.kind}, {'frozen and thawed' if self.frozen else 'killed'}"


WORKER, DRIVER, EXECUTOR = Target(kind="Python worker"), Target(kind="driver"), Target(kind="executor")
STANDALONE, BROKER = Target(kind="standalone worker"), Target(kind="broker")
WORKER_ZOMBIE = Target(kind="Python worker", frozen=True)
DRIVER_ZOMBIE = Target(kind="driver", frozen=True)
EXECUTOR_ZOMBIE = Target(kind="executor", frozen=True)
BROKER_ZOMBIE = Target(kind="broker", frozen=True)
"""What is in its sockets by then it does once it is thawed: a commit, too, that its client has given up."""

LOCAL: Mapping[Target, int] = {WORKER: 34, WORKER_ZOMBIE: 2, DRIVER: 1, DRIVER_ZOMBIE: 1, BROKER: 2}
CLUSTER: Mapping[Target, int] = {
    WORKER: 16,
    WORKER_ZOMBIE: 2,
    DRIVER: 1,
    BROKER: 2,
    EXECUTOR: 8,
    EXECUTOR_ZOMBIE: 4,
    STANDALONE: 2,
}
"""How often each is struck, in proportion; who waits for a frozen worker is killed, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """What a stage is to be."""

    plan: Plan
    on_cluster: bool
    kills: int
    mix: Mapping[Target, int]
    transaction_timeout_ms: int = 300_000
    """Of the sink; the sink's default."""
    small: bool = False
    """Whether the driver writes the batches behind a run's first, as it does with small ones."""

    @property
    def name(self) -> str:
        """Where and what."""
        where = "cluster" if self.on_cluster else "local"
        return f"{where} {self.plan}{' small' if self.small else ''}"

    @property
    def phases(self) -> Sequence[str]:
        """Return those that a strike may wait for.

        A driver keeps the producer of small batches: their ``init`` may be over before it is aimed at, and
        would not come again.
        """
        return [phase for phase in PHASES if phase != "init"] if self.small else PHASES

    def deal(self, moments: random.Random) -> Iterator[Target]:
        """Yield targets for ever: each kind once, then in proportion, both in a random order."""
        hand = list(self.mix)
        while True:
            moments.shuffle(hand)
            yield from hand
            hand = [target for target, count in self.mix.items() for _ in range(count)]


def whole(kills: int, only: Sequence[str] = ()) -> list[StagePlan]:
    """Return the stages that make so many kills together; only those whose name has all given words."""
    shares: dict[tuple[Plan, bool], int] = {
        ("stateless", False): 30,
        ("stateful", False): 30,
        ("stateless", True): 20,
        ("stateful", True): 20,
    }
    plans = [
        StagePlan(plan=plan, on_cluster=on_cluster, kills=share, mix=CLUSTER if on_cluster else LOCAL)
        for (plan, on_cluster), share in shares.items()
    ]
    chosen = [plan for plan in plans if set(only) <= set(plan.name.split())]
    total = sum(plan.kills for plan in chosen)
    return [
        StagePlan(
            plan=plan.plan, on_cluster=plan.on_cluster, kills=-(-kills * plan.kills // total), mix=plan.mix
        )
        for plan in chosen
    ]


def away(kills: int) -> list[StagePlan]:
    """Return two stages in which the broker is mostly away, often longer than a transaction may take."""
    mix = {BROKER_ZOMBIE: 12, WORKER: 3, WORKER_ZOMBIE: 1, DRIVER: 1, DRIVER_ZOMBIE: 1, BROKER: 2}
    plans: tuple[Plan, ...] = ("stateless", "stateful")
    return [
        StagePlan(plan=plan, on_cluster=False, kills=-(-kills // 2), mix=mix, transaction_timeout_ms=8000)
        for plan in plans
    ]


def small(kills: int) -> list[StagePlan]:
    """Return two stages of small batches, which the driver writes: it is what there is to strike."""
    mix = {DRIVER: 6, DRIVER_ZOMBIE: 3, BROKER: 1}
    plans: tuple[Plan, ...] = ("stateless", "stateful")
    return [
        StagePlan(plan=plan, on_cluster=False, kills=-(-kills // 2), mix=mix, small=True) for plan in plans
    ]


def brief() -> list[StagePlan]:
    """Return one stage with each kind of kill that needs no cluster."""
    mix = {WORKER: 3, WORKER_ZOMBIE: 1, DRIVER_ZOMBIE: 1, BROKER: 1}
    return [StagePlan(plan="stateful", on_cluster=False, kills=6, mix=mix)]


def short() -> list[StagePlan]:
    """Return two stages with 20 kills that take little time."""
    local = {WORKER: 8, WORKER_ZOMBIE: 1, DRIVER_ZOMBIE: 1, BROKER: 1}
    cluster = {WORKER: 3, EXECUTOR: 3, EXECUTOR_ZOMBIE: 1, STANDALONE: 1}
    return [
        StagePlan(plan="stateful", on_cluster=False, kills=12, mix=local),
        StagePlan(plan="stateless", on_cluster=True, kills=8, mix=cluster),
    ]
