"""Take a savepoint of a job, whatever the job is doing: ask its driver, or take it oneself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.requests import CutMode
from airflow_flinkstyle.jobs.running.client import ignore
from airflow_flinkstyle.jobs.running.stopped import take_stopped
from airflow_flinkstyle.jobs.status import (
    Closed,
    Dead,
    Failed,
    NeverStarted,
    Starting,
    describe_status,
    stays_down,
)
from airflow_flinkstyle.savepoint.capture import copier

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.jobs.requests import PendingRequest
    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.protocol.records import Progress
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Alignment


def begin_savepoint(
    client: JobClient,
    key: str,
    *,
    timeout_s: float,
    alignment: Alignment = "none",
    progress: Callable[[CaptureProgress], None] = copier.ignore,
) -> PendingRequest | Manifest:
    """Ask the driver for a savepoint, or take one at once if the job has ended.

    A driver that died without a word, was told to end, is still coming up, or is to be started again after a
    fault that may pass, is brought up and waited for first: whoever saves in its place closes the job, which
    nobody would start again then.

    Args:
        client: The job.
        key: Who asks, without the try number: a retry finds its savepoint again.
        timeout_s: How long a driver may take to come up, and then to take the savepoint.
        alignment: Of the queries; aligned only while the job runs.
        progress: Told after each file of a savepoint that is taken at once.

    Raises:
        JobNotRunningError: If an aligned savepoint of a job that has ended is asked for.
        DriverFailedError: If a driver that was started again has failed again.
    """
    mode, status = CutMode(alignment=alignment, timeout_s=timeout_s), client.settled_status()
    gave_up = isinstance(status, Failed) and not client.is_to_be_retried(status.run)
    has_ended = gave_up or (isinstance(status, Closed) and stays_down(status))
    if has_ended and alignment == "aligned":
        raise JobNotRunningError(
            f"Job {client.board.job} was expected to run, so that its queries can be aligned, found that "
            f"{describe_status(status)}.",
            state_after="No savepoint was taken.",
            remedy="Start the job, or take the savepoint with alignment='none'.",
        )
    if has_ended:
        return take_stopped(client, key, progress=progress)
    if isinstance(status, (Dead, Starting, Failed, Closed)):
        status = client.look_after(status)
        if not isinstance(status, NeverStarted):
            client.wait_running(status.run.generation, timeout_s=timeout_s)
    return client.request_savepoint(key, mode=mode)


def finish_savepoint(
    client: JobClient,
    pending: PendingRequest,
    *,
    timeout_s: float,
    watch: Callable[[PendingRequest, Progress | None], None] = ignore,
) -> Manifest:
    """Wait for a savepoint asked for, and return it; one that died with its driver is asked for anew."""
    pending, end = client.wait(pending, timeout_s=timeout_s, watch=watch)
    if end.outcome != "done" or end.savepoint_id is None:
        raise client.request_failed(pending, end)
    return client.repository.read(end.savepoint_id)
