"""Adopt a streaming job that plain Spark ran and that has stopped: it continues here at the same batch.

Stop the old job first. Its checkpoint is only read; a small file beside it names the job that adopted it.
Then start the job (`start_job`), from its last state, as always.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import MORE, connection_fields, job_fields, outside_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.adopt import AdoptStreamingJobOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def adopt_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that adopts a job of plain Spark.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``adopt_job``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    fields = {
        **job_fields("Name for the job here."),
        **outside_fields(),
        **_checkpoint_fields(),
        **connection_fields(),
    }
    form = Form(fields, job, given)
    with form.dag("adopt_job", dag_id, __doc__, max_active_runs=1) as dag:
        AdoptStreamingJobOperator(
            task_id="adopt",
            retries=2,
            retry_delay=timedelta(seconds=10),
            **form.job,
            **form.answers("checkpoints", "kafka_conn_ids", "spark_version", "still_s"),
        )
    return dag


def _checkpoint_fields() -> dict[str, Param]:
    return {
        "spark_version": Param(
            None,
            type=["null", "string"],
            title="Spark's version",
            description="Which Spark wrote the checkpoints, if you know.",
            section=MORE,
        ),
        "still_s": Param(
            None,
            type=["null", "string"],
            title="Unchanged for",
            description="How long nothing may have been written: 30s, 5m. Empty: three of its intervals.",
            section=MORE,
        ),
    }
