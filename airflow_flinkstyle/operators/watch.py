"""Keep a job up, and tell when it is not as it should be: an operator for a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.airflow_versions import AirflowSkipException
from airflow_flinkstyle.jobs.answers.values import seconds_or_none
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class WatchStreamingJobOperator(StreamingJobOperator):
    """Look after a job once; run it on a schedule, shorter than the outage you can bear.

    A driver that died without a word, or was told to end by its cluster or a person (SIGTERM), is started
    again, from its own checkpoint. One that said why it failed fails the task with that error, also once a
    rotation has saved what it left; so does a newest savepoint that is too old, and the old checkpoint of an
    adopted job that has moved on. The task is skipped for a job
    that was stopped, or never started: it is meant to be down.
    Returns generation, batches and the newest savepoint.

    :param fresh: How old the newest savepoint may be, in seconds or like ``36h``; None for any age.
        (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "fresh")

    def __init__(self, *, fresh: str | float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fresh = fresh

    def execute(self, context: Context) -> dict[str, Any]:
        """Start the driver again if it died, and look at the newest savepoint."""
        from airflow_flinkstyle.hooks.migration import settle_abandoned
        from airflow_flinkstyle.jobs.errors import SavepointStaleError
        from airflow_flinkstyle.jobs.start.home import require_old_job_ended
        from airflow_flinkstyle.jobs.status import describe_status, stays_down
        from airflow_flinkstyle.jobs.stopped.last_run import failed_before

        with airflow_errors():
            max_age_s = seconds_or_none("fresh", self.fresh)
            client = self.hook.client(self.job)
            settle_abandoned(self.hook, self.job)
            found = client.view.status()
            if (failed := failed_before(client.view, found)) is not None:
                raise client.drivers.driver_failed(failed)
            if stays_down(found):
                require_old_job_ended(client.view, f"This one does not run: {describe_status(found)}.")
                raise AirflowSkipException(f"Job {self.job} is not watched: {describe_status(found)}.")
            status = self.hook.look_after(self.job)
            require_old_job_ended(client.view, f"This one runs too: {describe_status(status)}.")
            newest = self.hook.newest_savepoint(self.job)
            if max_age_s is not None and self.hook.fresh_savepoint(self.job, max_age_s) is None:
                raise SavepointStaleError.of(self.job, max_age_s, newest.savepoint_id if newest else None)
        self.log.info("Job %s: %s", self.job, describe_status(status))
        heartbeat = status.run.heartbeat
        return {
            "generation": status.run.generation,
            "batches": dict(heartbeat.batches()) if heartbeat is not None else {},
            "savepoint_id": newest.savepoint_id if newest is not None else None,
        }
