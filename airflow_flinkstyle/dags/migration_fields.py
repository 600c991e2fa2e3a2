"""The fields of the DAGs that migrate, and the templates that hand their answers to operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import connection_fields, job_fields

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_flinkstyle.dags.form import Form

MIRROR: Final = "MirrorMaker 2"
"""Section of the fields about it."""
ISOLATION: Final = ["read_uncommitted", "read_committed"]
_MIRROR: Final = {
    "source_alias": "source_alias",
    "target_alias": "target_alias",
    "replication_policy": "replication_policy",
    "connector_name": "connector_name",
    "offsets_topic": "offsets_topic",
    "isolation": "mirror_isolation",
    "sole_writer": "sole_writer",
    "keeps_offsets": "keeps_offsets",
    "ignored_headers": "ignored_headers",
}
"""Field of the mirror -> field of the form: ``isolation`` there is the job's."""
_TIMEOUTS: Final = ("hold_timeout_s", "first_commit_timeout_s")
_OF_THE_JOB: Final = ("job", "flinkstyle_conn_id")


def migration_fields(*, without: Collection[str] = (), needed: Collection[str] = ()) -> dict[str, Param]:
    """Return the form's fields by name.

    Args:
        without: Fields that the DAG does not ask for.
        needed: Fields that may not stay empty in this DAG.
    """
    asked = {name: param for name, param in _all().items() if name not in without}
    return asked | {
        name: Param(**{**asked[name].schema, "type": "string", "minLength": 1}) for name in needed
    }


def migration_answers(form: Form) -> dict[str, Any]:
    """Return the operators' ``migration``: a template for every answer that the form leads to."""
    names = [name for name in _all() if name in form and name not in _OF_THE_JOB]
    asked = form.answers(*names)
    mirror = {own: asked.pop(name) for own, name in _MIRROR.items() if name in asked}
    timeouts = {name: asked.pop(name) for name in _TIMEOUTS if name in asked}
    return {**asked, "mirror": mirror, "timeouts": timeouts}


def _all() -> dict[str, Param]:
    return {**_job_and_clusters(), **_way(), **_mirror(), **_window()}


def _job_and_clusters() -> dict[str, Param]:
    return {
        **job_fields("Name of the running job."),
        **connection_fields(),
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
            title="Cluster to leave",
            description="Kafka connection of the cluster the job reads now.",
            section="Clusters",
        ),
        "target_kafka_conn_id": Param(
            type="string",
            minLength=1,
            title="Cluster to move to",
            description="Kafka connection of the cluster to move to.",
            section="Clusters",
        ),
        "script_servers": Param(
            None,
            type=["null", "string"],
            title="Servers in the script",
            description="kafka.bootstrap.servers as the script writes it; empty if it is as in the "
            "connection of the cluster to leave.",
            section="Clusters",
        ),
        "isolation": Param(
            "read_uncommitted",
            enum=ISOLATION,
            title="The job's isolation level",
            description="kafka.isolation.level of the job's sources.",
            section="Clusters",
        ),
    }


def _way() -> dict[str, Param]:
    return {
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
            description="Old topic -> new topic (several with commas), beyond the replication policy.",
            section="Way",
        ),
    }


def _mirror() -> dict[str, Param]:
    return {
        "source_alias": Param(
            type="string",
            minLength=1,
            examples=["none"],
            title="Alias of the cluster to leave",
            description="As MirrorMaker calls it; none where the mirror keeps offsets or nothing is proved.",
            section=MIRROR,
        ),
        "target_alias": Param(
            type="string",
            minLength=1,
            examples=["none"],
            title="Alias of the cluster to move to",
            description="As MirrorMaker calls it; none where the mirror keeps offsets or nothing is proved.",
            section=MIRROR,
        ),
        "replication_policy": Param(
            "identity",
            enum=["identity", "default"],
            values_display={
                "identity": "Topics keep their names",
                "default": "Topics get the alias as prefix",
            },
            title="Replication policy",
            section=MIRROR,
        ),
        "mirror_isolation": Param(
            "read_committed",
            enum=ISOLATION,
            title="MirrorMaker's isolation level",
            description="isolation.level of its consumer; read_uncommitted copies aborted records.",
            section=MIRROR,
        ),
        "sole_writer": Param(
            False,
            type="boolean",
            title="Only the mirror writes to its topics on the cluster to move to",
            description="Then records equal to mirrored ones count as second copies, not as new records.",
            section=MIRROR,
        ),
        "keeps_offsets": Param(
            False,
            type="boolean",
            title="The mirror keeps offsets",
            description="Cluster Linking and the like, in place of MirrorMaker; it is verified, not assumed.",
            section=MIRROR,
        ),
        "ignored_headers": Param(
            None,
            type=["null", "array"],
            title="Headers that the mirror adds or changes",
            section=MIRROR,
        ),
        "connector_name": Param(
            None,
            type=["null", "string"],
            title="Connector's name",
            description="Empty for MirrorSourceConnector, as in dedicated mode.",
            section=MIRROR,
        ),
        "offsets_topic": Param(
            None,
            type=["null", "string"],
            title="Topic with MirrorMaker's positions",
            description="Empty for mm2-offsets.<alias of the cluster to leave>.internal.",
            section=MIRROR,
        ),
    }


def _window() -> dict[str, Param]:
    return {
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
            description="An ACL fence is removed if the migration is rolled back. It stays after a success.",
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
            description="Its offsets are set after the move, so that lag tools stay right.",
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
        "rehearse_batches": Param(
            0,
            type="integer",
            minimum=0,
            title="Batches to rehearse",
            description="On a copy and the target's newest records, before producers are held. 0: none.",
            section="Window",
        ),
        "hold_timeout_s": Param(
            60, type="number", minimum=1, title="Seconds for producers to stop writing", section="Window"
        ),
        "first_commit_timeout_s": Param(
            180,
            type="number",
            minimum=1,
            title="Seconds for the first batch after the move",
            section="Window",
        ),
    }
