"""Start a streaming job where it was last; or from its checkpoint, from a savepoint, or fresh.

A job that has never run starts fresh. To start a job fresh that has run, name the history it gives up.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import (
    MORE,
    driver_fields,
    job_fields,
    leave_fields,
    program_fields,
    skip_known_fields,
    table_fields,
)
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.choice import CHOOSE, ChooseSavepointOperator
from airflow_flinkstyle.operators.start import StartStreamingJobOperator
from airflow_flinkstyle.types import StartFrom

if TYPE_CHECKING:
    from airflow.sdk import DAG


def start_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that starts a job, or continues it.

    Args:
        job: A name or a definition, which also knows script, arguments and settings; None: the form asks.
        dag_id: None for ``start_job``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    form = Form(_fields(), job, given)
    with form.dag("start_job", dag_id, __doc__) as dag:
        savepoint = ChooseSavepointOperator(
            task_id="choose_savepoint",
            subject=f"From which savepoint is job {form.shown('job')} to start?",
            savepoint_id=form["savepoint_id"],
            **form.job,
        )
        start = StartStreamingJobOperator(
            task_id="start",
            retries=1,
            retry_delay=timedelta(seconds=5),
            **form.job,
            **form.answers("spark_conn_id", "script", "args", "conf", "env", "start_from", "discard_history"),
            savepoint_id="{{ ti.xcom_pull(task_ids='choose_savepoint') }}",
            **form.answers("rewind", "skip_known_batches", "restore_tables", "leave_checkpoints"),
        )
        savepoint >> start
    return dag


def _fields() -> dict[str, Param]:
    return {**job_fields("A name, unique under the savepoint root."), **_program(), **_beginning()}


def _program() -> dict[str, Param]:
    return {
        **program_fields(),
        "start_from": Param(
            "last_state",
            enum=list(get_args(StartFrom)),
            values_display={
                "last_state": "Where the job was last",
                "checkpoint": "The last run's checkpoint, nothing else",
                "savepoint": "A savepoint",
                "fresh": "An empty checkpoint",
            },
            title="Start from",
        ),
    }


def _beginning() -> dict[str, Param]:
    return {
        "savepoint_id": Param(
            None,
            type=["null", "string"],
            examples=["latest", CHOOSE],
            title="Savepoint",
            description="If it starts from one: its id; 'latest' is the newest, 'choose' lists them.",
            section=MORE,
        ),
        "rewind": Param(
            "continue",
            type="string",
            enum=["continue", "fork", "re-emit"],
            values_display={
                "continue": "Refuse (continue)",
                "fork": "As a new query (fork)",
                "re-emit": "Use batch ids again (re-emit)",
            },
            title="If the job has run past the savepoint",
            description="re-emit is refused for sinks that remember batch ids: they would skip the batches.",
            section=MORE,
        ),
        **skip_known_fields(),
        **table_fields(),
        "discard_history": Param(
            None,
            type=["null", "string"],
            examples=["generation 3"],
            title="History given up",
            description="To start a job fresh that has run: its last run, as the refusal names it.",
            section=MORE,
        ),
        **leave_fields(),
        **driver_fields(),
    }
