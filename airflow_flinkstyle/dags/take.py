"""Take a savepoint of a streaming job while it runs, or of one that has stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.dags.fields import connection_fields, job_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.savepoint import TakeSavepointOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def take_savepoint_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that takes a savepoint of a job while it runs, or of one that has stopped.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``take_savepoint``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    form = Form({**job_fields("Name of the job."), **connection_fields()}, job, given)
    with form.dag("take_savepoint", dag_id, __doc__) as dag:
        TakeSavepointOperator(
            task_id="take_savepoint",
            deferrable=True,
            retries=2,
            retry_delay=timedelta(seconds=10),
            **form.job,
        )
    return dag
