"""Bring a running streaming job back: to its version before, or to a savepoint.

The first task shows where the job can be brought back to. Without a savepoint the version that ran before
continues where the job is, and no record is lost or counted twice. With a savepoint the version that took it
starts from there, and you choose what becomes of the batches since.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import (
    connection_fields,
    job_fields,
    skip_known_fields,
    table_fields,
    trial_fields,
)
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.choice import CHOOSE, ChooseSavepointOperator
from airflow_flinkstyle.operators.roll_back import RollBackStreamingJobOperator, ShowRollbackTargetsOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def roll_back_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that brings a running job back.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``roll_back``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    fields = {**_fields(), **skip_known_fields(), **table_fields(), **trial_fields(), **connection_fields()}
    form = Form(fields, job, given)
    with form.dag("roll_back", dag_id, __doc__, max_active_runs=1) as dag:
        targets = ShowRollbackTargetsOperator(task_id="rollback_targets", **form.job)
        savepoint = ChooseSavepointOperator(
            task_id="choose_savepoint",
            subject=f"To which savepoint is job {form.shown('job')} to be brought back?",
            savepoint_id=form["savepoint_id"],
            body="{{ ti.xcom_pull(task_ids='rollback_targets') }}",
            **form.job,
        )
        back = RollBackStreamingJobOperator(
            task_id="roll_back",
            retries=2,
            retry_delay=timedelta(seconds=5),
            **form.job,
            savepoint_id="{{ ti.xcom_pull(task_ids='choose_savepoint') }}",
            **form.answers("rewind", "skip_known_batches", "restore_tables", "standby"),
            **form.answers("rehearse_batches", "rehearse_records", "first_commit_timeout_s"),
        )
        targets >> savepoint >> back
    return dag


def _fields() -> dict[str, Param]:
    return {
        **job_fields("Name of the running job."),
        "savepoint_id": Param(
            None,
            type=["null", "string"],
            title="Savepoint",
            examples=[CHOOSE],
            description="Empty: the version before continues where the job is. 'choose' lists them.",
        ),
        "rewind": Param(
            "continue",
            type="string",
            enum=["continue", "fork", "re-emit"],
            values_display={
                "continue": "No savepoint was named",
                "fork": "As a new query (fork)",
                "re-emit": "Use batch ids again (re-emit)",
            },
            title="With a savepoint: batches since",
            description="re-emit is refused for sinks that remember batch ids: they would skip the batches.",
        ),
    }
