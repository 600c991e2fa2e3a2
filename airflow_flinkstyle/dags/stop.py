"""Stop a running streaming job between two batches, with a savepoint or without.

No batch is run twice: the job continues from there when it is started again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import MORE, connection_fields, job_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.stop import StopStreamingJobOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def stop_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that stops a running job.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``stop_job``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    form = Form({**job_fields("Name of the running job."), **_fields(), **connection_fields()}, job, given)
    with form.dag("stop_job", dag_id, __doc__, max_active_runs=1) as dag:
        StopStreamingJobOperator(
            task_id="stop",
            retries=2,
            retry_delay=timedelta(seconds=10),
            **form.job,
            **form.answers("savepoint", "drain", "on_failed_savepoint"),
        )
    return dag


def _fields() -> dict[str, Param]:
    return {
        "savepoint": Param(True, type="boolean", title="With a savepoint"),
        "drain": Param(
            False,
            type="boolean",
            title="Read the inputs to their end first",
            description="To where they end at that moment; hold the producers first to read everything.",
        ),
        "on_failed_savepoint": Param(
            "keep_running",
            type="string",
            enum=["keep_running", "close"],
            values_display={
                "keep_running": "Let the job run on, and fail",
                "close": "Stop it without one, in its checkpoint",
            },
            title="If the savepoint fails",
            section=MORE,
        ),
    }
