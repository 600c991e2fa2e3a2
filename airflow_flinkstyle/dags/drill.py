"""Drill the restore of a savepoint, in a scratch run that writes nothing.

A driver beside the job restores all files, lets Spark run some batches on the copy, and deletes the copy. The
task reports time and size; it fails if the savepoint cannot be restored or run. The job is not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import job_fields, place_fields, savepoint_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.drill import DrillRestoreOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def drill_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that drills the restore of one savepoint, by default the newest one.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``drill_restore``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``, for example ``schedule``.
    """
    asked = {**job_fields("Name of the job; it need not run."), **savepoint_fields()}
    places = place_fields("Where the scratch run runs; empty for where the job ran last.")
    form = Form({**asked, **size_fields(), **places}, job, given)
    with form.dag("drill_restore", dag_id, __doc__) as dag:
        DrillRestoreOperator(
            task_id="drill", **form.job, **form.answers("savepoint_id", "batches", "records", "spark_conn_id")
        )
    return dag


def size_fields() -> dict[str, Param]:
    """Return the fields for the size of a drill."""
    return {
        "batches": Param(2, type="integer", minimum=1, title="Batches to run"),
        "records": Param(10_000, type="integer", minimum=1, title="Records of a batch"),
    }
