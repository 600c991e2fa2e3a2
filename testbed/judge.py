"""Compares what the job counted with what the brokers acknowledged, order by order."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from testbed.ledger import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The job's state of one customer."""

    orders: int
    """How many orders it counted, doubled ones as often as counted."""
    amount: int
    """Cents."""
    numbers: frozenset[int]
    """Which orders it counted at least once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of every acknowledged order."""

    acknowledged: int
    counted: int
    """Additions the job made, doubled ones included."""
    lost: tuple[tuple[str, int], ...]
    """Customer and number of each acknowledged order the job never counted."""
    twice: Mapping[str, int]
    """Customer -> additions beyond the first of each order."""
    unknown: tuple[tuple[str, int], ...]
    """Orders the job counted though nobody ever sent them."""
    wrong_amounts: tuple[str, ...]
    """Customers with the right orders and a wrong sum."""

    @property
    def twice_count(self) -> int:
        """Additions beyond the first of each order."""
        return sum(self.twice.values())

    @property
    def right(self) -> bool:
        """True if each acknowledged order was counted exactly once, and nothing else was."""
        return not (self.lost or self.twice or self.unknown or self.wrong_amounts)

    def __str__(self) -> str:
        """Return the four numbers, and what else is wrong."""
        text = (
            f"acknowledged {self.acknowledged}, counted {self.counted}, "
            f"lost {len(self.lost)}, twice {self.twice_count}"
        )
        if self.unknown:
            text += f", never sent {len(self.unknown)}"
        if self.wrong_amounts:
            text += f", wrong sums for {len(self.wrong_amounts)} customers"
        return text


@dataclass(slots=True)
class _Expected:
    numbers: set[int] = field(default_factory=set)
    in_doubt: set[int] = field(default_factory=set)
    amounts: dict[int, int] = field(default_factory=dict)


def judge(ledger: Iterable[Entry], totals: Mapping[str, Total]) -> Judgement:
    """Compare; an order whose acknowledgement is unknown may be counted once or not at all."""
    expected: dict[str, _Expected] = defaultdict(_Expected)
    for entry in ledger:
        customer = expected[entry.order.customer]
        customer.amounts[entry.order.number] = entry.order.amount
        (customer.numbers if entry.offset is not None else customer.in_doubt).add(entry.order.number)
    lost: list[tuple[str, int]] = []
    unknown: list[tuple[str, int]] = []
    twice: dict[str, int] = {}
    wrong_amounts: list[str] = []
    nothing = Total(orders=0, amount=0, numbers=frozenset())
    for name in sorted(expected.keys() | totals.keys()):
        wanted, total = expected[name], totals.get(name, nothing)
        missing = wanted.numbers - total.numbers
        foreign = total.numbers - wanted.numbers - wanted.in_doubt
        extra = total.orders - len(total.numbers)
        lost += [(name, number) for number in sorted(missing)]
        unknown += [(name, number) for number in sorted(foreign)]
        if extra:
            twice[name] = extra
        right = not (missing or foreign or extra)
        if right and total.amount != sum(wanted.amounts[number] for number in total.numbers):
            wrong_amounts.append(name)
    return Judgement(
        acknowledged=sum(len(customer.numbers) for customer in expected.values()),
        counted=sum(total.orders for total in totals.values()),
        lost=tuple(lost),
        twice=twice,
        unknown=tuple(unknown),
        wrong_amounts=tuple(wrong_amounts),
    )


def numbers_of(bitmap: bytes) -> frozenset[int]:
    """Return the order numbers of Spark's bitmap: bit 0 is number 1."""
    return frozenset(
        8 * place + bit + 1
        for place, byte in enumerate(bitmap)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    )


class StateReader:
    """``testbed/state_reader.py`` as a child process: starts when first asked, ends with the context."""

    def __init__(self, *, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._command, self._env, self._log = command, env, log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Return the reader; the child starts with ``start`` or the first ``read``."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def start(self) -> subprocess.Popen[str]:
        """Start the child ahead of the first question, so that its JVM is up by then."""
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603  (our own program)
                    self._command,
                    env=self._env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        return self._process

    def read(self, checkpoint: Path) -> dict[str, Total]:
        """Return the newest committed state of the job with this checkpoint."""
        process = self.start()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the state reader has no pipes")
        process.stdin.write(json.dumps({"checkpoint": str(checkpoint)}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"it ended; see {self._log}"}
        if "error" in answer:
            raise RuntimeError(f"The state in {checkpoint} could not be read: {answer['error']}")
        return {
            customer: Total(orders=orders, amount=amount, numbers=numbers_of(bytes.fromhex(numbers)))
            for customer, (orders, amount, numbers) in answer["totals"].items()
        }
