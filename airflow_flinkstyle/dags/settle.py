"""Finish or undo an abandoned migration or upgrade of a job.

Its DAG run may have been deleted, timed out, or paused in its window. If the next driver has the job, it is
finished; else the job goes back to where it ran. Producers are released to the same side.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import connection_fields, job_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.settle import SettleStreamingJobOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def settle_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that settles unfinished migrations and upgrades of a job.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``settle_job``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    form = Form({**job_fields("Name of the job."), **_fields(), **connection_fields()}, job, given)
    with form.dag("settle_job", dag_id, __doc__, max_active_runs=1) as dag:
        SettleStreamingJobOperator(
            task_id="settle",
            retries=2,
            retry_delay=timedelta(seconds=10),
            **form.job,
            **form.answers("now"),
        )
    return dag


def _fields() -> dict[str, Param]:
    return {
        "now": Param(
            False,
            type="boolean",
            title="At once",
            description="Do not wait two minutes to see whether a task works on it: replace that task.",
        ),
    }
