"""A small explicit-state model of one location on two machines' disks, and of one generation's drivers there.

One driver comes after another, on either machine, and may die before any step; a disk may be lost. Each rule
names the code that keeps it; taking one out must break something.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.model.search import search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.model.search import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a driver keeps to; True keeps the rule."""

    names_its_place: bool = True
    """A driver that is started again continues only in the place that ``current.json`` names
    (``places.require_marked``)."""
    in_one_write: bool = True
    """That is said by the write which takes the job over (``takeover.take_current``), by none before it."""
    one_id_each: bool = True
    """Each place has an id of its own: a location has several (``places.own_place``)."""


RULES = tuple(field.name for field in fields(Rules))
MACHINES: Final = (0, 1)
NOTHING: Final = -1


class State(NamedTuple):
    """The two disks, what the job's record says, and the driver that lives."""

    saved: tuple[int, int] = (NOTHING, NOTHING)
    """The newest batch on each disk; ``NOTHING`` bears no mark."""
    named: int | None = None
    """The machine whose place is recorded."""
    taken_over: bool = False
    done: int = 0
    """The newest batch of the job; a savepoint holds the one before its first."""
    driver: tuple[int, int] | None = None
    """Its machine, and its step."""
    starts: int = 3
    losses: int = 1
    wrong: str = ""


Step = tuple[str, State]


def explore(rules: Rules) -> tuple[int, Found | None]:
    """Return how many states can be reached, and the way to the first violation."""

    def violation(state: State, _labels: Sequence[str]) -> str | None:
        return state.wrong or None

    return search([State()], lambda state: _steps(state, rules), violation)


def _steps(state: State, rules: Rules) -> Iterator[Step]:
    if state.driver is not None:
        yield "the driver dies", state._replace(driver=None)
        yield from _driver(state, rules, *state.driver)
        return
    for machine in MACHINES:
        if state.starts:
            yield (
                f"a driver starts on machine {machine}",
                state._replace(driver=(machine, 0), starts=state.starts - 1),
            )
        if state.losses and state.saved[machine] != NOTHING:
            lost = _with(state.saved, machine, NOTHING)
            yield f"machine {machine} is lost", state._replace(saved=lost, losses=state.losses - 1)


def _with(saved: tuple[int, int], machine: int, batch: int) -> tuple[int, int]:
    return (batch, saved[1]) if machine == 0 else (saved[0], batch)


def _driver(state: State, rules: Rules, machine: int, step: int) -> Iterator[Step]:
    """Steps of a driver: 0 look for its place, or restore; 1 take over; 2 run a batch."""
    saved = state.saved[machine]
    match step:
        case 0 if state.taken_over:
            is_there = saved != NOTHING and (state.named == machine or not rules.one_id_each)
            if is_there or not rules.names_its_place:
                yield "it finds its place", state._replace(driver=(machine, 1))
            else:
                yield "it refuses the place", state._replace(driver=None)
        case 0:
            named = state.named if rules.in_one_write or state.named is not None else machine
            restored = _with(state.saved, machine, max(saved, 0))
            yield "it restores", state._replace(saved=restored, driver=(machine, 1), named=named)
        case 1:
            wrong = f"batch {state.done} is left behind" if saved < state.done else ""
            named = machine if rules.in_one_write else state.named
            yield (
                "it takes over",
                state._replace(taken_over=True, named=named, driver=(machine, 2), wrong=wrong),
            )
        case 2 if state.done < 2:
            after = _with(state.saved, machine, saved + 1)
            yield "it runs a batch", state._replace(saved=after, done=saved + 1)
