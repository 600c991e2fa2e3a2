"""What a caller itself does to a job that no driver runs: take its savepoint, or close its last run."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.errors import NOT_ADOPTED, JobRunningError
from airflow_flinkstyle.jobs.status import Closed, Running, Starting, describe_status
from airflow_flinkstyle.jobs.stopped import last_run
from airflow_flinkstyle.jobs.stopped.offline_lock import hold_offline, is_own, lock_key
from airflow_flinkstyle.savepoint.capture.copier import ignore
from airflow_flinkstyle.savepoint.capture.patience import STORE_PATIENCE_S
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.verified import damage_of
from airflow_flinkstyle.savepoint.ids import new_savepoint_id
from airflow_flinkstyle.savepoint.repository.summary import newest_savepoint, newest_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.jobs.stopped.offline_lock import OfflineLock
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.home import Home
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.summary import Summary


def take_stopped(
    runs: JobView, key: str, *, progress: Callable[[CaptureProgress], None] = ignore
) -> Manifest:
    """Take a savepoint of a job that does not run; a retry with the same key finds it again.

    The state of a job that was adopted and not started since is its adoption's savepoint. An attempt that was
    frozen until its intent expired can no longer publish under its id; after an attempt that was taken for
    dead the job may have run on. In both cases the next attempt takes another savepoint.

    Raises:
        JobError: ``NOT_ADOPTED`` if plain Spark has the job: what its last run here left is not its state.
        JobRunningError: If a driver runs or starts: ask it instead. ``HELD_NO_MORE`` if this caller was
            taken for dead.
        JobNotRunningError: If there is nothing to take: the job never committed a batch.
        CheckpointMismatchError: If this machine sees another checkpoint than the last run recorded.
    """
    home = runs.board.binding_home()
    if home is not None and home.state == "adopted":
        return runs.repository.read(home.savepoint_id or "")
    if home is not None and home.state in {"left", "watched"}:
        raise _of_plain_spark(runs, home)
    ids = _usable_ids(runs, key)
    savepoint_id = next(ids)
    existing = runs.repository.find(savepoint_id)
    status = runs.settled_status(unless=lambda run: is_own(run, key)) if existing is None else None
    if isinstance(status, (Running, Starting)) and not is_own(status.run, key):
        raise JobRunningError(
            f"Job {runs.board.job} was expected not to run, found that {describe_status(status)}.",
            state_after="Nothing was taken.",
            remedy="Ask its driver for the savepoint (TakeSavepointOperator).",
        )
    with hold_offline(runs, key) as lock:
        while existing is not None and not _is_at_rest(runs, lock, existing):
            savepoint_id = next(ids)
            existing = runs.repository.find(savepoint_id)
        if existing is None:
            existing = _take(runs, lock, savepoint_id, progress)
        lock.close(
            {query.name: query.batch_id for query in existing.queries},
            ids={query.name: query.query_id for query in existing.queries},
            under_way={query.name for query in existing.queries if query.planned_offsets is not None},
        )
    return existing


def savepoint_at_rest(runs: JobView) -> Summary | None:
    """Return the newest savepoint if the job stopped exactly there, and no check has found it damaged."""
    status, newest = runs.status(), newest_summary(runs.repository)
    home = runs.board.binding_home()
    if home is not None and home.state != "leaving":
        return None  # plain Spark runs the job, or did until its adoption
    if not isinstance(status, Closed) or newest is None:
        return None
    prefix, claim_key = lock_key(""), status.run.claim.claim_key
    by_caller = None
    if claim_key.startswith(prefix):
        by_caller = new_savepoint_id(runs.board.job, claim_key.removeprefix(prefix))
    is_there = newest.savepoint_id in (status.heartbeat.savepoint_id, by_caller)
    return newest if is_there and damage_of(runs.repository, newest.savepoint_id) is None else None


def _of_plain_spark(runs: JobView, home: Home) -> FlinkstyleError:
    where = " ".join(f"--checkpoint {name}={one.location}" for name, one in sorted(home.checkpoints.items()))
    return NOT_ADOPTED.with_text(
        f"Job {runs.board.job} was expected to have its state here, found that plain Spark has it ({where}).",
        state_after="Nothing was taken.",
        remedy="Take its savepoint from outside: flinkstyle savepoint take --job "
        f"{runs.board.job} {where}, with the Kafka clusters that it reads.",
    )


def close(runs: JobView, key: str, seen: last_run.CheckpointProgress) -> Heartbeat:
    """Close a run whose driver died, so that the next one may adopt its checkpoint as it is.

    A driver adopts no checkpoint of a run that did not close. A retry with the same key finds
    the same heartbeat.

    Args:
        runs: The job.
        key: The caller, without the try number.
        seen: The run's checkpoint, in which not every query has committed a batch.

    Returns:
        The heartbeat that was written in the driver's place.

    Raises:
        JobRunningError: If its driver still writes.
        CheckpointMismatchError: If this machine sees another checkpoint than the run recorded.
    """
    begun = [name for name, batch in seen.committed.items() if batch >= 0]
    with hold_offline(runs, key, needed=begun) as lock:
        names = [name for name in lock.last_heartbeat.queries if last_run.has_begun(runs, lock.last, name)]
        newest = {name: last_run.newest_batches(runs, lock.last, name) for name in names}
        lock.close(
            {name: done for name, (done, _) in newest.items() if done is not None},
            ids={name: last_run.id_of(runs, lock.last, name) for name in begun},
            under_way={name for name, (done, planned) in newest.items() if done != planned},
        )
    closed = runs.board.heartbeat(lock.generation)
    if closed is None:
        raise AssertionError(f"generation {lock.generation} has just closed")
    return closed.value


def _is_at_rest(runs: JobView, lock: OfflineLock, taken: Manifest) -> bool:
    """Return whether a savepoint that an earlier try took holds the job's present state.

    That try may have been taken for dead, and the job given back: then its driver ran on, and died again.
    """
    at = {query.name: query.batch_id for query in taken.queries}
    if lock.heartbeats is None:
        closed = runs.board.heartbeat(lock.generation)
        return closed is not None and closed.value.batches().items() >= at.items()
    if taken.taken_from_generation not in (None, lock.driver):
        return False
    begun = {name for name in lock.last_heartbeat.queries if last_run.has_begun(runs, lock.last, name)}
    if begun != at.keys():
        return False
    newest = {name: last_run.newest_batches(runs, lock.last, name) for name in begun}
    return all(
        newest[query.name]
        == (query.batch_id, query.batch_id + (1 if query.planned_offsets is not None else 0))
        for query in taken.queries
    )


def _usable_ids(runs: JobView, key: str) -> Iterator[str]:
    """Yield the ids that the caller's savepoint may have; those that were withdrawn are skipped."""
    keys = itertools.chain([key], (f"{key} again {attempt}" for attempt in itertools.count(2)))
    ids = (new_savepoint_id(runs.board.job, one) for one in keys)
    return (savepoint_id for savepoint_id in ids if runs.repository.why_tombstoned(savepoint_id) is None)


def _take(
    runs: JobView, lock: OfflineLock, savepoint_id: str, progress: Callable[[CaptureProgress], None]
) -> Manifest:
    queries = [
        QuerySource.at_rest(name, last_run.read_checkpoint(runs, lock.last, name), status)
        for name, status in sorted(lock.last_heartbeat.queries.items())
        if last_run.has_begun(runs, lock.last, name)
    ]
    label = SavepointLabel(
        savepoint_id=savepoint_id,
        taken_at_ms=now_ms(),
        spark_version=lock.last_heartbeat.spark_version,
        taken_from_generation=lock.driver,
    )
    previous = newest_savepoint(runs.repository)
    return take_savepoint(
        runs.repository,
        queries,
        label,
        previous=previous,
        progress=progress,
        patience_s=STORE_PATIENCE_S,
    )
