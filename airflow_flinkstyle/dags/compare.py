"""Compare what two versions of a job compute on the same records, before one replaces the other.

Each version runs on a scratch copy of one savepoint, in a driver of its own beside the job; rows and state
are compared. Nothing of the job is changed. The task fails if they differ, unless that is expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import (
    MORE,
    compare_fields,
    job_fields,
    place_fields,
    savepoint_fields,
    version_fields,
)
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.compare import CompareVersionsOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def compare_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that compares the version that a job runs with a new one, and changes nothing.

    Args:
        job: A name; or a definition, whose script, arguments and settings are the new version (settings
            that it does not name stay); None: the form asks.
        dag_id: None for ``compare_versions``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    asked = {**job_fields("Name of the job; it need not run."), **version_fields(), **savepoint_fields()}
    places = place_fields("Where the new version runs; empty for where the job ran last.")
    form = Form({**asked, **_size(), **compare_fields(MORE), **places}, job, given)
    with form.dag("compare_versions", dag_id, __doc__) as dag:
        CompareVersionsOperator(
            task_id="compare",
            **form.job,
            **form.answers("script", "args", "conf", "savepoint_id", "batches", "records"),
            **form.answers("keys", "ignore", "tolerance", "state", "allow_writes", "expect"),
            **form.answers("spark_conn_id"),
        )
    return dag


def _size() -> dict[str, Param]:
    return {
        "batches": Param(
            4, type="integer", minimum=1, maximum=1000, title="Batches to compare", section=MORE
        ),
        "records": Param(250_000, type="integer", minimum=1, title="Records of a batch", section=MORE),
    }
