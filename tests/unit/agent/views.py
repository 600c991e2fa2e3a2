"""What a driver sees of a Kafka cluster, in small."""

from __future__ import annotations

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.types import NextOffset


def a_topic(ends: dict[int, int], topic_id: str | None = "id", *, start: int = 0) -> TopicView:
    ranges = {
        number: LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(end))
        for number, end in ends.items()
    }
    return TopicView(topic_id=topic_id, partitions=ranges)


def a_view(ends: dict[int, int], **others: TopicView) -> ClusterView:
    return ClusterView(cluster_id="c", topics={"t": a_topic(ends), **others})
