"""Move a job back to the Kafka cluster that an earlier migration took it from.

It is that migration in the other direction, with its clusters swapped. All records on the cluster that the
job reads now must be on the other cluster too:

1. Stop the mirror of the first migration.
2. Trigger this DAG. Task `begin` writes down where a mirror back must begin, and fails while some records
   are only on the cluster that the job reads now.
3. Start the mirror back, and clear `begin`. All later tasks are those of `migrate_kafka_cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param

from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.dags.migrate import RETRIES, SHOWN, add_migration
from airflow_flinkstyle.dags.migration_fields import MIRROR, migration_answers, migration_fields
from airflow_flinkstyle.operators.fail_back import BeginFailBackOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

_NOT_ASKED: Final = (
    *("way", "start", "topology", "sources", "rename", "script_servers"),  # its positions are proved
    *("sole_writer", "keeps_offsets", "ignored_headers"),
)


def fail_back_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that moves a job back to the cluster that an earlier migration took it from.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``fail_back``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    form = Form({**migration_fields(without=_NOT_ASKED, of_job=_fields()), **_mirror_back()}, job, given)
    with form.dag("fail_back", dag_id, __doc__, max_active_runs=1, default_args=dict(RETRIES)) as dag:
        begin = BeginFailBackOperator(
            task_id="begin",
            migration=migration_answers(form),
            **form.answers("migration_id", "topics", "mirror_timeout_s"),
            **form.job,
        )
        arguments = {**form.job, "migration": "{{ ti.xcom_pull(task_ids='begin')['migration'] }}"}
        question = f"Move job {form.shown('job')} back to the cluster that it came from?"
        begin >> add_migration(form, arguments, question=question, shown=(*SHOWN, "begin"))
    return dag


def _fields() -> dict[str, Param]:
    return {
        "topics": Param(
            "original",
            enum=["original", "as_mirrored"],
            values_display={
                "original": "The topics it read before; the mirror back adds the new records to them",
                "as_mirrored": "Copies of the whole topics it reads now, made by the mirror back",
            },
            title="Topics to read",
        ),
    }


def _mirror_back() -> dict[str, Param]:
    return {
        "migration_id": Param(
            None,
            type=["null", "string"],
            title="Migration to reverse",
            description="Empty for the newest finished one.",
            section=MIRROR,
        ),
        "mirror_timeout_s": Param(
            90,
            type="number",
            minimum=0,
            title="Seconds for the mirror back to copy the records written so far",
            section=MIRROR,
        ),
    }
