"""An explicit-state model of a job's head: starts, savepoints, rewinds, lost checkpoints, in every order.

The line and the order of savepoints are the package's own (``protocol.line``, ``savepoint.sequence``). The
model keeps beside them what no record can get wrong: which batches each state holds. A start that nobody told
where to go must hold exactly what the job had committed, or be refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.line import BEGINNING, Line, OnLine, Parent, Turn
from airflow_flinkstyle.savepoint.sequence import SavepointCut, in_order, place_of
from airflow_flinkstyle.types import Generation
from tests.model.search import Found, search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_flinkstyle.types import Rewind

MOST_BATCHES, MOST_GENERATIONS, MOST_SAVEPOINTS = 4, 4, 2
RULES = ("along_the_line", "cut_is_recorded", "must_be_the_last")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a start keeps to; the model shows that each is needed."""

    along_the_line: bool = True
    """The newest savepoint is the newest on the head's line; else that of the newest generation."""
    cut_is_recorded: bool = True
    """A generation says after which batch of its parent it began; else only after which generation."""
    must_be_the_last: bool = True
    """What a start goes on from holds the last batch, by number and query id, that the head committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A savepoint, and what it holds in truth."""

    cut: SavepointCut
    query_id: int
    holds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A job. Its head holds what ``holds`` says."""

    line: Line
    older: tuple[Line, ...] = ()
    query_id: int = 1
    run: int = 0
    """Batches of the head, counted on from where it began: by rewinds the same number comes twice."""
    holds: tuple[int, ...] = ()
    batches: int = 0
    """That were ever run; each has a number of its own here."""
    savepoints: tuple[Saved, ...] = ()
    runs: bool = True
    in_reach: bool = True
    """Whether callers can read the head's checkpoint."""
    wrong: str = ""


FIRST = State(
    line=Line(head=Generation(1), parent=BEGINNING, turns=(Turn(generation=Generation(1), parent=BEGINNING),))
)


def explore(rules: Rules) -> tuple[int, Found | None]:
    """Visit all states; return how many, and the shortest way to a start from what the job had left."""
    return search([FIRST], lambda state: _steps(state, rules), _wrong)


def _wrong(state: State, _labels: Sequence[str]) -> str | None:
    return state.wrong or None


def _steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    if state.runs:
        if state.batches < MOST_BATCHES:
            batch = state.batches + 1
            yield "batch", replace(state, batches=batch, run=state.run + 1, holds=(*state.holds, batch))
        if len(state.savepoints) < MOST_SAVEPOINTS and state.run:
            yield "savepoint", replace(state, savepoints=(*state.savepoints, _save(state)))
        yield "stop", replace(state, runs=False)
        return
    if state.in_reach:
        yield "lose", replace(state, in_reach=False)
    if state.line.head < MOST_GENERATIONS:
        yield "fresh", _begin(state, BEGINNING, "continue", 0, ())
        for saved in state.savepoints:
            for rewind in ("fork", "re-emit"):
                yield f"{rewind} {saved.cut.savepoint_id}", _restore(state, saved, rewind, rules)
        yield from _default(state, rules)


def _default(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Start where the job was: in its checkpoint, else from its newest savepoint if that is the same."""
    if state.in_reach:
        parent = Parent(generation=state.line.head, batches_run=state.run, savepoint_id=None)
        yield "default", _begin(state, parent, "continue", state.run, state.holds)
        return
    newest = _newest(state, rules)
    if newest is None or (rules.must_be_the_last and not _is_last(state, newest, rules)):
        return  # refused: a person chooses
    after = _restore(state, newest, "continue", rules)
    wrong = "" if newest.holds == state.holds else f"started from {newest.holds}, was at {state.holds}"
    yield f"default from {newest.cut.savepoint_id}", replace(after, wrong=wrong)


def _newest(state: State, rules: Rules) -> Saved | None:
    if not rules.along_the_line:
        return max(
            state.savepoints,
            key=lambda one: (one.cut.taken_from_generation or 0, one.cut.batches_run),
            default=None,
        )
    return next(iter(in_order(state.savepoints, lambda one: one.cut, state.line).on_line), None)


def _is_last(state: State, saved: Saved, rules: Rules) -> bool:
    """Compare as ``jobs.start.rewinds.require_newest`` does."""
    on_line = isinstance(place_of(saved.cut, state.line), OnLine) or not rules.along_the_line
    return on_line and (saved.query_id, saved.cut.batches_run) == (state.query_id, state.run)


def _save(state: State) -> Saved:
    cut = SavepointCut(
        savepoint_id=f"s{len(state.savepoints) + 1}",
        taken_at_ms=0,  # clocks tell nothing
        taken_from_generation=state.line.head,
        batches_run=state.run,
        parent=None,
    )
    return Saved(cut=cut, query_id=state.query_id, holds=state.holds)


def _restore(state: State, saved: Saved, rewind: Rewind, rules: Rules) -> State:
    cut = saved.cut
    run = cut.batches_run if rules.cut_is_recorded else MOST_BATCHES
    taken_from = Generation(cut.taken_from_generation or 0)
    parent = Parent(generation=taken_from, batches_run=run, savepoint_id=cut.savepoint_id)
    after = _begin(state, parent, rewind, cut.batches_run, saved.holds)
    return replace(after, query_id=after.line.head if rewind == "fork" else saved.query_id)


def _begin(state: State, parent: Parent, rewind: Rewind, run: int, holds: tuple[int, ...]) -> State:
    generation = Generation(state.line.head + 1)
    if parent.generation is None:
        turns: tuple[Turn, ...] = (Turn(generation=generation, parent=parent),)
    else:
        own = next(line for line in (state.line, *state.older) if line.head == parent.generation)
        turns = state.line.turns_of_next(generation, parent, rewind, own)
    return replace(
        state,
        line=Line(head=generation, parent=parent, turns=turns),
        older=(*state.older, state.line),
        query_id=generation if parent.generation is None else state.query_id,
        run=run,
        holds=holds,
        runs=True,
        in_reach=True,
    )
