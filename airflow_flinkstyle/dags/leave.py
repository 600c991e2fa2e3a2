"""Give a streaming job back to plain Spark: stop it with a savepoint, write its checkpoints where you choose.

The log of the task has the `spark-submit` that continues it, the command that adopts it again, and what stays
behind. Pause the DAGs that start, watch or rotate the job.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import connection_fields, job_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.adopt import LeaveStreamingJobOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def leave_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that gives a job back to plain Spark.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``leave_job``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    to = Param(
        None,
        type=["null", "object"],
        title="To",
        description='An empty location for each query: {"totals": "s3a://bucket/ck"}. For a missing '
        "query it is the one that the script names.",
    )
    form = Form({**job_fields("Name of the job."), "to": to, **connection_fields()}, job, given)
    with form.dag("leave_job", dag_id, __doc__, max_active_runs=1) as dag:
        LeaveStreamingJobOperator(
            task_id="leave", retries=2, retry_delay=timedelta(seconds=10), **form.job, **form.answers("to")
        )
    return dag
