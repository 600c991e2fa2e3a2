"""Copy a savepoint of a streaming job out, with everything it needs: to a folder, or to one file.

The copy is complete without the savepoint root; `flinkstyle savepoint import` brings it into another one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import connection_fields, job_fields, savepoint_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.exchange import ExportSavepointOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def export_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that copies a savepoint out.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``export_savepoint``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    fields = {**job_fields("Name of the job."), **savepoint_fields(), **_fields(), **connection_fields()}
    form = Form(fields, job, given)
    with form.dag("export_savepoint", dag_id, __doc__) as dag:
        ExportSavepointOperator(
            task_id="export_savepoint",
            retries=2,
            retry_delay=timedelta(seconds=10),
            **form.job,
            **form.answers("savepoint_id", "to"),
        )
    return dag


def _fields() -> dict[str, Param]:
    return {
        "to": Param(
            type="string",
            minLength=1,
            title="To",
            description="A folder (path or s3://...), or a file that ends in .tar; paths are the worker's.",
        ),
    }
