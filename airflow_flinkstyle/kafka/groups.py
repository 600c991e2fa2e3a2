"""What a consumer group has committed, and how to commit for it while it has no members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.cluster import require_positions
from airflow_flinkstyle.kafka.errors import (
    NOTHING_CHANGED,
    GroupCommitError,
    GroupInUseError,
    GroupMissingError,
    name_partitions,
)
from airflow_flinkstyle.kafka.settings import admin_client, consumer
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka import TopicPartition as ClientPartition

    from airflow_flinkstyle.kafka.cluster import TopicPartition
    from airflow_flinkstyle.kafka.settings import KafkaCluster

_HAS_MEMBERS = frozenset(
    ("UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH")
)
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """Offsets that were committed for a group."""

    group: str
    offsets: Mapping[TopicPartition, NextOffset]
    before: Mapping[TopicPartition, NextOffset]
    """What it had committed until then, on the topics concerned."""

    def describe(self) -> str:
        """Return it as a sentence."""
        return (
            f"Group {self.group}: {len(self.offsets)} partitions committed, "
            f"{len(self.offsets.keys() & self.before.keys())} of which it had committed before."
        )


def group_offsets(
    cluster: KafkaCluster, group: str, topics: Collection[str]
) -> dict[TopicPartition, NextOffset]:
    """Return what a group has committed on these topics; partitions without a commit are left out.

    Raises:
        GroupMissingError: If the cluster knows no such group.
    """
    with admin_client(cluster) as admin:
        found = _committed(admin, cluster, group, topics)
        if not found:
            _require_group(admin, cluster, group)
    return found


def set_group_offsets(
    cluster: KafkaCluster, group: str, offsets: Mapping[TopicPartition, int]
) -> GroupCommit:
    """Commit offsets for a group, so that whoever watches its lag goes on; back or on, whatever it had.

    Args:
        cluster: Where the offsets count.
        group: Exactly this one; it need not exist yet, and must have no members.
        offsets: Next offset to read.

    Raises:
        GroupInUseError: If the group has members: they commit for themselves. Nothing was committed.
        GroupCommitError: If the cluster accepted some partitions only.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as ClientPartition

    require_positions(offsets)
    with admin_client(cluster) as admin:
        before = _committed(admin, cluster, group, {topic for topic, _ in offsets})
    with consumer(cluster, "read_committed", group=group) as client:
        commits = [ClientPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        try:
            answers = client.commit(offsets=commits, asynchronous=False) or []
        except KafkaException as error:
            if error.args[0].name() in _HAS_MEMBERS:
                raise _in_use(cluster, group) from error
            raise
    _require_all_committed(cluster, group, answers)
    return GroupCommit(
        group=group, offsets={tp: NextOffset(offset) for tp, offset in offsets.items()}, before=before
    )


def _committed(
    admin: Any,  # noqa: ANN401  # the client's own stubs say None for futures
    cluster: KafkaCluster,
    group: str,
    topics: Collection[str],
) -> dict[TopicPartition, NextOffset]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=cluster.request_timeout_s
    )
    answer = asked[group].result(cluster.request_timeout_s)
    return {
        (tp.topic, tp.partition): NextOffset(tp.offset)
        for tp in answer.topic_partitions
        if tp.topic in topics and tp.offset >= 0
    }


def _require_group(admin: Any, cluster: KafkaCluster, group: str) -> None:  # noqa: ANN401
    """Tell a group without commits here from one that does not exist; the cluster answers both alike."""
    listed = admin.list_consumer_groups(request_timeout=cluster.request_timeout_s)
    known = sorted(found.group_id for found in listed.result(cluster.request_timeout_s).valid)
    if group not in known:
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        raise GroupMissingError(
            f"Cluster {cluster} was expected to have the consumer group {group}, but has "
            f"{', '.join(known[:_SHOWN]) or 'none'}{more}.",
            left=NOTHING_CHANGED,
            remedy="Correct the group's name, or pick another start position.",
        )


def _in_use(cluster: KafkaCluster, group: str) -> GroupInUseError:
    return GroupInUseError(
        f"Consumer group {group} on {cluster} should have no members, but has some, who commit for it.",
        left="No offset was committed for the group.",
        remedy="Name another group, or stop its members and set its offsets again.",
    )


def _require_all_committed(cluster: KafkaCluster, group: str, answers: list[ClientPartition]) -> None:
    failed = {(tp.topic, tp.partition): tp.error for tp in answers if tp.error is not None}
    if not failed:
        return
    if any(error.name() in _HAS_MEMBERS for error in failed.values()):
        raise _in_use(cluster, group)
    reasons = sorted({error.str() for error in failed.values()})
    raise GroupCommitError(
        f"Offsets of {len(answers)} partitions should be committed for group {group} on {cluster}, but "
        f"{name_partitions(failed.keys())} were refused: {', '.join(reasons)}.",
        left="The other partitions are committed.",
        remedy="Correct topics, partitions or ACLs, then set the group's offsets again.",
    )
