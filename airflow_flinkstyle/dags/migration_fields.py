"""The fields of the DAGs that migrate, and the templates that hand their answers to operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import MORE, job_fields, place_fields, untested_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.dags.form import Form

CLUSTERS: Final = f"{MORE}: clusters"
WAY: Final = f"{MORE}: sources"
MIRROR: Final = f"{MORE}: MirrorMaker 2"
WINDOW: Final = f"{MORE}: window"
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
"""Field of the mirror -> field of the form, in which ``isolation`` is the job's."""
_TIMEOUTS: Final = ("hold_timeout_s", "hold_lease_s", "first_commit_timeout_s")
_OF_THE_JOB: Final = ("job", "flinkstyle_conn_id")


def migration_fields(
    *, without: Collection[str] = (), of_job: Mapping[str, Param] | None = None
) -> dict[str, Param]:
    """Return the form's fields by name: first those that only a person can answer, then all others.

    Args:
        without: Fields that the DAG does not ask for.
        of_job: Fields right after the job, in place of those for where it moves and how.
    """
    asked = _first() if of_job is None else {**_job(), **of_job, **_optional_target()}
    every = {**asked, **_clusters(), **_way(), **_mirror(), **_window()}
    return {name: field for name, field in every.items() if name not in without}


def migration_answers(form: Form) -> dict[str, Any]:
    """Return the operators' ``migration``: a template for every answer that the form leads to."""
    names = [name for name in migration_fields() if name in form and name not in _OF_THE_JOB]
    asked = form.answers(*names)
    mirror = {own: asked.pop(name) for own, name in _MIRROR.items() if name in asked}
    timeouts = {name: asked.pop(name) for name in _TIMEOUTS if name in asked}
    return {**asked, "mirror": mirror, "timeouts": timeouts}


def _job() -> dict[str, Param]:
    return job_fields("Name of the running job.")


def _optional_target() -> dict[str, Param]:
    """Return the field for the cluster to move to, in a DAG that has a default for it."""
    return {
        "target_kafka_conn_id": Param(
            None,
            type=["null", "string"],
            title="Cluster to move to",
            description="Kafka connection; empty: the one that it came from.",
            section=CLUSTERS,
        ),
    }


def _first() -> dict[str, Param]:
    """Return the fields that only a person can answer."""
    return {
        **_job(),
        "target_kafka_conn_id": Param(
            type="string",
            minLength=1,
            title="Cluster to move to",
            description="Kafka connection of the cluster to move to.",
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
        ),
    }


def _clusters() -> dict[str, Param]:
    return {
        **place_fields("Where the next driver runs; empty for where the job runs now.", CLUSTERS),
        "source_kafka_conn_id": Param(
            None,
            type=["null", "string"],
            title="Cluster to leave",
            description="Kafka connection; empty: the one that the job reads, of those that the Flinkstyle "
            "connection lists (kafka_connections).",
            section=CLUSTERS,
        ),
        "script_servers": Param(
            None,
            type=["null", "string"],
            title="Servers in the script",
            description="kafka.bootstrap.servers as the script writes it; empty: as in the running job.",
            section=CLUSTERS,
        ),
        "isolation": Param(
            None,
            type=["null", "string"],
            enum=[None, *ISOLATION],
            title="The job's isolation level",
            description="kafka.isolation.level of the job's sources; empty: as in the running job.",
            section=CLUSTERS,
        ),
    }


def _way() -> dict[str, Param]:
    return {
        "topology": Param(
            "refuse",
            enum=["refuse", "repartitioned"],
            values_display={
                "refuse": "Refuse topics with other partitions than before",
                "repartitioned": "Begin such topics at the start position",
            },
            title="Other partition counts, split or merged topics",
            section=WAY,
        ),
        "sources": Param(
            None,
            type=["null", "object"],
            title="Sources with their own way",
            description='For example {"totals/0": {"way": "new_identity", "start": "latest"}}: query/source.',
            section=WAY,
        ),
        "rename": Param(
            None,
            type=["null", "object"],
            title="Renamed topics",
            description="Old topic -> new topic (several with commas), beyond the replication policy.",
            section=WAY,
        ),
    }


def _mirror() -> dict[str, Param]:
    return {
        "source_alias": Param(
            None,
            type=["null", "string"],
            examples=["none"],
            title="Alias of the cluster to leave",
            description="As MirrorMaker calls it; empty: found by its topics; none: there is no MirrorMaker.",
            section=MIRROR,
        ),
        "target_alias": Param(
            None,
            type=["null", "string"],
            examples=["none"],
            title="Alias of the cluster to move to",
            description="As MirrorMaker calls it; empty: found by its topics.",
            section=MIRROR,
        ),
        "replication_policy": Param(
            None,
            type=["null", "string"],
            enum=[None, "identity", "default"],
            values_display={
                "identity": "Topics keep their names",
                "default": "Topics get the alias as prefix",
            },
            title="Replication policy",
            description="Empty: found by the names of the copies.",
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
            section=WINDOW,
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
            section=WINDOW,
        ),
        "fence_spare": Param(
            None,
            type=["null", "string"],
            title="Principals the fence leaves alone",
            description="With semicolons between, for example User:mirror.",
            section=WINDOW,
        ),
        "group": Param(
            None,
            type=["null", "string"],
            title="Consumer group to keep up",
            description="Its offsets are set after the move.",
            section=WINDOW,
        ),
        "producer_switch": Param(
            None,
            type=["null", "string"],
            enum=[None, "store", "manual"],
            values_display={"store": "A record they poll", "manual": "People"},
            title="Producers are held by",
            description="Empty: as set in the Flinkstyle connection.",
            section=WINDOW,
        ),
        "rehearse_batches": Param(
            2,
            type="integer",
            minimum=0,
            title="Batches to rehearse",
            description="On a copy and the target's newest records, before producers are held. 0: none.",
            section=WINDOW,
        ),
        **untested_fields(WINDOW),
        "hold_timeout_s": Param(
            60, type="number", minimum=1, title="Seconds for producers to stop writing", section=WINDOW
        ),
        "hold_lease_s": Param(
            120,
            type="number",
            minimum=10,
            title="Seconds until a hold ends by itself",
            description="If the task does not renew it.",
            section=WINDOW,
        ),
        "first_commit_timeout_s": Param(
            180,
            type="number",
            minimum=1,
            title="Seconds for the first batch after the move",
            section=WINDOW,
        ),
    }
