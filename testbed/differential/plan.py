"""What a caller does while a script runs: drawn from a seed, and shrunk like the script."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from testbed.differential.inputs import PARTS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from testbed.differential.spec import ScriptSpec

_FED = 0.5
"""How often new input comes before the job goes back: without it, queries may stand where they stood."""
Action = Literal[
    "none",
    "take",
    "from-savepoint",
    "from-checkpoint",
    "kill-relaunch",
    "kill-from-checkpoint",
    "continue-from-take",
    "fork",
    "re-emit",
]
_BETWEEN = 0.6
"""How often a caller acts while a staggered script has started its first query only."""
KILLS: frozenset[Action] = frozenset(["kill-relaunch", "kill-from-checkpoint"])
REWINDS: frozenset[Action] = frozenset(["fork", "re-emit"])
BACK: frozenset[Action] = REWINDS | {"continue-from-take"}
"""Actions that need a savepoint that was taken before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of the input may come, then the caller does something."""

    action: Action
    batches: int
    """How many commits, of all queries together, the caller waits for first, or for the script's end."""
    delay_ms: int
    """How much longer it waits."""
    feeds: bool = True
    """Whether a part of the input comes first."""
    between: bool = False
    """Whether a staggered script has started its first query only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps one after the other; the last one brings the rest of the input, and ends no driver."""

    steps: tuple[Step, ...]

    @property
    def kills(self) -> bool:
        """Whether a driver is killed."""
        return any(step.action in KILLS for step in self.steps)

    def to_json(self) -> str:
        """Render."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what ``to_json`` wrote."""
        return Plan(steps=tuple(Step(**step) for step in json.loads(text)["steps"]))

    def complaint(self, spec: ScriptSpec) -> str | None:
        """Say why nothing can be expected of this plan with this script; None if it can."""
        if not 1 <= len(self.steps) <= PARTS or self.steps[-1].action not in ("none", "take"):
            return "the last step must be a quiet one"
        if not (self.steps[0].feeds and self.steps[-1].feeds):
            return "there must be something to read first and last"
        taken = False
        for step in self.steps:
            if step.action in BACK and not taken:
                return "no savepoint to go back to"
            taken = taken or step.action == "take"
        actions = {step.action for step in self.steps}
        if any(step.between for step in self.steps) and (spec.shape != "staggered" or len(spec.queries) < 2):
            return "there is no moment between two starts"
        if any(query.source == "rate" for query in spec.queries) and actions & BACK:
            return "a rate source goes on from another second"
        forgetful = not any(query.sink in ("batch-remember", "batch-txn") for query in spec.queries)
        if "re-emit" in actions and not forgetful:
            return "the function remembers the numbers that the caller wants used again"
        return None


def draw(random: random.Random, spec: ScriptSpec) -> Plan:
    """Return a random plan that fits the script."""
    while True:
        plan = _draw(random, spec)
        if plan.complaint(spec) is None:
            return plan


def _draw(random: random.Random, spec: ScriptSpec) -> Plan:
    kinds: Mapping[tuple[Action, ...], int] = {
        ("none",): 2,
        ("take",): 3,
        ("from-savepoint",): 4,
        ("from-checkpoint",): 3,
        ("from-savepoint", "from-checkpoint"): 2,
        ("take", "from-savepoint"): 2,
        ("kill-relaunch",): 2,
        ("kill-from-checkpoint",): 1,
        ("take", "kill-relaunch"): 1,
        ("take", "continue-from-take"): 5,
        ("take", "fork"): 5,
        ("take", "re-emit"): 4,
    }
    last: Action = random.choice(["none", "take"])
    actions = (*random.choices(list(kinds), list(kinds.values()))[0], last)
    steps = [_draw_step(random, action) for action in actions]
    if steps[1].action in BACK:  # early, that something is behind the savepoint
        steps[0] = replace(steps[0], batches=1, delay_ms=random.choice([0, 0, 0, 100]))
    if spec.shape == "staggered" and len(spec.queries) > 1:
        steps = [replace(step, between=random.random() < _BETWEEN) for step in steps]
    return Plan(steps=tuple(steps))


def _draw_step(random: random.Random, action: Action) -> Step:
    return Step(
        action=action,
        batches=random.choice([0, 1, 1, 1, 2, 3, 4]),
        delay_ms=random.choice([0, 0, 50, 200, 600]),
        feeds=action not in BACK or random.random() < _FED,
    )


def smaller(plan: Plan) -> Sequence[Plan]:
    """Return the plans that are one step simpler."""
    found = [
        replace(plan, steps=plan.steps[:place] + plan.steps[place + 1 :])
        for place in range(len(plan.steps))
        if len(plan.steps) > 1
    ]
    for place, step in enumerate(plan.steps):
        simpler = []
        if step.action != "none":
            simpler.append(replace(step, action="none"))
        if step.between:
            simpler.append(replace(step, between=False))
        if step.delay_ms:
            simpler.append(replace(step, delay_ms=0))
        if step.batches > 1:
            simpler.append(replace(step, batches=1))
        found += [
            replace(plan, steps=(*plan.steps[:place], each, *plan.steps[place + 1 :])) for each in simpler
        ]
    return found
