"""Move a running streaming job to another Kafka cluster, with no record lost and none counted twice.

The DAG checks both clusters (pre-flight), takes a savepoint of the running job, shows where every position
moves, and asks for your approval. Then the window begins: producers are held, positions are proved, the job
moves. Whatever fails, the last task leaves the job and its producers on one cluster. What you approve is
stored, and exactly that is applied.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import (
    MigrateStreamingJobOperator,
    PlanMigrationOperator,
    PreflightMigrationOperator,
    SettleMigrationOperator,
    TakeSavepointOperator,
    VerifyMigrationOperator,
)

JOB: dict[str, Any] = {"job": "{{ params.job }}", "flinkstyle_conn_id": "{{ params.flinkstyle_conn_id }}"}
MIGRATION: dict[str, Any] = {
    **JOB,
    "source_kafka_conn_id": "{{ params.source_kafka_conn_id }}",
    "target_kafka_conn_id": "{{ params.target_kafka_conn_id }}",
    "mirror": {
        "source_alias": "{{ params.source_alias }}",
        "target_alias": "{{ params.target_alias }}",
        "replication_policy": "{{ params.replication_policy }}",
        "connector_name": "{{ params.connector_name }}",
        "offsets_topic": "{{ params.offsets_topic }}",
        "isolation": "{{ params.mirror_isolation }}",
        **{name: f"{{{{ params.{name} }}}}" for name in ("sole_writer", "keeps_offsets", "ignored_headers")},
    },
    "isolation": "{{ params.isolation }}",
    **{name: f"{{{{ params.{name} }}}}" for name in ("way", "start", "topology", "sources", "rename")},
    **{name: f"{{{{ params.{name} }}}}" for name in ("allow", "fence", "fence_spare", "group")},
    "producer_switch": "{{ params.producer_switch }}",
    "script_servers": "{{ params.script_servers }}",
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
    "source_kafka_conn_id": Param(
        type="string",
        minLength=1,
        title="Old cluster",
        description="Kafka connection of the cluster the job reads now.",
        section="Clusters",
    ),
    "target_kafka_conn_id": Param(
        type="string",
        minLength=1,
        title="New cluster",
        description="Kafka connection of the cluster to move to.",
        section="Clusters",
    ),
    "script_servers": Param(
        None,
        type=["null", "string"],
        title="Servers in the script",
        description="kafka.bootstrap.servers as the script writes it; empty if it is as in the old "
        "cluster's connection.",
        section="Clusters",
    ),
    "isolation": Param(
        "read_uncommitted",
        enum=ISOLATION,
        title="The job's isolation level",
        description="kafka.isolation.level of the job's sources.",
        section="Clusters",
    ),
    "way": Param(
        "proved",
        enum=["proved", "new_identity", "producers_first"],
        values_display={
            "proved": "Continue with the unread records, proved by reading both clusters",
            "new_identity": "Drop the old position and begin at the start position below",
            "producers_first": "Read the old cluster to its end, then the new one from its start",
        },
        title="Way to migrate",
        description="The plan shows for each source what must hold and what follows.",
        section="Way",
    ),
    "start": Param(
        None,
        type=["null", "string", "object"],
        examples=[
            "earliest",
            "latest",
            "timestamp:2026-11-21T10:00:00Z",
            "group:NAME",
            'offsets:{"orders": {"0": 17}}',
        ],
        title="Start position",
        description="For sources that drop their old position; a mapping sets it by topic or partition.",
        section="Way",
    ),
    "topology": Param(
        "refuse",
        enum=["refuse", "repartitioned"],
        values_display={
            "refuse": "Refuse topics with other partitions than before",
            "repartitioned": "Begin such topics at the start position",
        },
        title="Other partition counts, split or merged topics",
        section="Way",
    ),
    "sources": Param(
        None,
        type=["null", "object"],
        title="Sources with their own way",
        description='For example {"totals/0": {"way": "new_identity", "start": "latest"}}: query/source.',
        section="Way",
    ),
    "rename": Param(
        None,
        type=["null", "object"],
        title="Renamed topics",
        description="Old topic -> new topic (several with commas), beyond the mirror's replication policy.",
        section="Way",
    ),
    "source_alias": Param(
        None,
        type=["null", "string"],
        title="Alias of the old cluster",
        description="Needed where positions are proved.",
        section="MirrorMaker 2",
    ),
    "target_alias": Param(
        None,
        type=["null", "string"],
        title="Alias of the new cluster",
        description="Needed where positions are proved.",
        section="MirrorMaker 2",
    ),
    "replication_policy": Param(
        "identity",
        enum=["identity", "default"],
        values_display={"identity": "Topics keep their names", "default": "Topics get the alias as prefix"},
        title="Replication policy",
        section="MirrorMaker 2",
    ),
    "mirror_isolation": Param(
        "read_committed",
        enum=ISOLATION,
        title="MirrorMaker's isolation level",
        description="isolation.level of its consumer; read_uncommitted copies aborted records.",
        section="MirrorMaker 2",
    ),
    "sole_writer": Param(
        False,
        type="boolean",
        title="Only the mirror writes to its topics on the new cluster",
        description="Then records equal to mirrored ones count as second copies, not as new records.",
        section="MirrorMaker 2",
    ),
    "keeps_offsets": Param(
        False,
        type="boolean",
        title="The mirror keeps offsets",
        description="Cluster Linking and the like, in place of MirrorMaker; it is verified, not assumed.",
        section="MirrorMaker 2",
    ),
    "ignored_headers": Param(
        None,
        type=["null", "array"],
        title="Headers that the mirror adds or changes",
        section="MirrorMaker 2",
    ),
    "connector_name": Param(
        None,
        type=["null", "string"],
        title="Connector's name",
        description="Empty for MirrorSourceConnector, as in dedicated mode.",
        section="MirrorMaker 2",
    ),
    "offsets_topic": Param(
        None,
        type=["null", "string"],
        title="Topic with MirrorMaker's positions",
        description="Empty for mm2-offsets.<alias of the old cluster>.internal.",
        section="MirrorMaker 2",
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
            "passive": "Check that no producer writes to the old topics",
            "acl": "Deny writing to the old topics by ACL",
            "acl:open": "The same, where topics without ACLs are open to all",
            "acl:closed": "The same, where topics without ACLs are closed to all",
        },
        title="Fence",
        description="An ACL fence is removed if the migration is rolled back, and stays after a success.",
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
        description="Its offsets on the new cluster are set after the move, so that lag tools stay right.",
        section="Window",
    ),
    "producer_switch": Param(
        None,
        type=["null", "string"],
        enum=[None, "store", "manual"],
        values_display={"store": "A record they poll", "manual": "People"},
        title="Producers are held by",
        description="Empty for what the Flinkstyle connection says.",
        section="Window",
    ),
    "hold_timeout_s": Param(
        60, type="number", minimum=1, title="Seconds for producers to stop writing", section="Window"
    ),
    "first_commit_timeout_s": Param(
        180,
        type="number",
        minimum=1,
        title="Seconds for the first batch on the new cluster",
        section="Window",
    ),
}

with DAG(
    "migrate_kafka_cluster",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags=["flinkstyle"],
    doc_md=__doc__,
    params=PARAMS,
    render_template_as_native_obj=True,  # an empty field arrives as None, not as "None"
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
) as dag:
    pre_flight = PreflightMigrationOperator(task_id="pre_flight", **MIGRATION)
    hot_savepoint = TakeSavepointOperator(task_id="hot_savepoint", deferrable=True, **JOB)
    plan = PlanMigrationOperator(task_id="plan", savepoint_id=HOT_SAVEPOINT, **MIGRATION)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Move job {{ params.job }} to cluster {{ params.target_kafka_conn_id }}?",
        body="{{ ti.xcom_pull(task_ids='pre_flight', key='markdown') }}\n\n"
        "{{ ti.xcom_pull(task_ids='plan', key='markdown') }}",
    )
    migrate = MigrateStreamingJobOperator(task_id="migrate", hot_savepoint_id=HOT_SAVEPOINT, **MIGRATION)
    verify = VerifyMigrationOperator(task_id="verify", **MIGRATION)
    settle = SettleMigrationOperator(task_id="settle", trigger_rule="all_done", **MIGRATION)

    pre_flight >> hot_savepoint >> plan >> approve >> migrate >> [verify, settle]
