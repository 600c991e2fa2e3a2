"""Run a range of a job's records once more, into another output: to repair one, or to test with real state.

A new job beside the job starts from a savepoint, runs up to the chosen end, and closes by itself. The job is
not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import MORE, job_fields, place_fields, savepoint_fields, version_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.replay import ReplayStreamingJobOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def replay_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that runs a range of a job's records once more, as a job of its own.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``replay_job``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    asked = {**job_fields("Name of the job; it need not run."), **savepoint_fields(), **_range()}
    places = place_fields("Where the new job runs; empty for where the job ran last.")
    version = version_fields(MORE)
    form = Form({**asked, "args": version["args"], **version, **_more(), **places}, job, given)
    with form.dag("replay_job", dag_id, __doc__) as dag:
        ReplayStreamingJobOperator(
            task_id="replay",
            **form.job,
            **form.answers("savepoint_id", "until", "as_job", "script", "args", "conf"),
            **form.answers("own_outputs", "records", "spark_conn_id"),
        )
    return dag


def _range() -> dict[str, Param]:
    return {
        "until": Param(
            type="string",
            minLength=1,
            title="Until",
            description="A time (2026-11-26T18:00:00Z), offsets as JSON by topic and partition, or a later "
            "savepoint.",
        ),
        "as_job": Param(
            type="string",
            minLength=1,
            title="Name of the replay",
            description="Of the new job; it must have no history.",
        ),
    }


def _more() -> dict[str, Param]:
    return {
        "own_outputs": Param(
            None,
            type=["null", "array"],
            title="Outputs of its own",
            description="Queries that you confirm to write elsewhere than the job's, where that cannot be "
            "checked (foreachBatch). One per line.",
            section=MORE,
        ),
        "records": Param(250_000, type="integer", minimum=1, title="Records of a batch", section=MORE),
    }
