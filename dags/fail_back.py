"""Move a job back to the Kafka cluster that an earlier migration took it from.

It is that migration in the other direction, with its clusters swapped. All records on the cluster that the
job reads now must be on the other cluster too:

1. Stop the mirror of the first migration.
2. Trigger this DAG. Task `begin` writes down where a mirror back must begin, and fails while some records
   are only on the cluster that the job reads now.
3. Start the mirror back, and clear `begin`. All later tasks are those of `migrate_kafka_cluster`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import (
    ApproveMigrationOperator,
    BeginFailBackOperator,
    MigrateStreamingJobOperator,
    PlanMigrationOperator,
    PreflightMigrationOperator,
    SettleMigrationOperator,
    TakeSavepointOperator,
    VerifyMigrationOperator,
)
from airflow_flinkstyle.operators.migration_form import migration_answers, migration_params

JOB: dict[str, Any] = {"job": "{{ params.job }}", "flinkstyle_conn_id": "{{ params.flinkstyle_conn_id }}"}
NOT_ASKED = (
    *("way", "start", "topology", "sources", "rename", "script_servers"),  # its positions are proved
    *("sole_writer", "keeps_offsets", "ignored_headers"),
)
ANSWERS = migration_answers(without=NOT_ASKED)
RENAME = "{{ ti.xcom_pull(task_ids='begin')['rename'] }}"
MIGRATION: dict[str, Any] = {**JOB, "migration": {**ANSWERS, "rename": RENAME, "back": True}}
HOT_SAVEPOINT = "{{ ti.xcom_pull(task_ids='hot_savepoint') }}"
PARAMS = {
    **migration_params(without=NOT_ASKED, needed=("source_alias", "target_alias")),
    "migration_id": Param(
        None,
        type=["null", "string"],
        title="Migration to reverse",
        description="Empty for the newest finished one.",
        section="Job",
    ),
    "topics": Param(
        "original",
        enum=["original", "as_mirrored"],
        values_display={
            "original": "The topics it read before; the mirror back adds the new records to them",
            "as_mirrored": "Copies of the whole topics it reads now, made by the mirror back",
        },
        title="Topics to read",
        section="MirrorMaker 2",
    ),
    "mirror_timeout_s": Param(
        90,
        type="number",
        minimum=0,
        title="Seconds for the mirror back to copy the records written so far",
        section="MirrorMaker 2",
    ),
}

with DAG(
    "fail_back",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags=["flinkstyle"],
    doc_md=__doc__,
    params=PARAMS,
    render_template_as_native_obj=True,  # an empty field arrives as None, not as "None"
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
) as dag:
    begin = BeginFailBackOperator(
        task_id="begin",
        migration_id="{{ params.migration_id }}",
        topics="{{ params.topics }}",  # type: ignore[arg-type]
        mirror_timeout_s="{{ params.mirror_timeout_s }}",  # type: ignore[arg-type]
        migration=ANSWERS,
        **JOB,
    )
    pre_flight = PreflightMigrationOperator(task_id="pre_flight", **MIGRATION)
    hot_savepoint = TakeSavepointOperator(task_id="hot_savepoint", deferrable=True, **JOB)
    plan = PlanMigrationOperator(task_id="plan", savepoint_id=HOT_SAVEPOINT, **MIGRATION)
    approve = ApproveMigrationOperator(
        task_id="approve",
        subject="Move job {{ params.job }} back to cluster {{ params.target_kafka_conn_id }}?",
        body="{{ ti.xcom_pull(task_ids='begin', key='markdown') }}\n\n"
        "{{ ti.xcom_pull(task_ids='pre_flight', key='markdown') }}\n\n"
        "{{ ti.xcom_pull(task_ids='plan', key='markdown') }}",
    )
    migrate = MigrateStreamingJobOperator(task_id="migrate", hot_savepoint_id=HOT_SAVEPOINT, **MIGRATION)
    verify = VerifyMigrationOperator(task_id="verify", **MIGRATION)
    settle = SettleMigrationOperator(task_id="settle", trigger_rule="all_done", **MIGRATION)

    begin >> pre_flight >> hot_savepoint >> plan >> approve >> migrate >> [verify, settle]
