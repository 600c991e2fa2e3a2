"""The end of a run whose script ends by itself, as with the trigger ``availableNow``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.status import Closed, NeverStarted, Running, Starting, describe_status

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.start.starts import JobStarts
    from airflow_flinkstyle.jobs.status import JobStatus
    from airflow_flinkstyle.jobs.view import JobView


def end_status(runs: JobView, generation: int | None) -> JobStatus:
    """Return the status of a run, or of the one that continues it; ``Closed`` once its script has ended.

    Starts and ends nothing. Generations of callers that saved the job since are skipped.

    Args:
        runs: The job's runs.
        generation: Which run; None for the newest that has held the job.

    Raises:
        JobNotRunningError: If the run was stopped before its end, or the job was never started.
    """
    slot = runs.board.current()
    head = slot.value.head if slot is not None else None
    if head is not None and head >= (generation or head):
        run = runs.run(head)
        if run.has_reported_end and run.has_run_through and run.heartbeat is not None:
            return Closed(run, run.heartbeat)
    status = runs.status()
    is_down = isinstance(status, Closed) and not status.run.has_run_through and not status.run.was_told_to_end
    if is_down or isinstance(status, NeverStarted):
        raise JobNotRunningError(
            f"Job {runs.board.job} was expected to run until its script ends, found that "
            f"{describe_status(status)}{' because it was stopped' if is_down else ''}.",
            state_after="What it had not read is unread.",
            remedy="Start it again: it continues where it was.",
        )
    return status


def look_for_end(starts: JobStarts, generation: int | None) -> Closed | Running | Starting:
    """Return ``end_status``, and start a driver again that died or was told to end.

    Raises:
        DriverFailedError: If it reported why it failed.
        JobNotRunningError: As ``end_status``.
    """
    status = end_status(starts.view, generation)
    if isinstance(status, (Running, Starting)) or (isinstance(status, Closed) and status.run.has_run_through):
        return status
    now = starts.drivers.look_after(follow=starts.follow)
    if isinstance(now, (Running, Starting)):
        return now
    return look_for_end(starts, generation)  # it has ended meanwhile


def end_as_json(status: JobStatus) -> dict[str, Any] | None:
    """Return ``generation`` and ``batches`` of a run whose script has ended by itself; None for any other."""
    if not isinstance(status, Closed) or not status.run.has_run_through:
        return None
    return {"generation": int(status.run.generation), "batches": status.heartbeat.batches()}
