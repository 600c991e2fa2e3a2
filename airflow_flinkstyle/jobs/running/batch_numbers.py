"""Which batch numbers of a query are unused, as far as the runs of its job have told. Reads records only.

A function that remembers batch ids does so over all runs and all lineages of a job: what counts is the
newest batch that it has ever been handed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import Heartbeat, TakeoverOrder
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot

UNSEEN_BATCHES: Final = 1_000_000
"""More than any driver runs between the last heartbeat that it could write and its end. Spark counts
in 64 bits."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What one generation was told, and what it said last."""

    order: TakeoverOrder | None
    words: Heartbeat

    def of(self, query: str) -> QueryStatus | None:
        return self.words.queries.get(query)

    def newest(self, query: str) -> int:
        """Return the newest number of the query's batches that this generation tells of; -1 for none."""
        beat = self.of(query)
        begun = self.order.counts_behind.get(query, -1) if self.order is not None else -1
        return max(begun, beat.batch_id if beat is not None and beat.batch_id is not None else -1)

    @property
    def is_exact(self) -> bool:
        """Whether these are the words of a process that had ended its queries itself.

        One that failed repeats what its predecessor said of queries that it did not come to.
        """
        return self.words.state == "closed" or (self.words.state == "failed" and self.words.incarnation == 1)

    def has_lost(self, query: str) -> bool:
        """Return whether an earlier incarnation may have run the query, with nothing left of its words."""
        return self.words.state == "closed" and self.words.incarnation > 1 and self.of(query) is None


def counts_behind(board: JobBoard, manifest: Manifest) -> dict[str, int]:
    """Return, for each query of a savepoint, a number behind every batch that a run of the job may have had.

    Left out are queries of which the records cannot tell: no run of this job had the savepoint's lineage, so
    it ran under another job or root; or the last words of a run that had it are lost.
    """
    told = _told(board)
    return {
        query.name: max(query.batch_id, *(one.newest(query.name) for one in told)) + _unsaid(told)
        for query in manifest.queries
        if _is_known(query, told)
    }


def used_here(board: JobBoard, manifest: Manifest) -> dict[str, int]:
    """Return, for each query of a savepoint from elsewhere, a number behind every batch that a run had here.

    Left out are queries that no run of the job has named: a driver names one before its first batch.
    """
    told = _told(board)
    return {
        query.name: max(one.newest(query.name) for one in told) + _unsaid(told)
        for query in manifest.queries
        if any(one.of(query.name) is not None for one in told)
    }


def _unsaid(told: Sequence[_Told]) -> int:
    """Return how many more batches there may have been; one: planned, and not committed."""
    return 1 if all(one.is_exact for one in told) else UNSEEN_BATCHES


def begin_anew(board: JobBoard, manifest: Manifest) -> tuple[str, ...]:
    """Return the queries that runs of the job have named and a savepoint does not hold.

    A driver names a query before its first batch, so no other one has handed a batch to a function.
    """
    named = {name for one in _told(board) for name in one.words.queries}
    return tuple(sorted(name for name in named if manifest.query(name) is None))


def _told(board: JobBoard) -> list[_Told]:
    """Return what each generation that spoke was told and said."""
    return [
        _Told(board.takeover_order(generation), slot.value)
        for generation in board.generations()
        if (slot := board.heartbeat(generation)) is not None
    ]


def _is_known(query: QuerySnapshot, told: Sequence[_Told]) -> bool:
    ran = [one.of(query.name) for one in told]
    begun = next((place for place, beat in enumerate(ran) if beat is not None), len(told))
    is_ours = any(beat is not None and beat.query_id == query.query_id for beat in ran)
    return is_ours and not any(one.has_lost(query.name) for one in told[begun:])
