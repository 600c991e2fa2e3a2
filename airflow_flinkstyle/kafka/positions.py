"""Positions that people choose; specific offsets for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicPartition, require_positions
from airflow_flinkstyle.kafka.errors import (
    NOTHING_CHANGED,
    OffsetBeforeStartError,
    OffsetBeyondEndError,
    PartitionSetError,
    TopicMissingError,
)
from airflow_flinkstyle.kafka.verdict import Chosen
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_within_log(positions: Mapping[TopicPartition, int], view: ClusterView, where: str) -> None:
    """Check that there is one position per live partition, and that each lies in its log.

    Args:
        positions: Next offset to read per partition.
        view: The live cluster, described with every topic of ``positions``.
        where: Name of the cluster for messages.

    Raises:
        BadInputError: If there is no position, or a symbolic one (-1, -2).
        TopicMissingError: If the view lacks a topic.
        PartitionSetError: If live partitions and positions are not the same set.
        OffsetBeforeStartError: If records the position asks for are deleted.
        OffsetBeyondEndError: If the log does not reach the position.
    """
    require_positions(positions)
    absent = {topic for topic, _ in positions} - view.topics.keys()
    if absent:
        raise TopicMissingError.on(where, absent)
    missing, unknown = view.partitions - positions.keys(), positions.keys() - view.partitions
    if missing or unknown:
        raise PartitionSetError.between(where, missing=missing, unknown=unknown)
    for (topic, number), offset in sorted(positions.items()):
        _require_inside(topic, number, offset, view.topics[topic].partitions[number], where)


def _require_inside(topic: str, number: int, offset: int, log: LogRange, where: str) -> None:
    name = f"Position {offset} of {topic}-{number} on {where}"
    if offset < log.start:
        raise OffsetBeforeStartError(
            f"{name} should lie between {log.start} and {log.end}, but the log starts {log.start - offset} "
            "offsets later: those records are deleted.",
            left=NOTHING_CHANGED,
            remedy=f"Choose an offset from {log.start} on and accept the gap, or raise the topic's retention "
            "before the next try.",
        )
    if offset > log.end:
        raise OffsetBeyondEndError(
            f"{name} should lie between {log.start} and {log.end}, but the log ends {offset - log.end} "
            "offsets before it.",
            left=NOTHING_CHANGED,
            remedy="Check that the position belongs to this cluster and topic; an offset of another "
            "cluster must be translated (PlanOffsetRewriteOperator).",
        )


def specific_offsets(
    chosen: Mapping[TopicPartition, int],
    view: ClusterView,
    where: str,
    before: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, Chosen]:
    """Return the offsets a person chose, checked, each with what it skips and repeats.

    Args:
        chosen: Next offset to read, for every live partition and no other.
        view: The live cluster.
        where: Name of the cluster for messages.
        before: The position so far **in the same log**; None if it belongs to another cluster.
    """
    require_within_log(chosen, view, where)
    return {tp: _chosen(offset, before.get(tp) if before else None) for tp, offset in chosen.items()}


def _chosen(offset: int, before: int | None) -> Chosen:
    if before is None:
        return Chosen(NextOffset(offset), skipped_records=None, repeated_records=None)
    return Chosen(
        NextOffset(offset),
        skipped_records=max(0, offset - before),
        repeated_records=max(0, before - offset),
    )
