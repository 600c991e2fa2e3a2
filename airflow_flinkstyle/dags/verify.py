"""Check that a savepoint is whole, and record it: retention keeps the newest verified one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import connection_fields, job_fields, savepoint_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.retention import VerifySavepointOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def verify_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that checks a savepoint.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``verify_savepoint``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    fields = {**job_fields("Name of the job."), **savepoint_fields(), **_fields(), **connection_fields()}
    form = Form(fields, job, given)
    with form.dag("verify_savepoint", dag_id, __doc__) as dag:
        VerifySavepointOperator(
            task_id="verify_savepoint",
            retries=2,
            retry_delay=timedelta(seconds=10),
            **form.job,
            **form.answers("savepoint_id", "level"),
        )
    return dag


def _fields() -> dict[str, Param]:
    return {
        "level": Param(
            "quick",
            type="string",
            enum=["quick", "full"],
            values_display={
                "quick": "Every file is there, of its size; the logs hold what they should",
                "full": "Every byte",
            },
            title="How closely",
        ),
    }
