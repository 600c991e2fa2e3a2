"""Where a Kafka source is to stand, as a manifest tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka import cluster as live
from airflow_flinkstyle.kafka.positions import require_within_log
from airflow_flinkstyle.kafka.verdict import Refused, describe, offsets_of
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.errors import SOURCE_CHANGE
from airflow_flinkstyle.savepoint.manifest import KafkaPosition
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.kafka.start.kinds import StartRules


def position_on(view: ClusterView, offsets: Offsets) -> KafkaPosition:
    """Return the position at these offsets, with the identity of the logs they count in."""
    topics = {topic: view.topics[topic] for topic in sorted(offsets.topics)}
    return KafkaPosition(
        cluster_id=view.cluster_id,
        topic_ids={name: topic.topic_id for name, topic in topics.items()},
        offsets=offsets.in_order(),
        log_range={
            name: {number: (log.start, log.end) for number, log in topic.partitions.items()}
            for name, topic in topics.items()
        },
    )


def checked_position(view: ClusterView, offsets: Offsets, where: str) -> KafkaPosition:
    """Return the position at these offsets, once they are checked against the live cluster.

    Args:
        view: The cluster as it is now, described with every topic of ``offsets``.
        offsets: Next offset to read, for each partition of these topics.
        where: Name of the cluster for messages.

    Raises:
        FlinkstyleError: Whatever ``require_within_log`` raises.
    """
    require_within_log(offsets, view, where)
    return position_on(view, offsets)


def picked_position(
    cluster: KafkaCluster, topics: Collection[str], start: StartRules, before: KafkaPosition | None = None
) -> KafkaPosition:
    """Return the position that a person picked on a live cluster.

    Args:
        cluster: Where the source will read.
        topics: All that it will read, by their names there.
        start: Where each partition starts.
        before: The source's position so far, if it had one; shifts count from it, in the same log.

    Raises:
        FlinkstyleError: ``SOURCE_CHANGE`` if a partition has no such position.
        FlinkstyleError: Whatever ``resolve`` raises.
    """
    from airflow_flinkstyle.kafka.start.resolve import resolve

    view = live.describe(cluster, topics)
    verdicts = resolve(cluster, view.partitions, start, before=_in_same_logs(before, view))
    refused = [f"{t}-{n}: {describe(v)}" for (t, n), v in verdicts.items() if isinstance(v, Refused)]
    if refused:
        expected = f"an offset for each of its {len(verdicts)} partitions"
        raise SOURCE_CHANGE.error(
            where=f"a source on {cluster}", expected=expected, found="; ".join(refused[:8])
        )
    return checked_position(live.describe(cluster, topics), offsets_of(verdicts), str(cluster))


def _in_same_logs(before: KafkaPosition | None, view: ClusterView) -> Offsets:
    """Return the offsets of a position that count in the logs of the view."""
    if before is None or ids_differ(before.cluster_id, view.cluster_id):
        return Offsets()
    ids = {topic: seen.topic_id for topic, seen in view.topics.items()}
    same = {
        topic
        for topic in before.offsets.topics & ids.keys()
        if not ids_differ(before.topic_ids.get(topic), ids[topic])
    }
    return before.offsets.in_topics(same)
