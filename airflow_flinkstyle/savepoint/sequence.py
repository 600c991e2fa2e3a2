"""In which order the savepoints of a job were cut, by the job's own counting. Pure.

Takers run on machines whose clocks differ: one that is ten minutes behind must not make an older savepoint
the newest. So what a job's own runs took is ordered by the run, and within it by the batches that all queries
had committed; both only grow. A savepoint that was made from another is behind it, in its place. Only for
what is left, from another root or another job, the clock is all that there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_flinkstyle.savepoint.manifest import Manifest

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What tells where in its job's history a savepoint was cut; see ``Manifest`` for the fields."""

    savepoint_id: str
    taken_at_ms: int
    taken_from_generation: int | None
    parent: str | None
    batches_run: int
    """Of all queries together, from the beginning of each."""


def batches_run(batches: Iterable[int]) -> int:
    """Return how many batches queries have run whose newest ones have these numbers."""
    return sum(batch + 1 for batch in batches)


def cut_of(manifest: Manifest) -> Cut:
    """Return what tells a savepoint's place."""
    return Cut(
        savepoint_id=manifest.savepoint_id,
        taken_at_ms=manifest.taken_at_ms,
        taken_from_generation=manifest.taken_from_generation,
        parent=manifest.parent,
        batches_run=batches_run(query.batch_id for query in manifest.queries),
    )


def newest_first(items: Iterable[T], cut_of: Callable[[T], Cut]) -> list[T]:
    """Return the savepoints of one job, the newest first."""
    found = [(cut_of(item), item) for item in items]
    cuts = {cut.savepoint_id: cut for cut, _ in found}
    own = sorted((cut for cut in cuts.values() if _is_own(cut)), key=_own_order)
    places: dict[str, tuple[int, int]] = {}
    latest_ms = 0
    for number, cut in enumerate(own):
        latest_ms = max(latest_ms, cut.taken_at_ms)  # one that is behind counts as taken with those before
        places[cut.savepoint_id] = (latest_ms, number)

    def order(cut: Cut) -> tuple[tuple[int, int], int, int, str]:
        origin, steps = _origin(cut, cuts)
        place = places.get(origin.savepoint_id, (origin.taken_at_ms, len(own)))
        return place, steps, cut.taken_at_ms, cut.savepoint_id

    return [item for _, item in sorted(found, key=lambda one: order(one[0]), reverse=True)]


def _is_own(cut: Cut) -> bool:
    return cut.taken_from_generation is not None and cut.parent is None


def _own_order(cut: Cut) -> tuple[int, int, int, str]:
    return cut.taken_from_generation or 0, cut.batches_run, cut.taken_at_ms, cut.savepoint_id


def _origin(cut: Cut, cuts: Mapping[str, Cut]) -> tuple[Cut, int]:
    """Return the savepoint that one was made from in the end, as far as it is still there, and the steps.

    A manifest from outside may name parents in a circle.
    """
    if cut.parent is None:
        return cut, 0
    passed = {cut.savepoint_id}
    while (parent := cuts.get(cut.parent or "")) is not None and parent.savepoint_id not in passed:
        cut = parent
        passed.add(cut.savepoint_id)
    return cut, len(passed) - 1
