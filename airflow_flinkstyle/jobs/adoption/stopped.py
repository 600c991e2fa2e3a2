"""Adopt a job that plain Spark ran and that has stopped: its checkpoint becomes the job's first savepoint."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.adoption.outside import (
    UNTOUCHED,
    await_still,
    find_logs,
    inspect_queries,
    require_same,
    still_for,
    unread,
)
from airflow_flinkstyle.jobs.adoption.taking import (
    capture,
    head_of,
    read_outside,
    record_home,
    require_outside,
)
from airflow_flinkstyle.jobs.errors import AdoptedBeforeError
from airflow_flinkstyle.protocol.errors import PlaceOccupiedError
from airflow_flinkstyle.protocol.home import ADOPTED_KEY, AdoptedMark
from airflow_flinkstyle.protocol.places import require_unmarked
from airflow_flinkstyle.savepoint.capture.copier import ignore
from airflow_flinkstyle.savepoint.ids import new_savepoint_id
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    StoreDeniedError,
    StoreError,
)
from airflow_flinkstyle.types import id_words
from airflow_flinkstyle.wording import age, row, size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_flinkstyle.jobs.adoption.outside import Outside
    from airflow_flinkstyle.jobs.adoption.taking import OutsideRecord, WatchedCheckpoint
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.home import Home
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A job that was adopted."""

    manifest: Manifest
    """Its first savepoint: the next start continues from it, at the same batch numbers."""
    notes: tuple[str, ...]
    """What no one could check, as sentences."""

    def as_dict(self) -> dict[str, object]:
        """Return plain values, for XCom and ``--json``."""
        return {
            "job": self.manifest.job,
            "savepoint_id": self.manifest.savepoint_id,
            "batches": {query.name: int(query.batch_id) for query in self.manifest.queries},
            "planned": [query.name for query in self.manifest.queries if query.planned_offsets is not None],
            "clusters": sorted(
                {id_words(at.cluster_id) for q in self.manifest.queries for at in q.kafka.values()}
            ),
            "spark_version": self.manifest.spark_version,
            "size_bytes": self.manifest.total_bytes,
            "notes": list(self.notes),
        }

    def as_markdown(self) -> str:
        """Return a row per query, then the notes."""
        lines = ["| query | batch | checkpoint | Kafka | state |", "|---|---|---|---|---|"]
        for query in self.manifest.queries:
            state = [entry for entry in query.files if entry.path.startswith("state/")]
            reads = ", ".join(sorted({t for at in query.kafka.values() for t in at.topic_ids})) or "none"
            planned = f" ({query.batch_id + 1} planned)" if query.planned_offsets is not None else ""
            stores = len({entry.path.rpartition("/")[0] for entry in state})
            total = size(sum(entry.size_bytes for entry in state))
            held = f"{stores} folders, {total}" if state else "none"
            lines.append(
                row((query.name, f"{query.batch_id}{planned}", query.checkpoint_location, reads, held))
            )
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)])


def adopt_stopped(
    runs: JobView,
    watched: WatchedCheckpoint,
    *,
    key: str,
    by: str,
    still_s: float | None = None,
    mark: bool = True,
    progress: Callable[[CaptureProgress], None] = ignore,
) -> Adoption:
    """Make the checkpoints of a stopped job its first savepoint here; nothing of Spark's is changed.

    The next start continues from it, at the same batch numbers and query ids, so sinks that remember those
    continue. A repeated call finds what was done.

    Args:
        runs: The job, which has no history here, or was left.
        watched: Its checkpoints, and the clusters that it reads.
        key: Who asks, without the try number.
        by: Who asks, for people to read.
        still_s: For how long nothing may have been written; None for three of the checkpoint's intervals.
        mark: Leave ``_adopted.json`` beside Spark's files, by which another adoption is refused.
        progress: Told after each file.

    Raises:
        CheckpointWrittenError: If a checkpoint is being written.
        AdoptedBeforeError: If the job was adopted with other checkpoints, or one of these by another job.
        JobError: ``HISTORY`` if the job has a history of its own here.
        JobRunningError: If a driver of it runs here.
        FlinkstyleError: Whatever ``inspect_queries``, ``find_logs`` and ``take_savepoint`` raise.
    """
    since = read_outside(runs)
    first = inspect_queries(watched.checkpoints, runs.open_checkpoint)
    require_of_nobody_else(runs, first)
    if (done := _done_before(runs, first, mark=mark)) is not None:
        return done
    logs = find_logs(first, watched.clusters)
    queries = await_still(first, runs.open_checkpoint, still_s=still_s, clock=runs.clock)
    stood_s = still_s if still_s is not None else still_for(first)
    since = record_home(
        runs, "watched", queries, by=by, since=since
    )  # before a savepoint that a start could take
    manifest = finish(
        runs, queries, key=key, by=by, watched=watched, mark=mark, stood_s=stood_s, since=since,
        progress=progress,
    )  # fmt: skip
    return Adoption(manifest=manifest, notes=tuple(_notes(queries, watched, unread(queries, logs), stood_s)))


