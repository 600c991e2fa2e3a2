"""Keep every defined job up, and fail if one has a fault.

A driver that died is started again within seconds, from its own checkpoint. An abandoned migration or
upgrade is finished or undone, and producers that it held are released. The task `not_well`
fails, once for each job, if the job's driver failed, or if the newest savepoint is older than `fresh` of the
job's definition: at once, and again every hour while that lasts. A stopped job stays stopped.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, task

from airflow_flinkstyle.dags.defined import (
    dag_of_jobs,
    each,
    every_definition_is_used,
    settings_of,
    with_retries,
)
from airflow_flinkstyle.hooks.defined_jobs import defined_jobs
from airflow_flinkstyle.operators.watch import WatchJobsOperator, WatchStreamingJobOperator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_flinkstyle.jobs.definition import SparkStreamingJob


def watch_dag(
    jobs: Iterable[SparkStreamingJob] | None = None,
    *,
    dag_id: str = "watch_jobs",
    schedule: timedelta | None = None,
    **arguments: Any,
) -> DAG:
    """Return a DAG that looks after all jobs, by one task in the triggerer; the first one of ``watch_dags``.

    Args:
        jobs: Definitions, as ``read_jobs(folder).values()``; None: those that ``[flinkstyle] jobs`` names.
        dag_id: The DAG's name.
        schedule: None: all the time. Else how often, with each job in a task of its name.
        arguments: Further arguments of ``DAG``, for example ``default_args`` with an
            ``on_failure_callback`` that notifies a person.
    """
    if schedule is not None:
        return dag_of_jobs(
            jobs, each(_watch_job), dag_id=dag_id, schedule=schedule, doc=__doc__, arguments=arguments
        )
    return watch_dags(jobs, dag_id=dag_id, **arguments)[0]


def watch_dags(
    jobs: Iterable[SparkStreamingJob] | None = None, *, dag_id: str = "watch_jobs", **arguments: Any
) -> list[DAG]:
    """Return a DAG for each savepoint root, all of which Airflow finds in the file that calls this.

    A fault ends its DAG's run, and the next one watches on: with two roots in one DAG the first would not be
    watched until the other root's task has ended, too.

    Args:
        jobs: As in ``watch_dag``.
        dag_id: The DAG's name; with several roots followed by the connection's.
        arguments: Further arguments of each ``DAG``.
    """
    known = list(jobs if jobs is not None else defined_jobs().jobs.values())
    roots = sorted({job.flinkstyle_conn_id for job in known})
    # Without a job a run would end at once, and the next one begin: an endless loop.
    interval = "@continuous" if known else timedelta(hours=1)
    settings = {**settings_of(__doc__), **with_retries(arguments)}
    dags: list[DAG] = []
    for conn_id in (*roots,) or (None,):
        name = dag_id if len(roots) < 2 else f"{dag_id}_{conn_id}"
        with DAG(name, schedule=interval, **settings) as dag:
            if conn_id is not None:
                of_root = {job.job: job.fresh for job in known if job.flinkstyle_conn_id == conn_id}
                watch = WatchJobsOperator(
                    task_id=f"watch_{conn_id}", jobs=of_root, flinkstyle_conn_id=conn_id
                )
                not_well.override(task_id=f"not_well_{conn_id}").expand(found=watch.output)
            if jobs is None and not dags:
                every_definition_is_used()
        dags.append(dag)
    return dags


def _watch_job(job: SparkStreamingJob) -> None:
    WatchStreamingJobOperator(
        task_id=job.job, job=job.job, flinkstyle_conn_id=job.flinkstyle_conn_id, fresh=job.fresh
    )


@task(map_index_template="{{ found['job'] }}", retries=0)  # nobody watches until it has ended
def not_well(found: dict[str, Any]) -> None:
    """Fail with the error of a job."""
    from airflow_flinkstyle.hooks.failures import raise_failure

    raise_failure(found["failure"])
