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

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import (
    BeginFailBackOperator,
    MigrateStreamingJobOperator,
    PlanMigrationOperator,
    PreflightMigrationOperator,
    SettleMigrationOperator,
    TakeSavepointOperator,
    VerifyMigrationOperator,
)

JOB: dict[str, Any] = {"job": "{{ params.job }}", "flinkstyle_conn_id": "{{ params.flinkstyle_conn_id }}"}
CLUSTERS: dict[str, Any] = {
    "source_kafka_conn_id": "{{ params.source_kafka_conn_id }}",
    "target_kafka_conn_id": "{{ params.target_kafka_conn_id }}",
    "mirror": {
        "source_alias": "{{ params.source_alias }}",
        "target_alias": "{{ params.target_alias }}",
        "replication_policy": "{{ params.replication_policy }}",
        "connector_name": "{{ params.connector_name }}",
        "offsets_topic": "{{ params.offsets_topic }}",
        "isolation": "{{ params.mirror_isolation }}",
    },
    "isolation": "{{ params.isolation }}",
}
MIGRATION: dict[str, Any] = {
    **JOB,
    **CLUSTERS,
    "rename": "{{ ti.xcom_pull(task_ids='begin')['rename'] }}",
    "back": True,
    **{name: f"{{{{ params.{name} }}}}" for name in ("allow", "fence", "fence_spare", "group")},
    "producer_switch": "{{ params.producer_switch }}",
    "spark_conn_id": "{{ params.spark_conn_id }}",
    "timeouts": {
        "hold_timeout_s": "{{ params.hold_timeout_s }}",
        "first_commit_timeout_s": "{{ params.first_commit_timeout_s }}",
    },
}
HOT_SAVEPOINT = "{{ ti.xcom_pull(task_ids='hot_savepoint') }}"
ISOLATION = ["read_uncommitted", "read_committed"]

PARAMS = {
    "job": Param(
        type="string", minLength=1, title="Job", description="Name of the running job.", section="Job"
    ),
    "flinkstyle_conn_id": Param(
        "flinkstyle_default",
        type="string",
        title="Flinkstyle connection",
        description="Connection with the savepoint root.",
        section="Job",
    ),
    "spark_conn_id": Param(
        None,
        type=["null", "string"],
        title="Spark connection",
        description="Where the next driver runs; empty for where the job runs now.",
        section="Job",
    ),
    "migration_id": Param(
        None,
        type=["null", "string"],
        title="Migration to reverse",
        description="Empty for the newest finished one.",
        section="Job",
    ),
    "source_kafka_conn_id": Param(
        type="string",
        minLength=1,
        title="Cluster to leave",
        description="Kafka connection of the cluster the job reads now, the migration's new one.",
        section="Clusters",
    ),
    "target_kafka_conn_id": Param(
        type="string",
        minLength=1,
        title="Cluster to go back to",
        description="Kafka connection of the migration's old cluster.",
        section="Clusters",
    ),
    "isolation": Param(
        "read_uncommitted",
        enum=ISOLATION,
        title="The job's isolation level",
        description="kafka.isolation.level of the job's sources.",
        section="Clusters",
    ),
    "source_alias": Param(
        type="string",
        minLength=1,
        title="Alias of the cluster to leave",
        description="As the mirror back calls it.",
        section="Mirror back",
    ),
    "target_alias": Param(
        type="string",
        minLength=1,
        title="Alias of the cluster to go back to",
        description="As the mirror back calls it.",
        section="Mirror back",
    ),
    "topics": Param(
        "original",
        enum=["original", "as_mirrored"],
        values_display={
            "original": "The topics it read before; the mirror back adds the new records to them",
            "as_mirrored": "Copies of the whole topics it reads now, made by the mirror back",
        },
        title="Topics to read",
        section="Mirror back",
    ),
    "replication_policy": Param(
        "identity",
        enum=["identity", "default"],
        values_display={"identity": "Topics keep their names", "default": "Topics get the alias as prefix"},
        title="Replication policy",
        description="Of the mirror back; original topics need one that gives them their old names.",
        section="Mirror back",
    ),
    "mirror_isolation": Param(
        "read_committed",
        enum=ISOLATION,
        title="MirrorMaker's isolation level",
        description="isolation.level of its consumer; read_uncommitted copies aborted records.",
        section="Mirror back",
    ),
    "connector_name": Param(
        None,
        type=["null", "string"],
        title="Connector's name",
        description="Empty for MirrorSourceConnector, as in dedicated mode.",
        section="Mirror back",
    ),
    "offsets_topic": Param(
        None,
        type=["null", "string"],
        title="Topic with MirrorMaker's positions",
        description="Empty for mm2-offsets.<alias of the cluster to leave>.internal.",
        section="Mirror back",
    ),
    "mirror_timeout_s": Param(
        90,
        type="number",
        minimum=0,
        title="Seconds for the mirror back to copy the records written so far",
        section="Mirror back",
    ),
    "allow": Param(
        "exact",
        type="string",
        examples=["exact", "exact,bounded", "exact,duplicate<=100,superseded"],
        title="Positions to accept",
        description="Only exact ones, or also those that repeat a known number of records, by class.",
        section="Window",
    ),
    "fence": Param(
        "passive",
        enum=["passive", "acl", "acl:open", "acl:closed"],
        values_display={
            "passive": "Check that no producer writes to the topics that the job leaves",
            "acl": "Deny writing to these topics by ACL",
            "acl:open": "The same, where topics without ACLs are open to all",
            "acl:closed": "The same, where topics without ACLs are closed to all",
        },
        title="Fence",
        description="An ACL fence is removed if the job stays where it is, and stays after a success.",
        section="Window",
    ),
    "fence_spare": Param(
        None,
        type=["null", "string"],
        title="Principals the fence leaves alone",
        description="With semicolons between, for example User:mirror.",
        section="Window",
    ),
    "group": Param(
        None,
        type=["null", "string"],
        title="Consumer group to keep up",
        description="Its offsets on the cluster to go back to are set, so that lag tools stay right.",
        section="Window",
    ),
    "producer_switch": Param(
        None,
        type=["null", "string"],
        enum=[None, "store", "manual"],
        values_display={"store": "A record they poll", "manual": "People"},
        title="Producers are held by",
        description="Empty for what the Flinkstyle connection says. Old and new mean the same clusters as in "
        "the first migration.",
        section="Window",
    ),
    "hold_timeout_s": Param(
        60, type="number", minimum=1, title="Seconds for producers to stop writing", section="Window"
    ),
    "first_commit_timeout_s": Param(
        180,
        type="number",
        minimum=1,
        title="Seconds for the first batch on the cluster it goes back to",
        section="Window",
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
        **JOB,
        **CLUSTERS,
    )
    pre_flight = PreflightMigrationOperator(task_id="pre_flight", **MIGRATION)
    hot_savepoint = TakeSavepointOperator(task_id="hot_savepoint", deferrable=True, **JOB)
    plan = PlanMigrationOperator(task_id="plan", savepoint_id=HOT_SAVEPOINT, **MIGRATION)
    approve = ApprovalOperator(
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
