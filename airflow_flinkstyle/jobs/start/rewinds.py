"""What going back to a savepoint needs: whether it is the newest state, unused batch numbers, new ids."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.jobs.errors import RewindError
from airflow_flinkstyle.jobs.stopped import last_run
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.protocol.line import Abandoned, Elsewhere, OnLine
from airflow_flinkstyle.savepoint.compat import read_up_to
from airflow_flinkstyle.savepoint.errors import RenumberError
from airflow_flinkstyle.savepoint.files.derive import changed_file, publish_derived
from airflow_flinkstyle.savepoint.files.renumber import renumber
from airflow_flinkstyle.savepoint.sequence import cut_of, place_of
from airflow_flinkstyle.types import BatchId, ids_differ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.line import Line, Turn
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import Heartbeat, TakeoverOrder
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.types import Rewind

_CHOICES = (
    "Start from the checkpoint (start_from='checkpoint') to lose nothing, or choose rewind='fork' (new query "
    "id, new batch numbers where the sink needs them) or rewind='re-emit' (batch ids are used again)."
)


def require_newest(runs: JobView, manifest: Manifest) -> None:
    """Require that the job has committed nothing after the savepoint.

    One from elsewhere, named by who starts from it, begins a line of its own: nothing here is after it.

    Raises:
        RewindError: If it has, or if that cannot be known because the last run did not close; if it went on
            from another point; or if the savepoint lacks a batch of which sinks may have written a part.
        LineError: If the job's records contradict each other.
    """
    line = read_line(runs.board, back_to=manifest.taken_from_generation or 0)
    where = place_of(cut_of(manifest), line) if line is not None else None
    if isinstance(where, Abandoned):
        raise RewindError(
            f"Savepoint {manifest.savepoint_id} was expected to be where job {runs.board.job} is, found that "
            f"the job has left it behind: {where.by}.",
            state_after="Nothing was started.",
            remedy=_CHOICES,
        )
    if line is not None and isinstance(where, OnLine):
        _require_last(runs, manifest, line, where.since)


def is_from_elsewhere(runs: JobView, manifest: Manifest) -> bool:
    """Return whether a job that has run is to begin a line of its own with a savepoint."""
    line = read_line(runs.board, back_to=manifest.taken_from_generation or 0)
    return line is not None and isinstance(place_of(cut_of(manifest), line), Elsewhere)


def _require_last(runs: JobView, manifest: Manifest, line: Line, since: Sequence[Turn]) -> None:
    """Compare a savepoint on the line with what the head said last; ``since`` are the turns behind it."""
    _, words = last_run.last_words(runs)
    if words is None or words.state != "closed":
        raise _behind(manifest, manifest.queries[0], "ended at a batch that no run recorded")
    for query in manifest.queries:
        beat = words.queries.get(query.name)
        if beat is None or beat.batch_id is None:
            if line.parent.savepoint_id != manifest.savepoint_id:
                raise _behind(manifest, query, f"has no such query in generation {line.head}")
            continue
        if ids_differ(beat.query_id, query.query_id):
            raise _behind(manifest, query, f"gave it another id: {'; '.join(map(str, since))}")
        if beat.batch_id != read_up_to(manifest, query):
            raise _behind(manifest, query, f"continued to batch {beat.batch_id}")
        if _is_half_written(beat):
            _require_under_way(manifest, query, since)
    _require_whole(manifest, words)


def _behind(manifest: Manifest, query: QuerySnapshot, went: str) -> RewindError:
    return RewindError(
        f"Savepoint {manifest.savepoint_id} was expected to hold the last batch of query {query.name}, found "
        f"batch {read_up_to(manifest, query)}, and the job {went}.",
        state_after="Nothing was started.",
        remedy=_CHOICES,
    )


def _require_whole(manifest: Manifest, words: Heartbeat) -> None:
    """Require that no query has run beside those of the savepoint: it would begin anew."""
    for name, beat in words.queries.items():
        if manifest.query(name) is None and beat.batch_id is not None:
            raise RewindError(
                f"Savepoint {manifest.savepoint_id} was expected to hold all queries of the job, found "
                f"nothing of query {name}, which was started after it was taken, is at batch {beat.batch_id} "
                "and would start from the beginning.",
                state_after="Nothing was started.",
                remedy=_CHOICES,
            )


def _is_half_written(beat: QueryStatus) -> bool:
    """Return whether sinks may have written, under its id, a batch that was planned last, or a part of it."""
    return beat.sinks is not None and beat.sinks.under_way


def _require_under_way(manifest: Manifest, query: QuerySnapshot, since: Sequence[Turn]) -> None:
    """Require that a savepoint knows of the batch which sinks may have written, or a part of it.

    It does not if a run planned that batch that went back by choice, but to this savepoint itself and behind
    the batch that it holds as planned, which that run planned again as it was. Nor where a repartition has
    taken that batch's number: the same records would get another one.
    """
    known = query.planned_offsets is not None or (query.sinks and query.sinks.under_way)
    itself = manifest.savepoint_id if query.planned_offsets is not None else None
    chosen = (turn for turn in since if turn.rewind != "continue")
    back = next((turn for turn in chosen if itself is None or turn.parent.savepoint_id != itself), None)
    if back is not None or not known or read_up_to(manifest, query) != query.batch_id:
        went = f" ({back})" if back is not None else ""
        raise RewindError(
            f"Savepoint {manifest.savepoint_id} was expected to hold batch {read_up_to(manifest, query) + 1} "
            f"of query {query.name}, which a driver had planned before it died{went}, found no offsets of "
            "it: all or a part of it may be in the output; other rows under its id would be left out or "
            "doubled.",
            state_after="Nothing was started.",
            remedy="Start from the checkpoint (start_from='checkpoint') or a savepoint that was taken since, "
            "to complete that batch; or choose rewind='fork' or rewind='re-emit', which write it again.",
        )


# Which batch numbers of a query are unused, as far as the runs of its job have told. Reads records only.
#
# A function that remembers batch ids does so over all runs and all lineages of a job: what counts is the
# newest batch that it has ever been handed.

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


# A savepoint under new query ids, and numbers: what a fork starts from.

_METADATA = "metadata"


def fork(
    manifest: Manifest,
    repository: SavepointRepository,
    key: str,
    numbers: Mapping[str, int | None] | None = None,
) -> Manifest:
    """Publish the savepoint under new query ids, so that no sink takes its batches for known ones.

    What was planned behind it is the old lineage's to complete: a fork plans its own.

    Args:
        manifest: The savepoint.
        repository: Where it is.
        key: Who asks, without the try number.
        numbers: Query name -> a number above every batch that the job may have had; the takeover order's
            ``unused_from``.
    """
    numbers = numbers or {}
    counted = [f"{name}={number}" for name, number in sorted(numbers.items()) if number is not None]
    text = "\0".join([manifest.savepoint_id, key, *counted])
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]

    def forked(query: QuerySnapshot) -> QuerySnapshot:
        return _renamed(_counted_on(query, numbers.get(query.name)), repository, digest)

    return publish_derived(manifest, repository, f"sp-fork-{digest}", forked)


def _counted_on(query: QuerySnapshot, number: int | None) -> QuerySnapshot:
    """Give a query into a plain function its number at once: its driver may end before it comes to it.

    What is left as it is here, the agent judges by the script.
    """
    is_plain = query.sink == "foreachBatch" and query.sinks is not None and not query.sinks.lineages
    if number is not None and is_plain:
        with contextlib.suppress(RenumberError):
            return renumber(query, BatchId(number))
    return query


def _renamed(query: QuerySnapshot, repository: SavepointRepository, digest: str) -> QuerySnapshot:
    query_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{query.query_id}/{digest}"))
    files = []
    for entry in query.files:
        if entry.path == _METADATA:
            metadata = {**json.loads(repository.read_file(entry)), "id": query_id}
            content = json.dumps(metadata, separators=(",", ":")).encode()
            entry = changed_file(repository, entry.path, content)
        files.append(entry)
    return replace(query, query_id=query_id, planned_offsets=None, files=tuple(files))
