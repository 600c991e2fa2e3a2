"""How logs drifted between a plan and its application. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDrift:
    """Offsets per partition; partitions that did not change are left out."""

    grown: Mapping[TopicPartition, int]
    """Written since."""
    deleted: Mapping[TopicPartition, int]
    """Deleted at the log's start since, by retention or by hand."""
    truncated: Mapping[TopicPartition, int]
    """Gone from the log's end: the cluster lost them, and may give their offsets to other records."""

    def describe(self) -> str:
        """Return what changed as a sentence."""
        texts = [
            f"{len(offsets)} logs {what} {sum(offsets.values())} offsets"
            for what, offsets in (
                ("grew by", self.grown),
                ("lost their oldest", self.deleted),
                ("lost their newest", self.truncated),
            )
            if offsets
        ]
        return f"since the plan {', '.join(texts)}" if texts else "the logs are as they were planned on"


def drift_between(planned: ClusterView, live: ClusterView) -> LogDrift:
    """Compare two views of the same logs; logs that are not in both views are skipped."""
    grown: dict[TopicPartition, int] = {}
    deleted: dict[TopicPartition, int] = {}
    truncated: dict[TopicPartition, int] = {}
    for tp in planned.partitions & live.partitions:
        if not _same_log(planned, live, tp[0]):
            continue
        was, now = (view.topics[tp[0]].partitions[tp[1]] for view in (planned, live))
        for found, offsets in (
            (grown, now.end - was.end),
            (truncated, was.end - now.end),
            (deleted, now.start - was.start),
        ):
            if offsets > 0:
                found[tp] = offsets
    return LogDrift(grown=grown, deleted=deleted, truncated=truncated)


def _same_log(planned: ClusterView, live: ClusterView, topic: str) -> bool:
    is_other = ids_differ(planned.topics[topic].topic_id, live.topics[topic].topic_id)
    return not is_other and not ids_differ(planned.cluster_id, live.cluster_id)
