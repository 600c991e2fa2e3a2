"""What every kind of start is resolved from: the cluster, and the position so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.verdict import Refused
from airflow_flinkstyle.types import NextOffset, TopicPartition

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.offsets import Offsets

Found = Mapping[TopicPartition, NextOffset | Refused]
"""An offset per partition, not validated yet, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """What every kind of start needs to know."""

    cluster: KafkaCluster
    view: ClusterView
    """With every partition asked for."""
    before: Offsets
    """The position so far, where it counts in the same log."""
    isolation: Isolation

    def log(self, partition: TopicPartition) -> LogRange:
        """Return the range of one partition."""
        return self.view.topics[partition[0]].partitions[partition[1]]

    def end(self, partition: TopicPartition) -> NextOffset:
        """Return where the job's reader would find nothing more to read now."""
        log = self.log(partition)
        return log.last_stable if self.isolation == "read_committed" else log.end
