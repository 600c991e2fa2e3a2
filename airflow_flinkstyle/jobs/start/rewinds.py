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
    from airflow_flinkstyle.protocol.home import Home
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

    A savepoint from elsewhere, if a caller names it, begins a line of its own: nothing here is after it.

    Raises:
        RewindError: If it has, or if that is unknown because the last run did not close; if the job continued
            from another point; or if the savepoint lacks a batch of which sinks may have written a part.
        FlinkstyleError: ``LINE`` if the job's records contradict each other.
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
    """Return whether the job has run, and a start from the savepoint begins a line of its own."""
    line = read_line(runs.board, back_to=manifest.taken_from_generation or 0)
    return line is not None and isinstance(place_of(cut_of(manifest), line), Elsewhere)


def _require_last(runs: JobView, manifest: Manifest, line: Line, since: Sequence[Turn]) -> None:
    """Compare a savepoint on the line with the head's last heartbeat; ``since`` are the turns after it."""
    _, heartbeat = last_run.last_run_and_heartbeat(runs)
    if heartbeat is None or heartbeat.state != "closed":
        raise _behind(manifest, manifest.queries[0], "ended at a batch that no run recorded")
    for query in manifest.queries:
        status = heartbeat.queries.get(query.name)
        if status is None or status.batch_id is None:
            if line.parent.savepoint_id != manifest.savepoint_id:
                raise _behind(manifest, query, f"has no such query in generation {line.head}")
            continue
        if ids_differ(status.query_id, query.query_id):
            raise _behind(manifest, query, f"gave it another id: {'; '.join(map(str, since))}")
        if status.batch_id != read_up_to(manifest, query):
            raise _behind(manifest, query, f"continued to batch {status.batch_id}")
        if _is_half_written(status):
            _require_under_way(manifest, query, since)
    _require_whole(manifest, heartbeat)


def _behind(manifest: Manifest, query: QuerySnapshot, went: str) -> RewindError:
    return RewindError(
        f"Savepoint {manifest.savepoint_id} was expected to hold the last batch of query {query.name}, found "
        f"batch {read_up_to(manifest, query)}, and the job {went}.",
        state_after="Nothing was started.",
        remedy=_CHOICES,
    )


def _require_whole(manifest: Manifest, last: Heartbeat) -> None:
    """Require that only queries of the savepoint have run: another would start from the beginning."""
    for name, status in last.queries.items():
        if manifest.query(name) is None and status.batch_id is not None:
            raise RewindError(
                f"Savepoint {manifest.savepoint_id} was expected to hold all queries of the job, found "
                f"nothing of query {name}, which was started after it was taken, is at batch "
                f"{status.batch_id} and would start from the beginning.",
                state_after="Nothing was started.",
                remedy=_CHOICES,
            )


def _is_half_written(status: QueryStatus) -> bool:
    """Return whether sinks may have written, under its id, the last planned batch or a part of it."""
    return status.sinks is not None and status.sinks.under_way


