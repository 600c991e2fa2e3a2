"""A script and a plan together: what a seed gives, and what shrinking makes smaller."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from testbed.differential import plan as plans
from testbed.differential import spec as specs
from testbed.differential.plan import Plan
from testbed.differential.spec import ScriptSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testbed.differential.spec import QuerySpec

_FEW = 2
OWN_JVM_EVERY = 20
"""One seed in so many runs through spark-submit, with a JVM for each driver, as in production."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One trial's input."""

    spec: ScriptSpec
    plan: Plan
    own_jvm: bool = False
    """Drivers are submitted with spark-submit."""

    @property
    def complaint(self) -> str | None:
        """Say why nothing can be expected of it."""
        return self.spec.complaint() or self.plan.complaint(self.spec)

    def to_json(self) -> str:
        """Render."""
        parts = {"spec": json.loads(self.spec.to_json()), "plan": json.loads(self.plan.to_json())}
        return json.dumps({**parts, "own_jvm": self.own_jvm})

    @staticmethod
    def from_json(text: str) -> Case:
        """Read what ``to_json`` wrote."""
        found = json.loads(text)
        return Case(
            spec=ScriptSpec.from_json(json.dumps(found["spec"])),
            plan=Plan.from_json(json.dumps(found["plan"])),
            own_jvm=found.get("own_jvm", False),
        )

    @staticmethod
    def of(seed: int) -> Case:
        """Return the case of a seed, always the same."""
        source = random.Random(seed)  # noqa: S311  # no secret
        spec = specs.draw(source)
        return Case(spec=spec, plan=plans.draw(source, spec), own_jvm=seed % OWN_JVM_EVERY == 0)

    @staticmethod
    def small(seed: int) -> Case:
        """Return the seed's case among those that take little time."""
        source = random.Random(seed)  # noqa: S311  # no secret
        while True:
            spec = specs.draw(source)
            case = Case(spec=spec, plan=plans.draw(source, spec))
            if case.is_small:
                return case

    @property
    def is_small(self) -> bool:
        """Whether it takes little time: a query or two, no Delta, no Python workers, no new JVM."""
        return (
            not self.plan.kills
            and len(self.spec.queries) <= _FEW
            and not any(map(_is_slow, self.spec.queries))
        )


def _is_slow(query: QuerySpec) -> bool:
    sinks = ("delta", "batch-txn", "batch-merge", "transactional")
    return query.source == "delta" or query.sink in sinks or query.work in ("pandas-state", "transform")


def smaller(case: Case) -> Iterator[Case]:
    """Yield the cases that are one step simpler."""
    if case.own_jvm:
        yield replace(case, own_jvm=False)
    for spec in specs.smaller(case.spec):
        yield replace(case, spec=spec)
    for plan in plans.smaller(case.plan):
        yield replace(case, plan=plan)


def shrink(case: Case, fails: Callable[[Case], bool], *, most_trials: int) -> Case:
    """Return the smallest case that still fails, as far as so many trials find it."""
    trials = 0
    while True:
        for each in smaller(case):
            if each.complaint is not None:
                continue
            if trials >= most_trials:
                return case
            trials += 1
            if fails(each):
                case = each
                break
        else:
            return case
