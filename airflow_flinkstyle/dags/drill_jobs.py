"""Drill the restore of every job that is defined: its newest savepoint, in a scratch run that writes nothing.

Each task does for one job what `drill_restore` does, and fails if the savepoint cannot be restored or run.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.dags.defined import dag_of_jobs, each
from airflow_flinkstyle.dags.drill import size_fields
from airflow_flinkstyle.operators.drill import DrillRestoreOperator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import DAG

    from airflow_flinkstyle.jobs.definition import SparkStreamingJob

ONE_AT_A_TIME: Final = 1
"""A drill needs the resources of a driver."""


def drill_jobs_dag(
    jobs: Iterable[SparkStreamingJob] | None = None,
    *,
    dag_id: str = "drill_jobs",
    schedule: timedelta = timedelta(days=7),
    **arguments: Any,
) -> DAG:
    """Return a DAG that drills the restore of every job, one after another, each in a task of its name.

    Args:
        jobs: Definitions, as ``read_jobs(folder).values()``; None: those that ``[flinkstyle] jobs`` names.
        dag_id: The DAG's name.
        schedule: How often.
        arguments: Further arguments of ``DAG``; ``max_active_tasks`` limits how many drills run at once.
    """
    settings = {"params": size_fields(), "max_active_tasks": ONE_AT_A_TIME, **arguments}
    return dag_of_jobs(jobs, each(_drill), dag_id=dag_id, schedule=schedule, doc=__doc__, arguments=settings)


def _drill(job: SparkStreamingJob) -> None:
    names = ("script", "args", "conf", "env", "spark_conn_id")  # while plain Spark runs it, none is recorded
    program = {name: value for name, value in job.operator_arguments().items() if name in names}
    DrillRestoreOperator(
        task_id=job.job,
        job=job.job,
        flinkstyle_conn_id=job.flinkstyle_conn_id,
        **(program if job.checkpoints else {}),
        batches="{{ params['batches'] }}",
        records="{{ params['records'] }}",
        deferrable=False,  # Airflow counts no deferred task as active, so all drills would run at once
    )
