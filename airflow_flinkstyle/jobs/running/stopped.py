"""What a caller does itself with a job that no driver runs: lock it offline, and take its savepoint.

The caller acts as a generation of its own that runs no batch: it claims one, takes ``current.json`` over
so that no old driver can wake up, reads the checkpoint, and writes ``closed`` in the driver's place.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.errors import JobNotRunningError, JobRunningError
from airflow_flinkstyle.jobs.running import last_run
from airflow_flinkstyle.jobs.status import Closed, Run, Running, Starting, describe_status
from airflow_flinkstyle.protocol.records import AsRecorded, Claim, Current, Heartbeat
from airflow_flinkstyle.protocol.sink_records import left_by
from airflow_flinkstyle.savepoint.capture.copier import ignore
from airflow_flinkstyle.savepoint.capture.patience import STORE_PATIENCE_S
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.ids import new_savepoint_id
from airflow_flinkstyle.savepoint.repository.summary import newest_savepoint, newest_summary
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.types import Generation, Incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.summary import Summary
    from airflow_flinkstyle.types import BatchId

CALLER = Incarnation(0)
"""Written to ``current.json`` and the heartbeat while a caller, not a driver, holds the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLock:
    """A generation that a caller holds while no driver runs; until it is unlocked, none may take over."""

    generation: Generation
    last: Run
    """The run whose checkpoint it represents."""
    last_words: Heartbeat


def take_stopped(
    runs: JobView, key: str, *, progress: Callable[[CaptureProgress], None] = ignore
) -> Manifest:
    """Take a savepoint of a job that does not run; a retry with the same key finds it again.

    An attempt that was frozen until its intent was given up can publish nothing under its id any more; the
    next one takes another.

    Raises:
        JobRunningError: If a driver runs or starts: ask it instead.
        JobNotRunningError: If there is nothing to take: the job never committed a batch.
        CheckpointMismatchError: If this machine sees another checkpoint than the last run recorded.
    """
    savepoint_id = _usable_id(runs, key)
    existing = runs.repository.find(savepoint_id)
    status = runs.settled_status(unless=lambda run: _is_own(run, key)) if existing is None else None
    if isinstance(status, (Running, Starting)) and not _is_own(status.run, key):
        raise JobRunningError(
            f"Job {runs.board.job} was expected not to run, found that {describe_status(status)}.",
            state_after="Nothing was taken.",
            remedy="Ask its driver for the savepoint (TakeSavepointOperator).",
        )
    lock = lock_offline(runs, key)
    if existing is None:
        existing = _take(runs, lock, savepoint_id, progress)
    unlock(
        runs,
        lock,
        {query.name: query.batch_id for query in existing.queries},
        under_way={query.name for query in existing.queries if query.planned_offsets is not None},
    )
    return existing


def savepoint_at_rest(runs: JobView) -> Summary | None:
    """Return the newest savepoint if it holds what the job has stopped at; None if it runs or none does."""
    status, newest = runs.status(), newest_summary(runs.repository)
    if not isinstance(status, Closed) or newest is None:
        return None
    prefix, claim_key = lock_key(""), status.run.claim.claim_key
    by_caller = None
    if claim_key.startswith(prefix):
        by_caller = new_savepoint_id(runs.board.job, claim_key.removeprefix(prefix))
    return newest if newest.savepoint_id in (status.heartbeat.savepoint_id, by_caller) else None


def close(runs: JobView, key: str, seen: last_run.Seen) -> Heartbeat:
    """Close a run whose driver died, so that the next one may adopt its checkpoint as it is.

    A driver adopts no checkpoint of a run that did not close. A retry with the same key finds what was said.

    Args:
        runs: The job.
        key: Who asks, without the try number.
        seen: The run's checkpoint, in which not every query has committed a batch.

    Returns:
        What was said in the driver's place.

    Raises:
        JobRunningError: If its driver still writes.
        CheckpointMismatchError: If this machine sees another checkpoint than the run recorded.
    """
    lock = lock_offline(runs, key, needed=[name for name, batch in seen.committed.items() if batch >= 0])
    names = [name for name in lock.last_words.queries if last_run.has_begun(runs, lock.last, name)]
    newest = {name: last_run.newest_batches(runs, lock.last, name) for name in names}
    unlock(
        runs,
        lock,
        {name: done for name, (done, _) in newest.items() if done is not None},
        under_way={name for name, (done, planned) in newest.items() if done != planned},
    )
    closed = runs.board.heartbeat(lock.generation)
    if closed is None:
        raise AssertionError(f"generation {lock.generation} has just closed")
    return closed.value


def lock_offline(
    runs: JobView, key: str, *, driver_has_ended: bool = False, needed: Collection[str] | None = None
) -> OfflineLock:
    """Hold the job against every driver, once the last one has ended; a retry continues where it was.

    Args:
        runs: The job.
        key: Who asks, without the try number.
        driver_has_ended: The caller killed the driver and saw it gone, so that no lease need pass.
        needed: The queries whose checkpoints must be there; None: all. One that is new in the last run may
            have none yet.
    """
    own = next((run for run in map(runs.run, runs.board.generations()) if _is_own(run, key)), None)
    if own is None:
        own = _claim(runs, key)
    lock = _lock(runs, own)
    seen = runs.board.current()
    if not own.is_over and (seen is None or seen.value.generation != own.generation):
        _require_recorded(runs, lock, needed)
        if not driver_has_ended:
            await_end(runs, lock.last)
        recorded = AsRecorded(claim=own.claim, order=None, process=None, submit=None, submit_version="")
        held = Current(generation=own.generation, incarnation=CALLER, recorded=recorded)
        runs.board.take_current(held, seen=seen)
    return lock


