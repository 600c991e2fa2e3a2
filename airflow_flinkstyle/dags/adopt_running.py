"""Adopt a streaming job while plain Spark runs it, with seconds of downtime.

A driver comes up beside the old one, restores a copy of its state, and rehearses on it. Then the old driver
is ended: by its process id, by a command, or by you: the DAG waits until you say that it has ended. Its
checkpoint must no longer change; the rest is captured, and the waiting driver takes over.

Before you begin, suspend what would start the old job again. Until its driver is asked to end, every error
leaves it as it is. After that nothing is undone by itself: clear `finish` to continue, or clear `end_old` and
give up there, and start the old job as before.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import MORE, driver_fields, job_fields, outside_fields, program_fields
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.adopt_running import (
    AskToEndOldJobOperator,
    FinishAdoptionOperator,
    PrepareAdoptionOperator,
)

if TYPE_CHECKING:
    from airflow.sdk import DAG


def adopt_running_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that adopts a job while plain Spark runs it.

    Args:
        job: A name; or a definition, which also knows script, arguments and settings of the driver that is
            to run it here; None: the form asks.
        dag_id: None for ``adopt_running_job``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    program = program_fields(MORE)
    fields = {
        **job_fields("Name for the job here."),
        **outside_fields(),
        "script": program["script"],
        **_ending(),
        **program,
        **driver_fields(),
    }
    form = Form(fields, job, given)
    with form.dag("adopt_running_job", dag_id, __doc__, max_active_runs=1) as dag:
        old_driver_end = form.answers("end_pid", "end_command")
        arguments = {
            **form.job,
            **form.answers("checkpoints", "kafka_conn_ids", "script", "args", "conf", "env", "spark_conn_id"),
            **old_driver_end,
            **form.answers("gone_command", "rehearse_batches"),
            "retries": 2,
            "retry_delay": timedelta(seconds=10),
        }
        prepare = PrepareAdoptionOperator(task_id="prepare", **arguments)
        end_old = AskToEndOldJobOperator(
            task_id="end_old",
            subject=f"End the old driver of job {form.shown('job')} now. Has it ended?",
            body="A driver waits with a copy of the state. Suspend what would start the old one again, end "
            "it, then answer: the job is down meanwhile. What the waiting driver has tried:\n\n"
            "{{ ti.xcom_pull(task_ids='prepare', key='markdown') or 'Nothing.' }}",
            **form.job,
            **old_driver_end,
        )
        finish = FinishAdoptionOperator(task_id="finish", trigger_rule="all_done", **arguments)
        prepare >> end_old >> finish
    return dag


def _ending() -> dict[str, Param]:
    return {
        "end_command": Param(
            None,
            type=["null", "string"],
            title="Command that ends the old driver",
            description="On the worker, no shell: yarn application -kill ID. It must also succeed the "
            "second time. Without this and a process id you are asked to end it.",
        ),
        "gone_command": Param(
            None,
            type=["null", "string"],
            title="Command that checks the end",
            description="Succeeds once the old driver has ended; run until it does.",
            section=MORE,
        ),
        "end_pid": Param(
            None,
            type=["null", "integer"],
            minimum=2,
            title="Process id of the old driver",
            description="Its spark-submit, if that runs on the worker's machine.",
            section=MORE,
        ),
        "rehearse_batches": Param(
            1,
            type="integer",
            minimum=0,
            title="Batches to rehearse",
            description="On a copy of the state, before the old driver ends, writing nothing. 0: none.",
            section=MORE,
        ),
    }
