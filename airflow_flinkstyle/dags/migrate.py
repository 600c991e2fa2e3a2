"""Move a running streaming job to another Kafka cluster, with no record lost and none counted twice.

The DAG checks both clusters (pre-flight), takes a savepoint of the running job, shows where every position
moves, and asks for your approval. Then the window begins: producers are held, positions are proved, the job
moves. Whatever fails, the last task leaves the job and its producers on one cluster. What you approve is
stored, and exactly that is applied.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.dags.migration_fields import migration_answers, migration_fields
from airflow_flinkstyle.operators.approval import ApproveMigrationOperator
from airflow_flinkstyle.operators.migrate import (
    MigrateStreamingJobOperator,
    PlanMigrationOperator,
    PreflightMigrationOperator,
    SettleMigrationOperator,
    VerifyMigrationOperator,
)
from airflow_flinkstyle.operators.savepoint import TakeSavepointOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG, BaseOperator

RETRIES: Final = {"retries": 2, "retry_delay": timedelta(seconds=5)}
SHOWN: Final = ("plan", "pre_flight")
"""Tasks whose tables the approval shows, the verdict first."""


def migration_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that moves a running job to another Kafka cluster.

    Args:
        job: A name or a definition; None: the form asks.
        dag_id: None for ``migrate_kafka_cluster``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    form = Form(migration_fields(), job, given)
    with form.dag(
        "migrate_kafka_cluster", dag_id, __doc__, max_active_runs=1, default_args=dict(RETRIES)
    ) as dag:
        add_migration(
            form,
            {**form.job, "migration": migration_answers(form)},
            question=f"Move job {form.shown('job')} to cluster {form.shown('target_kafka_conn_id')}?",
            shown=SHOWN,
        )
    return dag


def add_migration(
    form: Form, arguments: dict[str, Any], *, question: str, shown: tuple[str, ...]
) -> BaseOperator:
    """Add the tasks from the pre-flight to the last one, in that order; returns the first.

    Args:
        form: The DAG's form.
        arguments: Of every operator of the migration.
        question: What the approval asks.
        shown: Tasks whose tables it shows.
    """
    hot = "{{ ti.xcom_pull(task_ids='hot_savepoint') }}"
    pre_flight = PreflightMigrationOperator(task_id="pre_flight", **arguments)
    hot_savepoint = TakeSavepointOperator(task_id="hot_savepoint", deferrable=True, **form.job)
    plan = PlanMigrationOperator(task_id="plan", savepoint_id=hot, **arguments)
    approve = ApproveMigrationOperator(
        task_id="approve",
        subject=question,
        body="\n\n".join(f"{{{{ ti.xcom_pull(task_ids='{task}', key='markdown') }}}}" for task in shown),
        **form.job,
    )
    migrate = MigrateStreamingJobOperator(task_id="migrate", hot_savepoint_id=hot, **arguments)
    verify = VerifyMigrationOperator(task_id="verify", **arguments)
    settle = SettleMigrationOperator(task_id="settle", **arguments)
    settle.as_teardown(on_failure_fail_dagrun=True)  # it runs also if a person marks the run as success
    pre_flight >> hot_savepoint >> plan >> approve >> migrate >> [verify, settle]
    return pre_flight