def finish(
    runs: JobView,
    queries: Sequence[Outside],
    *,
    key: str,
    by: str,
    watched: WatchedCheckpoint,
    mark: bool,
    stood_s: float,
    since: OutsideRecord,
    progress: Callable[[CaptureProgress], None] = ignore,
) -> Manifest:
    """Capture checkpoints that stand still, require that they still do, and record the adoption.

    The mark comes first: of two jobs that adopt one checkpoint at once, one is refused by the other's.
    """
    # Files by their versions, not batches: a batch that was planned since an earlier try is another state.
    batches = ",".join(f"{one.name}:{one.query_id}:{one.mark}" for one in queries)
    savepoint_id = new_savepoint_id(runs.board.job, f"{key}/adopt/{batches}/{since.head or 0}")
    _require_same_adoption(runs, since, savepoint_id, queries)
    logs = find_logs(queries, watched.clusters)
    manifest = capture(
        runs, queries, logs, savepoint_id,
        spark_version=watched.spark_version, at_rest=True, progress=progress,
    )  # fmt: skip
    again = inspect_queries({one.name: one.location for one in queries}, runs.open_checkpoint)
    require_same(queries, again, within_s=stood_s)
    require_of_nobody_else(runs, again)
    if mark:
        _mark(runs, queries, savepoint_id)
    record_home(runs, "adopted", queries, by=by, savepoint_id=savepoint_id, since=since)
    log.info("Job %s is adopted: savepoint %s", runs.board.job, savepoint_id)
    return manifest


def _require_same_adoption(
    runs: JobView, since: OutsideRecord, savepoint_id: str, queries: Sequence[Outside]
) -> None:
    """Require that the job was not adopted with other checkpoints; raises ``AdoptedBeforeError``."""
    home = since.slot.value if since.slot is not None and since.slot.value.binds(since.head) else None
    if home is None or home.state != "adopted" or home.savepoint_id == savepoint_id:
        return
    if not _is_later(runs, home, queries):
        raise _adopted_with_others(runs, home)


def _done_before(runs: JobView, found: Sequence[Outside], *, mark: bool) -> Adoption | None:
    """Return an earlier adoption of the same state; None if none is, or the old job has continued since.

    A try that was killed before its end may have written no mark: it is written now.

    Raises:
        AdoptedBeforeError: If the job was adopted with other checkpoints.
    """
    slot = runs.board.home()
    named = {one.name: one.location for one in found}
    if slot is None or not slot.value.binds(head_of(runs)) or slot.value.state != "adopted":
        require_outside(runs, {"watched", "left"}, named)
        return None
    home = slot.value
    if _is_same(runs, home, found):
        if mark:
            _mark(runs, found, home.savepoint_id or "")
        manifest = runs.repository.read(home.savepoint_id or "")
        return Adoption(manifest=manifest, notes=("It was adopted before, just so; nothing was done.",))
    require_outside(runs, {"watched", "left", "adopted"}, named)
    if _is_later(runs, home, found):
        log.warning(
            "Job %s has continued in its old place since it was adopted: adopting it again", runs.board.job
        )
        return None
    raise _adopted_with_others(runs, home)


def _adopted_with_others(runs: JobView, home: Home) -> AdoptedBeforeError:
    before = "; ".join(
        f"{name} in {one.location} at batch {one.batch_id}" for name, one in home.checkpoints.items()
    )
    return AdoptedBeforeError(
        f"Job {runs.board.job} was expected to be adopted with the checkpoints that it was adopted with "
        f"before ({before}), found others.",
        state_after="Nothing was changed: the adoption before stands, and the next start continues from it.",
        remedy="Adopt the others under another job's name; or give this job back first (job leave).",
    )


def _is_same(runs: JobView, home: Home, found: Sequence[Outside]) -> bool:
    """Return whether these are the adopted queries in their places, as they were."""
    return _is_later(runs, home, found) and all(
        (was.batch_id, was.planned) == (one.batch_id, one.planned is not None)
        for one in found
        for was in [home.checkpoints[one.name]]
    )


def _is_later(runs: JobView, home: Home, found: Sequence[Outside]) -> bool:
    """Return whether these are the adopted queries in their places, at the same batch or later."""
    if home.checkpoints.keys() != {one.name for one in found}:
        return False
    pairs = [(home.checkpoints[one.name], one) for one in found]
    return all(
        runs.open_checkpoint(was.location).uri.rstrip("/") == one.checkpoint.uri.rstrip("/")
        and was.query_id == one.query_id
        and was.batch_id <= one.batch_id
        for was, one in pairs
    )


def require_of_nobody_else(runs: JobView, queries: Sequence[Outside]) -> None:
    """Require that no other job was made of a checkpoint; raises ``AdoptedBeforeError``."""
    for one in queries:
        found = one.checkpoint.get(ADOPTED_KEY)
        if found is not None:
            _require_own(runs, one, found.data)
        _require_of_plain_spark(runs, one)


