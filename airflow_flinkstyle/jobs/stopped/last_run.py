"""What the last run of a job left: how it was started, its last heartbeat, and its checkpoint."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import metadata
from airflow_flinkstyle.checkpoint.inventory import list_batches, read_inventory
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.errors import CheckpointMismatchError, CheckpointUnreadError, JobNotRunningError
from airflow_flinkstyle.jobs.found import require_known
from airflow_flinkstyle.jobs.spec import from_launch
from airflow_flinkstyle.jobs.status import Closed, classify
from airflow_flinkstyle.protocol.places import place_id_of
from airflow_flinkstyle.storage.keys import below, is_name
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.status import JobStatus, Run
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import Claim, Heartbeat
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId, Generation

OUT_OF_REACH = (CheckpointMismatchError, BadInputError)
"""Errors of a checkpoint that cannot be continued from here; others may pass, or refuse by themselves."""
_NOT_TAKEN = "Nothing was taken; the checkpoint is as it was."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointProgress:
    """A run's checkpoint, as far as queries have planned a batch in it."""

    committed: Mapping[str, int]
    """Query name -> newest committed batch; -1 where the first one was planned and not committed."""
    unfinished: bool
    """Whether a query was begun that has committed no batch yet: it can be in no savepoint."""

    @property
    def is_empty(self) -> bool:
        """Whether no query has planned a batch."""
        return not self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """A run's checkpoint that does not show what the run recorded, or cannot be read from here."""

    error: FlinkstyleError
    only_by_driver: bool
    """Only Spark's own client can read there: nothing is known to be wrong with it."""


ReadProgress = CheckpointProgress | Unseen


def newest_reported_run(runs: JobView, generation: Generation | None) -> Run | None:
    """Return the newest run up to a generation with a heartbeat of a driver, or of a caller that closed it.

    Skips claims of callers that ended half-way. None if there is no such run.
    """
    while generation is not None:
        run = runs.run(generation)
        if run.heartbeat is not None and (run.claim.launch or run.heartbeat.state == "closed"):
            return run
        generation = run.claim.follows
    return None


def last_run_and_heartbeat(runs: JobView) -> tuple[Run | None, Heartbeat | None]:
    """Return the last run that held the job, and its last heartbeat."""
    current = runs.board.current()
    run = newest_reported_run(runs, current.value.generation) if current is not None else None
    return run, run.heartbeat if run is not None else None


def driver_of(runs: JobView, run: Run) -> Generation:
    """Return the generation whose driver ran last: the run's own, or that whose place a caller took."""
    while not run.claim.launch and run.claim.follows is not None:
        run = runs.run(run.claim.follows)
    return run.generation


def failed_before(runs: JobView, status: JobStatus) -> Run | None:
    """Return the driver's run that failed, if only a caller that saved it has closed since; else None.

    Nobody has stopped such a job.
    """
    if not isinstance(status, Closed) or status.run.claim.launch:
        return None
    run = runs.run(driver_of(runs, status.run))
    return run if run.heartbeat is not None and run.heartbeat.state == "failed" else None


def without_saving(runs: JobView, status: JobStatus) -> JobStatus:
    """Return the status of the driver that failed, if a caller has only saved its job since; else the same.

    What people read says so: the caller's own run has closed, as one that somebody stopped.
    """
    failed = failed_before(runs, status)
    return status if failed is None else classify(failed, is_current=False)


def read_checkpoint(runs: JobView, run: Run, query: str) -> ObjectStore:
    """Open one query's checkpoint of a run."""
    return runs.open_checkpoint(below(run.claim.checkpoint_location, query))


def read_progress(runs: JobView, run: Run, last: Heartbeat) -> ReadProgress:
    """Read the checkpoint that a run left; its last heartbeat shows what must be there."""
    began_nothing = last.state == "closed" and not any(one.query_id for one in last.queries.values())
    try:
        if not began_nothing:
            require_place(runs, run)
        others = () if names_all(run, last) else _unnamed(runs, run)
        newest = {name: _newest(runs, run, name) for name in (*last.queries, *others)}
    except BadInputError as error:  # callers cannot open that place
        return Unseen(error=error, only_by_driver=True)
    except CheckpointMismatchError as error:
        return Unseen(error=error, only_by_driver=False)
    committed = {name: batch for name, batch in newest.items() if batch is not None}
    fresh = [name for name, batch in newest.items() if batch is None or batch < 0]
    return CheckpointProgress(
        committed=committed, unfinished=any(has_begun(runs, run, name) for name in fresh)
    )


