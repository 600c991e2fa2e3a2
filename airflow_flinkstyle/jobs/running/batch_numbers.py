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
    from airflow_flinkstyle.types import Rewind

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
        """Return the newest number that this generation tells of, of a planned batch too; -1 for none."""
        beat, order = self.of(query), self.order
        begun = order.unused_from.get(query) if order is not None and order.rewind == "fork" else None
        done = -1 if beat is None or beat.batch_id is None else beat.batch_id
        planned = beat is not None and beat.sinks is not None and beat.sinks.under_way
        return max(-1 if begun is None else begun, done + planned)

    @property
    def is_exact(self) -> bool:
        """Whether these are the words of a process that had ended its queries itself.

        One that failed repeats what its predecessor said of queries that it did not come to.
        """
        return self.words.state == "closed" or (self.words.state == "failed" and self.words.incarnation == 1)

    def has_lost(self, query: str) -> bool:
        """Return whether an earlier incarnation may have run the query, with nothing left of its words."""
        return self.words.state == "closed" and self.words.incarnation > 1 and self.of(query) is None


def unused_from(board: JobBoard, manifest: Manifest, rewind: Rewind) -> dict[str, int | None]:
    """Return, for each query, a number above every batch that a run of the job may have had.

    None where the records cannot tell: a savepoint to go back to is of a lineage that no run of this job
    had, so it ran under another job or root; or the last words of a run that had the query are lost.
    A query that no run has named is left out where its own numbers go on: a driver names one before its
    first batch.

    Args:
        board: The job's records.
        manifest: The savepoint that a start goes back to, or, with ``continue``, begins a line with.
        rewind: What it chose.
    """
    told = _told(board)
    named = {name for one in told for name in one.words.queries}
    back_to = {} if rewind == "continue" else {query.name: query for query in manifest.queries}
    return {name: _behind_all(name, back_to.get(name), told) for name in sorted(named | back_to.keys())}


def _behind_all(name: str, saved: QuerySnapshot | None, told: Sequence[_Told]) -> int | None:
    ran = [one.of(name) for one in told]
    begun = next((place for place, beat in enumerate(ran) if beat is not None), len(told))
    if any(one.has_lost(name) for one in told[begun:]):
        return None
    if saved is not None and not any(beat is not None and beat.query_id == saved.query_id for beat in ran):
        return None
    newest = max(one.newest(name) for one in told)
    if saved is not None:
        newest = max(newest, saved.batch_id)
    return newest + (1 if all(one.is_exact for one in told) else UNSEEN_BATCHES)


def _told(board: JobBoard) -> list[_Told]:
    """Return what each generation that spoke was told and said."""
    return [
        _Told(board.takeover_order(generation), slot.value)
        for generation in board.generations()
        if (slot := board.heartbeat(generation)) is not None
    ]
