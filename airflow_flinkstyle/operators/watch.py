"""Keep jobs up, and tell when one is not as it should be: an operator for a schedule, and a DAG of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from airflow_flinkstyle.hooks.airflow_versions import AirflowSkipException
from airflow_flinkstyle.jobs.answers.values import seconds_or_none
from airflow_flinkstyle.operators.base import StreamingJobOperator, airflow_errors
from airflow_flinkstyle.python_versions import UTC

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.jobs.definition import SparkStreamingJob


class WatchStreamingJobOperator(StreamingJobOperator):
    """Look after a job once; run it on a schedule, shorter than the outage you can bear.

    A driver that died without a word is started again, from its own checkpoint. One that said why it failed
    fails the task with that error, and so does a newest savepoint that is too old. The task is skipped for a
    job that was stopped, or never started: nobody wants it up. Returns generation, batches and the newest
    savepoint.

    :param fresh: How old the newest savepoint may be, in seconds or like ``36h``; None for any age.
        (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "fresh")

    def __init__(self, *, fresh: str | float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fresh = fresh

    def execute(self, context: Context) -> dict[str, Any]:
        """Start the driver again if it died, and look at the newest savepoint."""
        from airflow_flinkstyle.jobs.errors import SavepointStaleError
        from airflow_flinkstyle.jobs.status import Closed, NeverStarted, describe_status

        with airflow_errors():
            max_age_s = seconds_or_none("fresh", self.fresh)
            found = self.hook.client(self.job).status()
            if isinstance(found, (Closed, NeverStarted)):
                raise AirflowSkipException(f"Job {self.job} is not watched: {describe_status(found)}.")
            status = self.hook.look_after(self.job)
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


def watch_dag(
    jobs: Iterable[SparkStreamingJob],
    *,
    dag_id: str = "watch_jobs",
    schedule: timedelta = timedelta(minutes=5),
    **arguments: Any,
) -> DAG:
    """Return a DAG that looks after every job, each in a task of its name.

    Args:
        jobs: Definitions, as ``read_jobs(folder).values()``; ``fresh`` of each is watched too.
        dag_id: The DAG's name.
        schedule: How often.
        arguments: Further arguments of ``DAG``, for example ``default_args`` with an
            ``on_failure_callback`` that notifies somebody.
    """
    settings: dict[str, Any] = {
        "start_date": datetime(2026, 1, 1, tzinfo=UTC),
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["flinkstyle"],
        "doc_md": WatchStreamingJobOperator.__doc__,
    }
    with DAG(dag_id, schedule=schedule, **{**settings, **arguments}) as dag:
        for job in jobs:
            WatchStreamingJobOperator(
                task_id=job.job, job=job.job, flinkstyle_conn_id=job.flinkstyle_conn_id, fresh=job.fresh
            )
    return dag
