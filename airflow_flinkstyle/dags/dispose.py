"""Dispose of savepoints of a job, and free the files that no other one needs.

If the form names none, task `choose_savepoints` lists the newest ones with their age, size, and why each is
kept. One that is pinned, in use, or the last good one is refused, unless the form allows it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import MORE, connection_fields, job_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.choice import CHOOSE, ChooseSavepointsOperator
from airflow_flinkstyle.operators.retention import DisposeSavepointOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def dispose_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that disposes of savepoints, each in a task of its own.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``dispose_savepoints``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    form = Form({**job_fields("Name of the job."), **_fields(), **connection_fields()}, job, given)
    with form.dag("dispose_savepoints", dag_id, __doc__) as dag:
        chosen = ChooseSavepointsOperator(
            task_id="choose_savepoints",
            subject=f"Which savepoints of job {form.shown('job')} are to be disposed of?",
            savepoint_id=form["savepoint_ids"],
            **form.job,
        )
        DisposeSavepointOperator.partial(
            task_id="dispose",
            map_index_template="{{ task.savepoint_id }}",
            retries=2,
            retry_delay=timedelta(seconds=10),
            **form.job,
            **form.answers("despite"),
        ).expand(savepoint_id=chosen.output)
    return dag


def _fields() -> dict[str, Param]:
    return {
        "savepoint_ids": Param(
            CHOOSE,
            type="string",
            minLength=1,
            title="Savepoints",
            description="Their ids, with commas between them; 'choose' lists them once the DAG runs.",
        ),
        "despite": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "enum": ["pinned", "in_use", "last_good"]},
            examples=["pinned", "in_use", "last_good"],
            title="Dispose although it is",
            description="Protections to override.",
            section=MORE,
        ),
    }
