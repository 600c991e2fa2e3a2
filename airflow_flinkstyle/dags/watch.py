"""Keep every job up that is defined, and fail where one is not as it should be.

A driver that died is started again, from its own checkpoint. A migration or an upgrade that nobody works on
any more is finished or undone, and producers that it held are released. A task fails if its job's driver
failed, or if the newest savepoint is older than `fresh` of the job's definition. A job that was stopped is
left alone: its task is skipped.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.dags.defined import dag_of_jobs
from airflow_flinkstyle.operators.watch import WatchStreamingJobOperator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import DAG

    from airflow_flinkstyle.jobs.definition import SparkStreamingJob


def watch_dag(
    jobs: Iterable[SparkStreamingJob] | None = None,
    *,
    dag_id: str = "watch_jobs",
    schedule: timedelta = timedelta(minutes=5),
    **arguments: Any,
) -> DAG:
    """Return a DAG that looks after every job, each in a task of its name.

    Args:
        jobs: Definitions, as ``read_jobs(folder).values()``; None: those that ``[flinkstyle] jobs`` names.
        dag_id: The DAG's name.
        schedule: How often; shorter than the outage you can bear.
        arguments: Further arguments of ``DAG``, for example ``default_args`` with an
            ``on_failure_callback`` that notifies somebody.
    """

    def add(job: SparkStreamingJob) -> None:
        WatchStreamingJobOperator(
            task_id=job.job, job=job.job, flinkstyle_conn_id=job.flinkstyle_conn_id, fresh=job.fresh
        )

    return dag_of_jobs(jobs, add, dag_id=dag_id, schedule=schedule, doc=__doc__, arguments=arguments)
