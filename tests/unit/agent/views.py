"""A Kafka cluster as the guard sees it."""

from __future__ import annotations

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.types import NextOffset


def a_view(ends: dict[int, int]) -> ClusterView:
    ranges = {
        number: LogRange(start=NextOffset(0), end=NextOffset(end), last_stable=NextOffset(end))
        for number, end in ends.items()
    }
    return ClusterView(cluster_id="c", topics={"t": TopicView(topic_id="id", partitions=ranges)})
