"""Take savepoints of several running jobs at the same Kafka offsets, or of none of them.

The jobs are held for seconds until all are at the furthest offset of any. If one fails or is too slow, all
continue uncut.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import MORE, connection_fields
from airflow_flinkstyle.dags.form import Form
from airflow_flinkstyle.hooks.defined_jobs import defined_jobs
from airflow_flinkstyle.operators.cut import CutJobsOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def cut_dag(*, dag_id: str = "cut_jobs", **given: Any) -> DAG:
    """Return a DAG that takes savepoints of several jobs that belong together.

    Args:
        dag_id: The DAG's name.
        given: Answers by the names of the form's fields (``jobs=["orders", "clicks"]``), or ``Param``s to ask
            otherwise; all others are arguments of ``DAG``, for example ``schedule``.
    """
    form = Form({**_fields(), **connection_fields()}, None, given)
    with form.dag("cut_jobs", dag_id, __doc__, max_active_runs=1) as dag:
        CutJobsOperator(
            task_id="cut",
            retries=2,
            retry_delay=timedelta(seconds=10),
            **form.answers("jobs", "flinkstyle_conn_id", "stop", "hold_s"),
        )
    return dag


def _fields() -> dict[str, Param]:
    return {
        "jobs": Param(
            type="array",
            minItems=1,
            examples=sorted(defined_jobs().jobs),
            title="Jobs",
            description="Names of running jobs under one savepoint root, one per line.",
        ),
        "stop": Param(False, type="boolean", title="Stop the jobs once the cut is complete"),
        "hold_s": Param(
            60,
            type="number",
            minimum=1,
            title="Seconds a job may be held for the others",
            section=MORE,
        ),
    }
