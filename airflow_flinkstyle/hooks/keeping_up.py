"""What a watcher's task does for a job: start its driver again, settle what was left, tell what is wrong."""

from __future__ import annotations

import logging
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.store_threads import StoreThreads
from airflow_flinkstyle.jobs.status import OF_THIS_PROCESS, describe_status, stays_down

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.status import JobStatus
    from airflow_flinkstyle.savepoint.repository.summary import Summary

MOST_AT_ONCE: Final = 8
"""So many jobs are looked after at a time: each may start a process that submits a driver."""
PATIENCE_S: Final = 300.0
"""How long others wait for a job that hangs: the watch goes on without it, and looks at it again."""
log = logging.getLogger(__name__)


def keep_up(hook: StreamingJobHook, job: str, max_age_s: float | None) -> tuple[JobStatus, Summary | None]:
    """Start a job's driver again if it died, and look at its newest savepoint.

    Args:
        hook: What opens connections.
        job: Which.
        max_age_s: How old the newest savepoint may be; None for any age.

    Returns:
        What the job does, and its newest savepoint; None, too, for a job that is meant to be down.

    Raises:
        DriverFailedError: If its driver said why it failed.
        OldJobRunsError: If the checkpoint that it was adopted from has moved on.
        SavepointStaleError: If the newest savepoint is too old.
    """
    from airflow_flinkstyle.hooks.migration import settle_abandoned
    from airflow_flinkstyle.jobs.errors import SavepointStaleError
    from airflow_flinkstyle.jobs.start.home import require_old_job_ended
    from airflow_flinkstyle.jobs.stopped.last_run import failed_before

    client = hook.client(job)
    settle_abandoned(hook, job)
    found = client.view.status()
    if (failed := failed_before(client.view, found)) is not None:
        raise client.drivers.driver_failed(failed)
    if stays_down(found):
        require_old_job_ended(client.view, f"This one does not run: {describe_status(found)}.")
        return found, None
    status = hook.look_after(job)
    require_old_job_ended(client.view, f"This one runs too: {describe_status(status)}.")
    newest = hook.newest_savepoint(job)
    if max_age_s is not None and (newest is None or not newest.is_at_most(max_age_s)):
        raise SavepointStaleError.of(job, max_age_s, newest.savepoint_id if newest else None)
    log.info("Job %s: %s", job, describe_status(status))
    return status, newest


def keep_all_up(
    hook: StreamingJobHook, ages: Mapping[str, float | None], seen: Mapping[str, Mapping[str, Any]]
) -> dict[str, FlinkstyleError]:
    """Do so for several jobs, some at a time; none waits for what is wrong with another one.

    Args:
        hook: What opens connections.
        ages: Job -> how old its newest savepoint may be.
        seen: Job -> what was seen of its driver elsewhere (``Sightings.told``).

    Returns:
        Job -> the error of each that is not well and will not be by itself.
    """
    for told in seen.values():
        OF_THIS_PROCESS.believe(told)
    threads = StoreThreads("flinkstyle watch", MOST_AT_ONCE)
    begun = {job: threads.submit(partial(keep_up, hook, job, max_age_s)) for job, max_age_s in ages.items()}
    wait(begun.values(), timeout=PATIENCE_S)
    found: dict[str, FlinkstyleError] = {}
    for job, future in begun.items():
        if not future.done():
            log.warning("Job %s is left to the next look: nothing came of it in %g s", job, PATIENCE_S)
            continue
        error = future.exception()
        if isinstance(error, FlinkstyleError) and error.retryable:
            log.warning("Job %s is looked at again: %s", job, error)
        elif isinstance(error, FlinkstyleError):
            found[job] = error
        elif error is not None:
            raise error
    return found
