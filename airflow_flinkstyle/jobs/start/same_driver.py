"""Start the job's own driver again in the checkpoint that it left, so that it closes there.

A checkpoint that Spark can continue from is healthy, even if a caller cannot read it. So before a person is
asked to give a state up, the driver itself tries to continue from it. A closed run is followed by one more
of the same script and settings.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.errors import STEP_TIMEOUT, CheckpointMismatchError, CheckpointUnreadError
from airflow_flinkstyle.jobs.request_slot import request_for, send
from airflow_flinkstyle.jobs.status import Closed, Failed, Running, classify, describe_status
from airflow_flinkstyle.jobs.stopped.last_run import last_run_and_heartbeat, require_all_named, require_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.jobs.status import JobStatus, Run
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.types import Generation

PATIENCE_S: Final = 600.0
"""How long the driver may take to come up and to end its batch."""
NAMED_S = 60.0
"""How long its script may take to start every query that has batches in the checkpoint; they stay there."""
log = logging.getLogger(__name__)


def close_in_place(
    runs: JobView,
    submit: Callable[[Run], None],
    follow: Callable[[Generation], Generation],
    key: str,
    *,
    why: BaseException | None,
) -> str | None:
    """Start the driver of the last run again, and stop it at the next batch boundary.

    Args:
        runs: The job; no driver of it runs.
        submit: Starts one more driver of a run.
        follow: Starts another run behind one that has closed, of the same script in the same checkpoint.
        key: The caller, without the try number.
        why: The error that keeps the caller from continuing there.

    Returns:
        None once the run has closed; else why it could not, as half a sentence.

    Raises:
        JobError: ``STEP_TIMEOUT`` if it failed for a reason that may pass, was killed, or took too long.
    """
    run, heartbeat = last_run_and_heartbeat(runs)
    if run is None or heartbeat is None or not run.claim.launch:
        return "no driver held the job last, so none was started there again"
    closed = heartbeat.state == "closed"
    if not _holds(require_place, runs, run):  # a local path is another one on another machine
        return "its checkpoint is not here, so its driver was not started in it again"
    if closed and not isinstance(why, CheckpointUnreadError):
        return (
            "nothing, for its run has closed and another state is there now, from which a driver would "
            "continue unnoticed"
        )
    try:
        runs.signed_claim(run.generation)
        runs.deployment_of(run.generation, run.claim).require_able()
        log.warning("Generation %d: its own driver is started in its checkpoint again", run.generation)
        generation = run.generation
        if closed:
            generation = follow(generation)
        else:
            submit(run)
    except FlinkstyleError as error:
        if error.retryable:
            raise
        return f"its driver could not be started in it again: {error.problem}"
    return _closed(runs, generation, key)


def _holds(require: Callable[[JobView, Run], object], runs: JobView, run: Run) -> bool:
    """Whether a run's checkpoint meets a requirement, as far as a caller can tell."""
    try:
        require(runs, run)
    except CheckpointMismatchError:
        return False
    except BadInputError:  # only Spark's own client can tell
        return True
    return True


def _closed(runs: JobView, generation: Generation, key: str) -> str | None:
    wait, naming = runs.waiting(PATIENCE_S), runs.waiting(NAMED_S)
    while True:
        status = _status(runs, generation)
        match status:
            case Closed():
                return None
            case Running(run, heartbeat) if not _holds(require_all_named, runs, run) and naming.again():
                continue  # its script has not started them again yet
            case Running(run, heartbeat):
                send(runs.board, request_for(f"{key}/close", "stop", run.generation, heartbeat.incarnation))
            case Failed(run) if run.may_be_retried:
                raise _not_closed_yet(runs, status)
            case Failed():
                return f"its own driver was started in it again: {describe_status(status)}"
            case _:
                # It is coming up, or was killed: that shows nothing of the state, and its supervisor, or a
                # watcher, starts it again.
                pass
        if not wait.again():
            raise _not_closed_yet(runs, status)


def _status(runs: JobView, generation: Generation) -> JobStatus:
    current = runs.board.current()
    is_current = current is not None and current.value.generation == generation
    return classify(runs.run(generation), is_current=is_current)


def _not_closed_yet(runs: JobView, status: JobStatus) -> FlinkstyleError:
    return STEP_TIMEOUT.with_text(
        f"The driver of job {runs.board.job}, started again in its checkpoint, was expected to close there, "
        f"found that {describe_status(status)}.",
        state_after="Nothing else was started; the checkpoint stays the job's.",
        remedy="Start the job again once that has passed. If its driver is killed once more, find out "
        "what kills it: look at memory and host.",
    )
