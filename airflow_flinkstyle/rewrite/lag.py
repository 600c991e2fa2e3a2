"""A savepoint's positions beside the live logs, a group's offsets, or another savepoint. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.route import sources_of
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange
    from airflow_flinkstyle.rewrite.rows import SourceRef
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest
    from airflow_flinkstyle.types import NextOffset, TopicPartition

Trouble = Literal[
    "topic gone", "topic recreated", "partition gone", "partition new", "deleted", "beyond the end"
]
"""Why the start guard would refuse a position on the cluster as it is now:

- ``topic recreated``: the same name with another id, so the offsets count in another log.
- ``partition new``: a live partition that the savepoint has no position for.
- ``deleted``: the records from the position on are no longer all there.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far a partition's position in a savepoint is behind its live log."""

    query: str
    source: str
    """Source name (offset log v2) or position in the query (v1)."""
    cluster_id: str | None
    topic: str
    partition: int
    offset: NextOffset | None
    """Next offset to read; None for a partition that the savepoint does not have."""
    log: LogRange | None
    """As it is now; None if it does not exist, or if the cluster was not read."""
    trouble: Trouble | None

    @property
    def behind(self) -> int | None:
        """Offsets from the position to the log's end; None where the position does not count in it."""
        if self.offset is None or self.log is None or self.trouble == "topic recreated":
            return None
        return max(0, self.log.end - self.offset)

    @property
    def deleted(self) -> int:
        """Offsets from the position on that exist no more."""
        if self.trouble != "deleted" or self.offset is None or self.log is None:
            return 0
        return self.log.start - self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """One partition in two places."""

    query: str
    source: str
    topic: str
    partition: int
    offset: NextOffset | None
    """In the savepoint; None where only the other one has the partition."""
    other: NextOffset | None
    same_log: bool
    """Whether both count in one log; else their difference means nothing."""

    @property
    def behind(self) -> int | None:
        """How many offsets the savepoint is behind the other one; negative if it is ahead."""
        if self.offset is None or self.other is None or not self.same_log:
            return None
        return self.other - self.offset


def partition_lags(manifest: Manifest, live: Iterable[ClusterView]) -> list[PartitionLag]:
    """Return the lag of each position of a savepoint.

    Args:
        manifest: The savepoint.
        live: The clusters that were read, described with those topics of the savepoint that exist.
    """
    views = {view.cluster_id: view for view in live}
    found: list[PartitionLag] = []
    for ref, position in sorted(sources_of(manifest).items()):
        view = views.get(position.cluster_id)
        offsets: dict[TopicPartition, NextOffset | None] = {**position.offsets}
        if view is not None:
            new = view.only(position.offsets.topics).partitions - offsets.keys()
            offsets.update(dict.fromkeys(new))
        found += [_partition_lag(ref, position, tp, offset, view) for tp, offset in sorted(offsets.items())]
    return found


def distances_to(manifest: Manifest, live: Iterable[tuple[ClusterView, Offsets]]) -> list[Distance]:
    """Compare positions with offsets on the clusters: a group's, or the logs' ends.

    Args:
        manifest: The savepoint. Its positions on a cluster that was not read are there, without a distance.
        live: Each cluster that was read, described with those topics of the savepoint that exist, and the
            offsets there. Partitions that only these have are left out: a group may read more than the job.
    """
    by_cluster = {view.cluster_id: (view, others) for view, others in live}
    found: list[Distance] = []
    for ref, position in sorted(sources_of(manifest).items()):
        view, others = by_cluster.get(position.cluster_id, (None, Offsets()))
        for (topic, number), offset in sorted(position.offsets.items()):
            described = view.topics.get(topic) if view is not None else None
            found.append(
                Distance(
                    query=ref.query,
                    source=ref.source,
                    topic=topic,
                    partition=number,
                    offset=offset,
                    other=others.get((topic, number)),
                    same_log=described is not None
                    and not ids_differ(position.topic_ids.get(topic), described.topic_id),
                )
            )
    return found


def distances_between(one: Manifest, other: Manifest) -> list[Distance]:
    """Compare two savepoints, source by source."""
    here, there = sources_of(one), sources_of(other)
    return [row for ref in sorted({*here, *there}) for row in _between(ref, here.get(ref), there.get(ref))]


def _between(ref: SourceRef, one: KafkaPosition | None, other: KafkaPosition | None) -> Iterator[Distance]:
    here, there = one.offsets if one else Offsets(), other.offsets if other else Offsets()
    for topic, number in sorted(here.keys() | there.keys()):
        yield Distance(
            query=ref.query,
            source=ref.source,
            topic=topic,
            partition=number,
            offset=here.get((topic, number)),
            other=there.get((topic, number)),
            same_log=bool(one and other and one.shares_log(other, topic)),
        )


def _partition_lag(
    ref: SourceRef,
    position: KafkaPosition,
    tp: TopicPartition,
    offset: NextOffset | None,
    view: ClusterView | None,
) -> PartitionLag:
    return PartitionLag(
        query=ref.query,
        source=ref.source,
        cluster_id=position.cluster_id,
        topic=tp[0],
        partition=tp[1],
        offset=offset,
        log=view.log_range(tp) if view else None,
        trouble=_trouble(position, tp, offset, view) if view else None,
    )


def _trouble(
    position: KafkaPosition, tp: TopicPartition, offset: NextOffset | None, view: ClusterView
) -> Trouble | None:
    topic, log = view.topics.get(tp[0]), view.log_range(tp)
    if topic is None:
        return "topic gone"
    if ids_differ(position.topic_ids.get(tp[0]), topic.topic_id):
        return "topic recreated"
    if log is None:
        return "partition gone"
    if offset is None:
        return "partition new"
    if offset < log.start:
        return "deleted"
    return "beyond the end" if offset > log.end else None