def _require_of_plain_spark(runs: JobView, one: Outside) -> None:
    """Require that no job of this package keeps its checkpoints there: its mark is beside the queries'."""
    folder = one.location.rstrip("/").rpartition("/")[0]
    try:
        require_unmarked(runs.open_checkpoint(folder))
    except PlaceOccupiedError as error:
        raise AdoptedBeforeError(
            f"The checkpoint of query {one.name} in {one.location} was expected to be plain Spark's, found "
            f"that a job of this package has it: {error.problem}",
            state_after=UNTOUCHED,
            remedy="Start that job instead, or give it back (flinkstyle job leave) and adopt it from there. "
            "If its root is gone, copy this folder elsewhere and adopt the copy.",
        ) from error
    except (BadInputError, StoreDeniedError):  # there is no folder above it, or it may not be read
        return


def _require_own(runs: JobView, one: Outside, data: bytes) -> None:
    try:
        mark = AdoptedMark.from_bytes(data)
    except FlinkstyleError as error:
        raise AdoptedBeforeError(
            f"{one.location} was expected to bear no mark, or this job's, found one that cannot be read "
            f"({ADOPTED_KEY}): {error.problem}",
            state_after=UNTOUCHED,
            remedy="Find out who wrote it; delete it if no job elsewhere continues from this checkpoint.",
        ) from error
    if (mark.root, mark.job) != (runs.board.store.uri, runs.board.job):
        raise AdoptedBeforeError(
            f"The checkpoint of query {one.name} in {one.location} was expected to belong to no other job,"
            f" found that job {mark.job} of root {mark.root} adopted it at batch {mark.batch_id}.",
            state_after=UNTOUCHED,
            remedy="Two jobs that continue from one checkpoint write the same output twice. If that job was "
            f"given up, delete {ADOPTED_KEY} there.",
        )


def _mark(runs: JobView, queries: Sequence[Outside], savepoint_id: str) -> None:
    """Leave a mark in each old location; where that is not allowed, the adoption counts without it.

    Raises:
        AdoptedBeforeError: If another job was faster; no mark of this call is left then.
        StoreError: If a store does not answer now.
    """
    made: list[Outside] = []
    for one in queries:
        mark = AdoptedMark(
            root=runs.board.store.uri,
            job=runs.board.job,
            query=one.name,
            batch_id=one.batch_id,
            savepoint_id=savepoint_id,
            at_ms=now_ms(),
        )
        try:
            if _leave_mark(runs, one, mark):
                made.append(one)
        except AdoptedBeforeError:
            for other in made:
                other.checkpoint.delete(ADOPTED_KEY)
            raise
        except StoreError as error:
            if error.retryable:
                raise
            log.warning("%s bears no mark of the adoption: %s", one.location, error.problem)


def _leave_mark(runs: JobView, one: Outside, mark: AdoptedMark) -> bool:
    """Leave one mark, unless another job's is there; return whether there was none."""
    found = one.checkpoint.get(ADOPTED_KEY)
    try:
        if found is None:
            one.checkpoint.create(ADOPTED_KEY, mark.to_bytes())
            return True
        _require_own(runs, one, found.data)
        one.checkpoint.replace(ADOPTED_KEY, mark.to_bytes(), expected=found.version)
    except (ObjectExistsError, ObjectChangedError):  # another caller was faster, or an answer was lost
        _require_own(runs, one, one.checkpoint.read(ADOPTED_KEY))
    return False


def _notes(queries: Sequence[Outside], watched: WatchedCheckpoint, pending: int, stood_s: float) -> list[str]:
    """Return sentences on what only a person vouches for, and on what files cannot show."""
    notes = []
    if any(one.newest.kafka_sources for one in queries):
        notes.append(
            f"Which Kafka cluster the positions belong to is your word ({watched.clusters}): no checkpoint "
            "names one. They lie in its logs, with exactly its partitions."
        )
    if watched.spark_version is None:
        notes.append(
            "Which Spark wrote the checkpoint is not recorded in it: the same or a newer one can continue."
        )
    notes.append("Sinks are not recorded: keep them as the script has them.")
    stood = f"Nothing was written for {stood_s:.0f} s"
    if pending:
        notes.append(
            f"{stood}, although {pending:,} offsets wait: a running query would have begun a batch, "
            "unless its trigger is rarer than that."
        )
    else:
        notes.append(
            f"{stood}. Nothing waits to be read either, so a query that still runs would look the same: make "
            "sure that the old job has ended."
        )
    notes += [
        f"The newest batches of {one.name} were up to {age(one.interval_s)} apart, longer than it was "
        "watched: that it stands still shows little."
        for one in queries
        if one.interval_s > stood_s
    ]
    planned = [f"{one.batch_id + 1} of {one.name}" for one in queries if one.planned is not None]
    if planned:
        notes.append(
            f"Planned, not committed: batch {', '.join(planned)}. It is run again with the same offsets."
        )
    return notes
