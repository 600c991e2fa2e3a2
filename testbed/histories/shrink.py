"""Make a history that breaks a promise as short and plain as it can be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.histories.history import run_history
from testbed.histories.world import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testbed.histories.history import Outcome
    from testbed.histories.steps import Step

_PLAIN_SETTING = Setting()
_PLAIN: dict[str, Any] = {
    "fault": None,
    "for_s": 0.0,
    "host": "a",
    "script": "v1",
    "which": 0,
    "many": 0,
    "seconds": 0.0,
    "retries": 0,
    "how": "",
    "root": "r1",
}


def kind_of(setting: Setting, steps: Sequence[Step]) -> str | None:
    """Return the promise that a history breaks; None for none."""
    found = run_history(setting, steps).wrong
    return found.kind if found is not None else None


def shrunk(setting: Setting, steps: Sequence[Step], kind: str) -> tuple[Setting, tuple[Step, ...]]:
    """Return the shortest history found that breaks the same promise."""
    current = (setting, tuple(steps))
    again = True
    while again:
        again = False
        for smaller in _smaller(*current):
            if kind_of(*smaller) == kind:
                current, again = smaller, True
                break
    return current


def _smaller(setting: Setting, steps: tuple[Step, ...]) -> Iterator[tuple[Setting, tuple[Step, ...]]]:
    for size in (8, 4, 2, 1):
        for low in range(len(steps) - 1, -1, -size):
            first = max(0, low - size + 1)
            yield setting, steps[:first] + steps[low + 1 :]
    for name in ("queries", "sink", "shared", "ahead_s"):
        plain = getattr(_PLAIN_SETTING, name)
        if getattr(setting, name) != plain:
            yield replace(setting, **{name: plain}), steps
    for at, step in enumerate(steps):
        for name, plain in _PLAIN.items():
            if getattr(step, name) != plain:
                yield setting, (*steps[:at], replace(step, **{name: plain}), *steps[at + 1 :])
        if step.fault is not None and step.fault[1] > 1:
            earlier = replace(step, fault=(step.fault[0], step.fault[1] // 2))
            yield setting, (*steps[:at], earlier, *steps[at + 1 :])


def told(setting: Setting, steps: Sequence[Step]) -> Outcome:
    """Return what comes of a history."""
    return run_history(setting, steps)