def _require_under_way(manifest: Manifest, query: QuerySnapshot, since: Sequence[Turn]) -> None:
    """Require that a savepoint holds the planned batch that sinks may have written in whole or in part.

    It does not if the run that planned that batch had rewound, unless to this savepoint itself and with its
    planned batch, which that run planned again unchanged. Nor if a repartition has taken that batch's number:
    the same records would get another one.
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


# Which batch numbers of a query are unused, by the heartbeats of the job's runs. Reads records only.
#
# A function that remembers batch ids does so over all runs and all lineages of a job: what counts is the
# newest batch that it was ever called with.

UNSEEN_BATCHES: Final = 1_000_000
"""More than any driver runs between the last heartbeat that it could write and its end. Spark counts
in 64 bits."""


@dataclass(frozen=True, slots=True)
class _RecordedRun:
    """The takeover order of one generation, and its last heartbeat."""

    order: TakeoverOrder | None
    heartbeat: Heartbeat

    def status_of(self, query: str) -> QueryStatus | None:
        return self.heartbeat.queries.get(query)

    def newest(self, query: str) -> int:
        """Return the newest number that this generation recorded, also of a planned batch; -1 for none.

        A run that has failed may have planned the next batch, and a function may have been called with it.
        """
        status, order = self.status_of(query), self.order
        begun = order.unused_from.get(query) if order is not None and order.rewind == "fork" else None
        done = -1 if status is None or status.batch_id is None else status.batch_id
        half = status is not None and _is_half_written(status)
        planned = half or (status is not None and self.heartbeat.state == "failed")
        return max(-1 if begun is None else begun, done + planned)

    @property
    def is_exact(self) -> bool:
        """Whether the process of this heartbeat had ended its queries itself.

        A process that failed repeats its predecessor's status of queries that it did not start itself.
        """
        last = self.heartbeat
        return last.state == "closed" or (last.state == "failed" and last.incarnation == 1)

    def has_lost(self, query: str) -> bool:
        """Return whether an earlier incarnation may have run the query, and no record of it is left."""
        last = self.heartbeat
        return last.state == "closed" and last.incarnation > 1 and self.status_of(query) is None


def unused_from(board: JobBoard, manifest: Manifest, rewind: Rewind) -> dict[str, int | None]:
    """Return, for each query, a number above every batch that a run of the job may have had.

    None where the records cannot tell: the savepoint to go back to is of a lineage that no run of this job
    had, so it ran under another job or root; or the last heartbeat of a run that had the query is lost; or
    plain Spark has the query, and counts on where nobody records it.
    With ``continue``, a query that no run has named is left out: a driver names one before its first batch.

    Args:
        board: The job's records.
        manifest: The savepoint that a start goes back to, or, with ``continue``, begins a line with.
        rewind: The start's choice.
    """
    runs = _recorded_runs(board)
    named = {name for run in runs for name in run.heartbeat.queries}
    back_to = {} if rewind == "continue" else {query.name: query for query in manifest.queries}
    slot = board.home()
    home = slot.value if slot is not None else None
    return {name: _above_all(name, back_to.get(name), runs, home) for name in sorted(named | back_to.keys())}


def _above_all(
    name: str, saved: QuerySnapshot | None, runs: Sequence[_RecordedRun], home: Home | None
) -> int | None:
    outside = home.checkpoints.get(name) if home is not None else None
    if home is not None and outside is not None and home.state in ("watched", "left"):
        return None
    statuses = [run.status_of(name) for run in runs]
    first = next((index for index, status in enumerate(statuses) if status is not None), len(runs))
    if any(run.has_lost(name) for run in runs[first:]):
        return None
    own_ids = {status.query_id for status in statuses if status is not None}
    numbers = [run.newest(name) for run in runs]
    if outside is not None:
        own_ids.add(outside.query_id)
        numbers.append(outside.batch_id + outside.planned)
    if saved is not None and saved.query_id not in own_ids:
        return None
    newest = max(numbers)
    if saved is not None:
        newest = max(newest, saved.batch_id)
    return newest + (1 if all(run.is_exact for run in runs) else UNSEEN_BATCHES)


def _recorded_runs(board: JobBoard) -> list[_RecordedRun]:
    """Return order and last heartbeat of each generation that wrote one."""
    return [
        _RecordedRun(board.takeover_order(generation), slot.value)
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

    A batch that was planned after it stays with the old lineage: a fork plans its own.

    Args:
        manifest: The savepoint.
        repository: Where it is.
        key: The caller, without the try number.
        numbers: Query name -> a number above every batch that the job may have had; the takeover order's
            ``unused_from``.
    """
    numbers = numbers or {}
    counted = [f"{name}={number}" for name, number in sorted(numbers.items()) if number is not None]
    text = "\0".join([manifest.savepoint_id, key, *counted])
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]

    def forked(query: QuerySnapshot) -> QuerySnapshot:
        return _renamed(_renumbered(query, numbers.get(query.name)), repository, digest)

    return publish_derived(manifest, repository, f"sp-fork-{digest}", forked)


def _renumbered(query: QuerySnapshot, number: int | None) -> QuerySnapshot:
    """Give a query into a plain function its number now: its driver may end before it could.

    The agent decides about other queries, by the script.
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