def require_place(runs: JobView, run: Run) -> None:
    """Require, by the owner's mark, that this machine sees the place in which the job's last driver ran.

    The same path on another machine's disk may have a mark of the job, and an earlier state.

    Raises:
        CheckpointMismatchError: If it does not.
    """
    current = runs.board.current()
    if current is None or current.value.head != driver_of(runs, run):
        return
    found = place_id_of(runs.open_checkpoint(run.claim.checkpoint_location), runs.board) or ""
    if found != current.value.place_id:
        raise _of_another_place(run, found)


def names_all(run: Run, last: Heartbeat) -> bool:
    """Return whether the last heartbeat names every query that has planned a batch: a closed driver's.

    A caller that closed a dead driver's run knows no more queries than that driver had reported.
    """
    return last.state == "closed" and bool(run.claim.launch)


def _newest(runs: JobView, run: Run, name: str) -> int | None:
    """Return a query's newest committed batch; -1 if only the first was planned, None if none was."""
    checkpoint = read_checkpoint(runs, run, name)
    last = run.heartbeat
    status = last.queries.get(name) if last is not None else None
    with _as_mismatch(checkpoint, status):
        done, planned = list_batches(checkpoint, "commits"), list_batches(checkpoint, "offsets")
        if status is not None and status.query_id:
            query_id = metadata.parse(checkpoint.read("metadata").decode()).query_id
            closed = last is not None and last.state == "closed"
            _require_recorded(checkpoint, status, query_id, max(done, default=-1), closed=closed)
    return max(done, default=-1 if planned else None)


def newest_batches(runs: JobView, run: Run, name: str) -> tuple[BatchId | None, BatchId | None]:
    """Return a query's newest committed batch, and its newest planned one; None if there is none."""
    checkpoint = read_checkpoint(runs, run, name)
    done = max(list_batches(checkpoint, "commits"), default=None)
    return done, max(list_batches(checkpoint, "offsets"), default=None)


def id_of(runs: JobView, run: Run, name: str) -> str:
    """Return Spark's id of a query that has planned a batch, from its checkpoint."""
    return metadata.parse(read_checkpoint(runs, run, name).read("metadata").decode()).query_id


def has_begun(runs: JobView, run: Run, name: str) -> bool:
    """Return whether Spark has begun a query, as the run reported, or as this machine sees.

    A heartbeat names a query before Spark knows it: a driver may have died in between.
    """
    status = run.heartbeat.queries.get(name) if run.heartbeat is not None else None
    return bool(status and status.query_id) or _is_there(runs, run, name)


def _is_there(runs: JobView, run: Run, name: str) -> bool:
    return read_checkpoint(runs, run, name).head("metadata") is not None


def require_committed(runs: JobView, run: Run, name: str) -> None:
    """Require that this machine sees a query's checkpoint as its run recorded it, with a committed batch.

    Raises:
        CheckpointMismatchError: If it does not.
    """
    checkpoint = read_checkpoint(runs, run, name)
    last = run.heartbeat
    if last is None:
        return
    status = last.queries[name]
    with _as_mismatch(checkpoint, status):
        query_id = metadata.parse(checkpoint.read("metadata").decode()).query_id
        batch = read_inventory(checkpoint).committed
    _require_recorded(checkpoint, status, query_id, batch, closed=last.state == "closed")


def require_all_named(runs: JobView, run: Run) -> None:
    """Require that every query that has planned a batch is named in the run's last heartbeat.

    A driver that died may have started a query since its last heartbeat.

    Raises:
        CheckpointMismatchError: If one is not.
    """
    unnamed = sorted(name for name in _unnamed(runs, run) if _newest(runs, run, name) is not None)
    if unnamed:
        raise CheckpointMismatchError(
            f"The driver of generation {run.generation} was expected to have named all its queries before "
            f"it died, found batches of query {', '.join(unnamed)} in {run.claim.checkpoint_location} too.",
            state_after=_NOT_TAKEN,
            remedy="Start that driver again (StreamingJobProgressSensor does), then stop the job.",
        )


