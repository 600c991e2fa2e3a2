"""Move a running streaming job to another Kafka cluster, with no record lost and none counted twice.

The DAG checks both clusters (pre-flight), takes a savepoint of the running job, shows where every position
moves, and asks for your approval. Then the window begins: producers are held, positions are proved, the job
moves. Whatever fails, the last task leaves the job and its producers on one cluster. What you approve is
stored, and exactly that is applied.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_flinkstyle.operators import (
    ApproveMigrationOperator,
    MigrateStreamingJobOperator,
    PlanMigrationOperator,
    PreflightMigrationOperator,
    SettleMigrationOperator,
    TakeSavepointOperator,
    VerifyMigrationOperator,
)
from airflow_flinkstyle.operators.migration_form import migration_answers, migration_params

JOB: dict[str, Any] = {"job": "{{ params.job }}", "flinkstyle_conn_id": "{{ params.flinkstyle_conn_id }}"}
MIGRATION: dict[str, Any] = {**JOB, "migration": migration_answers()}
HOT_SAVEPOINT = "{{ ti.xcom_pull(task_ids='hot_savepoint') }}"

with DAG(
    "migrate_kafka_cluster",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags=["flinkstyle"],
    doc_md=__doc__,
    params=migration_params(),
    render_template_as_native_obj=True,  # an empty field arrives as None, not as "None"
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
) as dag:
    pre_flight = PreflightMigrationOperator(task_id="pre_flight", **MIGRATION)
    hot_savepoint = TakeSavepointOperator(task_id="hot_savepoint", deferrable=True, **JOB)
    plan = PlanMigrationOperator(task_id="plan", savepoint_id=HOT_SAVEPOINT, **MIGRATION)
    approve = ApproveMigrationOperator(
        task_id="approve",
        subject="Move job {{ params.job }} to cluster {{ params.target_kafka_conn_id }}?",
        body="{{ ti.xcom_pull(task_ids='pre_flight', key='markdown') }}\n\n"
        "{{ ti.xcom_pull(task_ids='plan', key='markdown') }}",
    )
    migrate = MigrateStreamingJobOperator(task_id="migrate", hot_savepoint_id=HOT_SAVEPOINT, **MIGRATION)
    verify = VerifyMigrationOperator(task_id="verify", **MIGRATION)
    settle = SettleMigrationOperator(task_id="settle", trigger_rule="all_done", **MIGRATION)

    pre_flight >> hot_savepoint >> plan >> approve >> migrate >> [verify, settle]
