"""In which order the savepoints of a job were cut, and which of them its head has abandoned. Pure.

Takers run on machines whose clocks differ: one that is ten minutes behind must not make an older savepoint
the newest. So the order is the job's own: along the line of its head, by the generation that a savepoint was
taken from and by the batches that its queries had run; both only grow. A savepoint that was made from another
has the place of that one. Those that are not on the line are not part of this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow_flinkstyle.protocol.line import Abandoned, Elsewhere, OnLine
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_flinkstyle.protocol.line import Line, Where
    from airflow_flinkstyle.savepoint.manifest import Manifest

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointCut:
    """Where in its job's history a savepoint was cut; see ``Manifest`` for the fields."""

    savepoint_id: str
    taken_at_ms: int
    taken_from_generation: int | None
    batches_run: int
    parent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder(Generic[T]):
    """The savepoints of one job."""

    on_line: tuple[T, ...]
    """Those on the line of its head, the newest first; all of a job that never ran."""
    beside: tuple[tuple[T, Abandoned | Elsewhere], ...]
    """The others, the newest first by generation, each with why it is not on the line."""


def cut_of(manifest: Manifest) -> SavepointCut:
    """Return the place of a savepoint in its job's history."""
    return SavepointCut(
        savepoint_id=manifest.savepoint_id,
        taken_at_ms=manifest.taken_at_ms,
        taken_from_generation=manifest.taken_from_generation,
        batches_run=manifest.batches_run,
        parent=manifest.parent,
    )


def in_order(items: Iterable[T], cut_of: Callable[[T], SavepointCut], line: Line | None) -> InOrder[T]:
    """Return the savepoints of one job along the line of its head; None if no driver ever took it over."""
    found = {cut_of(item).savepoint_id: (cut_of(item), item) for item in items}
    cuts = {name: cut for name, (cut, _) in found.items()}
    origins = _made_from(line.origin, cuts) if line is not None and line.origin is not None else []

    def order(one: tuple[SavepointCut, T]) -> tuple[int, int, int, int, str]:
        cut = one[0]  # from elsewhere: before all generations, ordered by the clock alone
        own = cut.taken_from_generation or 0
        run = cut.batches_run if own else 0
        return own, run, cut.taken_at_ms, len(_made_from(cut.savepoint_id, cuts)), cut.savepoint_id

    on_line, beside = [], []
    for cut, item in sorted(found.values(), key=order, reverse=True):
        where = place_of(cut, line, origins) if line is not None else OnLine()
        if isinstance(where, OnLine):
            on_line.append(item)
        else:
            beside.append((item, where))
    return InOrder(on_line=tuple(on_line), beside=tuple(beside))


def place_of(cut: SavepointCut, line: Line, origins: Iterable[str] = ()) -> Where:
    """Return whether a savepoint is on a line.

    Args:
        cut: Where it was cut.
        line: Of the job's head.
        origins: The savepoints from elsewhere that count as the one that the line began with.
    """
    if cut.savepoint_id == line.origin:  # by its id: records of the run that took it may be gone
        return OnLine(since=line.turns[1:])
    if cut.taken_from_generation is not None:
        return line.where(Generation(cut.taken_from_generation), cut.batches_run)
    if cut.savepoint_id in origins:
        return OnLine(since=line.turns[1:])
    return Elsewhere(why="from elsewhere: the job has not been started from it")


def _made_from(savepoint_id: str, cuts: Mapping[str, SavepointCut]) -> list[str]:
    """Return a savepoint and those that it was made from, as far as they are still there.

    A manifest from outside may name parents in a circle.
    """
    chain: list[str] = []
    name: str | None = savepoint_id
    while name is not None and name in cuts and name not in chain:
        chain.append(name)
        name = cuts[name].parent
    return chain