def _unnamed(runs: JobView, run: Run) -> Iterator[str]:
    named = {*run.heartbeat.queries, *run.heartbeat.dropped} if run.heartbeat is not None else set()
    folders = runs.open_checkpoint(run.claim.checkpoint_location).folders()
    return (name for name in folders if is_name(name) and name not in named)


def _of_another_place(run: Run, found: str) -> CheckpointMismatchError:
    what = "another place of the job there" if found else "no mark of the job there"
    return CheckpointMismatchError(
        f"Checkpoint {run.claim.checkpoint_location} was expected to show what generation {run.generation} "
        f"did before its driver ended, found {what}, as on a machine where it never ran.",
        state_after=_NOT_TAKEN,
        remedy="A local path means the driver's disk: call from the machine where the driver ran. If it ran "
        "here, it was killed before its first write: start it again (StreamingJobProgressSensor does).",
    )


@contextlib.contextmanager
def _as_mismatch(checkpoint: ObjectStore, status: QueryStatus | None) -> Iterator[None]:
    """Report a checkpoint that cannot be read as a mismatch, unless a later try may read it."""
    try:
        yield
    except FlinkstyleError as error:
        if error.retryable or isinstance(error, CheckpointMismatchError):
            raise
        unread = _mismatch(checkpoint, status, str(error.problem))
        raise CheckpointUnreadError(unread.problem, unread.state_after, unread.remedy) from error


def _require_recorded(
    checkpoint: ObjectStore, status: QueryStatus, query_id: str, batch: int, *, closed: bool
) -> None:
    recorded = -1 if status.batch_id is None else status.batch_id
    # A driver that died before its second heartbeat had reported no id yet.
    if ids_differ(status.query_id, query_id) or batch < recorded or (closed and batch != recorded):
        raise _mismatch(checkpoint, status, f"query {query_id} at batch {batch}")


def _mismatch(checkpoint: ObjectStore, status: QueryStatus | None, found: str) -> CheckpointMismatchError:
    recorded = (
        f"query {status.query_id or ''} at batch {status.batch_id}" if status is not None else "a query"
    )
    return CheckpointMismatchError(
        f"Checkpoint {checkpoint.uri} was expected to hold {recorded}, as its last run recorded, found: "
        f"{found}",
        state_after=_NOT_TAKEN,
        remedy="A local path means the driver's disk: call from the machine where the driver ran.",
    )


def recorded_launch(runs: JobView) -> tuple[JobSpec, SubmitTarget]:
    """Return how the current run was started, by its signed claim, to start it or the next one.

    Raises:
        JobNotRunningError: If the job has never run.
        JobNotRunningError: ``JOB_UNKNOWN`` if nothing below the root has its name.
        SignatureError: If no caller has signed that start.
    """
    driven = _driven_last(runs)
    if driven is not None:
        return runs.launch_of(driven[0])
    require_known(runs.board.store, runs.job)
    raise JobNotRunningError(
        f"Job {runs.job} was expected to have run, found that no driver ever took it over.",
        state_after="Nothing was changed.",
        remedy="Start it first (StartStreamingJobOperator, flinkstyle job start).",
    )


def unverified_launch(runs: JobView) -> tuple[JobSpec, SubmitTarget] | None:
    """Return how the job was started last, only to show it: its signature is not verified."""
    driven = _driven_last(runs)
    return from_launch(driven[1].launch, secret_env={}) if driven is not None else None


def _driven_last(runs: JobView) -> tuple[Generation, Claim] | None:
    """Return the last generation that had a driver, and its claim."""
    current = runs.board.current()
    generation = current.value.generation if current is not None else None
    while generation is not None:
        claim = runs.board.claim(generation)
        if claim is None:
            return None
        if claim.launch:
            return generation, claim
        generation = claim.follows  # a caller held the job, not a driver
    return None
