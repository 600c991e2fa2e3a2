"""DAGs of all defined jobs: the same tasks for each job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG, task

from airflow_flinkstyle.hooks.defined_jobs import defined_jobs
from airflow_flinkstyle.python_versions import UTC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_flinkstyle.jobs.definition import SparkStreamingJob

RETRIES: Final = {"retries": 2, "retry_delay": timedelta(seconds=10)}
"""A store that is away for a moment alerts nobody."""


def settings_of(doc: str | None) -> dict[str, Any]:
    """Return the arguments that DAGs without a form share, with the text that Airflow shows."""
    return {
        "start_date": datetime(2026, 1, 1, tzinfo=UTC),
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["flinkstyle"],
        "doc_md": doc,
    }


def with_retries(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a DAG's arguments with ``RETRIES``, unless they set others."""
    return {**arguments, "default_args": {**RETRIES, **arguments.get("default_args", {})}}


def dag_of_jobs(
    jobs: Iterable[SparkStreamingJob] | None,
    add_jobs: Callable[[list[SparkStreamingJob]], object],
    *,
    dag_id: str,
    schedule: timedelta,
    doc: str | None,
    arguments: dict[str, Any],
) -> DAG:
    """Return a DAG with the tasks of all jobs.

    Args:
        jobs: Definitions; None: those that ``[flinkstyle] jobs`` names, and one more task, which fails while
            one of them cannot be used.
        add_jobs: Adds their tasks; ``each`` makes it from a function for one job.
        dag_id: The DAG's name.
        schedule: How often.
        doc: Text that Airflow shows.
        arguments: Further arguments of ``DAG``.
    """
    with DAG(dag_id, schedule=schedule, **{**settings_of(doc), **with_retries(arguments)}) as dag:
        add_jobs(list(jobs if jobs is not None else defined_jobs().jobs.values()))
        if jobs is None:
            every_definition_is_used()
    return dag


def each(add_job: Callable[[SparkStreamingJob], object]) -> Callable[[list[SparkStreamingJob]], object]:
    """Return a function that adds the tasks of each job; no job waits for another one."""

    def add(jobs: list[SparkStreamingJob]) -> None:
        for job in jobs:
            add_job(job)

    return add


@task
def every_definition_is_used() -> None:
    """Fail if a definition could not be used, and name it; the jobs of the others have their tasks."""
    from airflow_flinkstyle.hooks.failures import airflow_errors

    with airflow_errors():
        defined_jobs().require_all()


def group_of(job: SparkStreamingJob) -> str:
    """Return the name of a job's group of tasks: the job's, with what Airflow refuses there replaced."""
    return job.job.replace(".", "--")
