"""Where a Kafka source is to stand, as a manifest tells it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.positions import require_within_log
from airflow_flinkstyle.rewrite.plan import nested
from airflow_flinkstyle.savepoint.manifest import KafkaPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView, TopicPartition
    from airflow_flinkstyle.types import NextOffset


def position_on(view: ClusterView, offsets: Mapping[TopicPartition, NextOffset]) -> KafkaPosition:
    """Return the position at these offsets, with the identity of the logs they count in."""
    by_topic = nested(offsets)
    topics = {topic: view.topics[topic] for topic in by_topic}
    return KafkaPosition(
        cluster_id=view.cluster_id,
        topic_ids={name: topic.topic_id for name, topic in topics.items()},
        offsets=by_topic,
        log_range={
            name: {number: (log.start, log.end) for number, log in topic.partitions.items()}
            for name, topic in topics.items()
        },
    )


def checked_position(
    view: ClusterView, offsets: Mapping[TopicPartition, NextOffset], where: str
) -> KafkaPosition:
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
