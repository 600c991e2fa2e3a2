"""What a consumer group has committed, and how to commit for it while it has no members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import require_positions
from airflow_flinkstyle.kafka.errors import (
    GROUP_COMMIT,
    GROUP_IN_USE,
    GROUP_MISSING,
    NOTHING_CHANGED,
    name_partitions,
)
from airflow_flinkstyle.kafka.patience import patient
from airflow_flinkstyle.kafka.settings import admin_client, consumer
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from confluent_kafka import Consumer, KafkaError

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.types import TopicPartition

_HAS_MEMBERS = frozenset(
    (
        "UNKNOWN_MEMBER_ID",
        "NON_EMPTY_GROUP",
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "STALE_MEMBER_EPOCH",
    )
)
_OF_SOME_PARTITIONS = frozenset(("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "TOPIC_AUTHORIZATION_FAILED"))
"""The client reports one of these for the whole commit, though other partitions may be committed."""
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """Offsets that were committed for a group."""

    group: str
    offsets: Offsets
    before: Offsets
    """What it had committed until then, on the topics concerned."""

    def describe(self) -> str:
        """Return it as a sentence."""
        return (
            f"Group {self.group}: {len(self.offsets)} partitions committed, "
            f"{len(self.offsets.keys() & self.before.keys())} of which it had committed before."
        )


@patient
def group_offsets(cluster: KafkaCluster, group: str, topics: Collection[str]) -> Offsets:
    """Return what a group has committed on these topics; partitions without a commit are left out.

    Raises:
        FlinkstyleError: ``GROUP_MISSING`` if the cluster knows no such group.
    """
    with consumer(cluster, "read_committed", group=group) as client:
        known = client.list_topics(timeout=cluster.request_timeout_s).topics
        partitions = [
            (topic, number) for topic in topics if topic in known for number in known[topic].partitions
        ]
        found = _committed(client, cluster, partitions)
    if not found:
        _require_group(cluster, group)
    return found


@patient
def set_group_offsets(
    cluster: KafkaCluster, group: str, offsets: Offsets, *, only_forward: bool = False
) -> GroupCommit:
    """Commit offsets for a group, so that what monitors its lag continues.

    Args:
        cluster: Where the offsets count.
        group: Exactly this one; it need not exist yet, and must have no members.
        offsets: Next offset to read.
        only_forward: Leave out partitions of which the group has committed as much already, or more.

    Raises:
        FlinkstyleError: ``GROUP_IN_USE`` if the group has members: they commit for themselves. Nothing was
            committed.
        FlinkstyleError: ``GROUP_COMMIT`` if the cluster accepted some partitions only.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as ClientPartition

    require_positions(offsets)
    with consumer(cluster, "read_committed", group=group) as client:
        before = _committed(client, cluster, offsets)
        if only_forward:
            offsets = Offsets({tp: at for tp, at in offsets.items() if at > before.get(tp, -1)})
            if not offsets:
                return GroupCommit(group=group, offsets=offsets, before=before)
        wanted = [ClientPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        try:
            client.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            cause = error.args[0]
            if cause.name() in _HAS_MEMBERS:
                raise _in_use(cluster, group) from error
            if cause.name() not in _OF_SOME_PARTITIONS:
                raise
            after = _committed(client, cluster, offsets)
            missed = [tp for tp, offset in offsets.items() if after.get(tp) != offset]
            raise _refused(cluster, group, missed, len(offsets) - len(missed), cause) from error
    return GroupCommit(group=group, offsets=offsets, before=before)


def _committed(client: Consumer, cluster: KafkaCluster, partitions: Iterable[TopicPartition]) -> Offsets:
    """Ask as a consumer: the admin client's call crashes the process while the coordinator loads."""
    from confluent_kafka import TopicPartition as ClientPartition

    asked = [ClientPartition(topic, number) for topic, number in partitions]
    answers = client.committed(asked, timeout=cluster.request_timeout_s) if asked else []
    return Offsets({(tp.topic, tp.partition): NextOffset(tp.offset) for tp in answers if tp.offset >= 0})


def _require_group(cluster: KafkaCluster, group: str) -> None:
    """Refuse a group that does not exist; for one without commits the cluster answers the same."""
    with admin_client(cluster) as admin:
        listed = admin.list_consumer_groups(request_timeout=cluster.request_timeout_s)
        known = sorted(found.group_id for found in listed.result(cluster.request_timeout_s).valid)
    if group in known:
        return
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    raise GROUP_MISSING.with_text(
        f"Cluster {cluster} was expected to have the consumer group {group}, but has "
        f"{', '.join(known[:_SHOWN]) or 'none'}{more}.",
        state_after=NOTHING_CHANGED,
        remedy="Correct the group's name, or choose another start position.",
    )


def _in_use(cluster: KafkaCluster, group: str) -> FlinkstyleError:
    return GROUP_IN_USE.with_text(
        f"Consumer group {group} on {cluster} should have no members, but has some, who commit for it.",
        state_after="No offset was committed for the group.",
        remedy="Name another group, or stop its members and set its offsets again.",
    )


def _refused(
    cluster: KafkaCluster, group: str, partitions: Collection[TopicPartition], others: int, cause: KafkaError
) -> FlinkstyleError:
    return GROUP_COMMIT.with_text(
        f"Offsets should be committed for group {group} on {cluster}, but those of "
        f"{name_partitions(partitions)} were refused: {cause.str()}.",
        state_after=f"{others or 'No'} other partitions are committed.",
        remedy="Correct topics, partitions or ACLs, then set the group's offsets again.",
    )