def unlock(
    runs: JobView, lock: OfflineLock, batches: Mapping[str, BatchId], *, under_way: Collection[str]
) -> None:
    """Say ``closed`` in the driver's place, so that the next start may continue from here.

    Args:
        runs: The job.
        lock: What the caller holds.
        batches: Query name -> last committed batch.
        under_way: The queries of which a batch was planned behind that one.
    """
    queries = {
        name: replace(
            beat,
            batch_id=batches.get(name, beat.batch_id),
            sinks=left_by(beat.sinks, planned=name in under_way),
        )
        for name, beat in lock.last_words.queries.items()
    }
    closed = replace(
        lock.last_words,
        incarnation=CALLER,
        state="closed",
        beat=1,
        written_at_ms=now_ms(),
        queries=queries,
        request_id=None,
        savepoint_id=None,
        error=None,
        transient=False,
    )
    try:
        runs.board.beat(lock.generation, closed, seen=None)
    except ObjectExistsError:
        return  # an earlier attempt of the same call lifted it


def await_end(runs: JobView, run: Run) -> None:
    """Wait until a run has certainly ended: it closed, or was silent for its lease on this clock.

    Raises:
        JobRunningError: If its driver still writes.
    """
    seen = runs.board.heartbeat(run.generation)
    if seen is not None and seen.value.state == "closed":
        return
    wait = runs.waiting(run.claim.lease_s)
    while wait.again():
        now = runs.board.heartbeat(run.generation)
        if now is not None and now.value.state == "closed":
            return
        if (now and now.version) != (seen and seen.version):
            raise JobRunningError(
                f"The driver of generation {run.generation} of job {runs.board.job} was expected to have "
                "ended, found that it still writes heartbeats.",
                state_after="The job keeps running.",
                remedy="Stop it, or ask it for a savepoint while it runs.",
            )


def _usable_id(runs: JobView, key: str) -> str:
    """Return the id that the caller's savepoint has, or can still have."""
    keys = itertools.chain([key], (f"{key} again {attempt}" for attempt in itertools.count(2)))
    ids = (new_savepoint_id(runs.board.job, one) for one in keys)
    return next(savepoint_id for savepoint_id in ids if runs.repository.why_tombstoned(savepoint_id) is None)


def _is_own(run: Run, key: str) -> bool:
    return run.claim.claim_key == lock_key(key)


def lock_key(key: str) -> str:
    """Return the claim key of an offline lock."""
    return f"lock:{key}"


def _claim(runs: JobView, key: str) -> Run:
    current = runs.board.current()
    if current is None:
        raise JobNotRunningError(
            f"Job {runs.board.job} was expected to have run, found that no driver ever took it over.",
            state_after="Nothing was taken.",
            remedy="Check the job's name and the savepoint root, or start the job.",
        )
    last = runs.run(current.value.generation)
    generation = Generation(runs.board.generations()[-1] + 1)
    claim = Claim(
        claim_key=lock_key(key),
        follows=last.generation,
        checkpoint_location=last.claim.checkpoint_location,
        prepare_savepoint_id=None,
        overrides=last.claim.overrides,
        lease_s=last.claim.lease_s,
        launch={},
        claimed_at_ms=now_ms(),
    )
    try:
        runs.board.create_claim(generation, claim)
    except ObjectExistsError as error:
        raise JobRunningError(
            f"Job {runs.board.job} was expected to be left alone, found that another caller has just "
            f"claimed generation {generation}.",
            state_after="Nothing was taken.",
            remedy="Wait until that start or savepoint is done, then try again.",
        ) from error
    return runs.run(generation)


def _lock(runs: JobView, own: Run) -> OfflineLock:
    """Find the last driver's words."""
    last = last_run.last_word(runs, own.claim.follows)
    if last is None or last.heartbeat is None:
        raise JobNotRunningError(
            f"The last run of {runs.board.job} was expected to have recorded its queries, found no word.",
            state_after="Nothing was taken.",
            remedy="Start the job; it has committed nothing yet.",
        )
    return OfflineLock(generation=own.generation, last=last, last_words=last.heartbeat)


def _require_recorded(runs: JobView, lock: OfflineLock, needed: Collection[str] | None) -> None:
    """Require that this machine sees the checkpoints that the last run wrote, before anything is held."""
    for name in lock.last_words.queries:
        if name in needed if needed is not None else last_run.has_begun(runs, lock.last, name):
            last_run.require_committed(runs, lock.last, name)
    if needed is None and lock.last_words.state != "closed":
        last_run.require_all_named(runs, lock.last)


def _take(
    runs: JobView, lock: OfflineLock, savepoint_id: str, progress: Callable[[CaptureProgress], None]
) -> Manifest:
    queries = [
        QuerySource.at_rest(name, last_run.read_checkpoint(runs, lock.last, name), beat)
        for name, beat in sorted(lock.last_words.queries.items())
        if last_run.has_begun(runs, lock.last, name)
    ]
    label = SavepointLabel(
        savepoint_id=savepoint_id,
        taken_at_ms=now_ms(),
        spark_version=lock.last_words.spark_version,
        taken_from_generation=lock.last.generation,
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
