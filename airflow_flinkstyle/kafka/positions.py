"""Whether positions lie in the live logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, require_positions
from airflow_flinkstyle.kafka.errors import (
    CLUSTER_MISMATCH,
    OFFSET_BEFORE_START,
    OFFSET_BEYOND_END,
    PartitionSetError,
    TopicMissingError,
    TopicRecreatedError,
)
from airflow_flinkstyle.kafka.verdict import Chosen, Refused
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.types import NextOffset, TopicPartition


def require_same_log(
    cluster_id: str | None,
    topic_ids: Mapping[str, str | None],
    view: ClusterView,
    where: str,
    *,
    may_be_gone: bool = False,
) -> None:
    """Check that a cluster and its topics are those in which positions were recorded.

    An id that is missing, then or now, is not compared: only the logs' ends can then show another log.

    Args:
        cluster_id: As recorded; None if the cluster had none.
        topic_ids: As recorded, by topic.
        view: The live cluster, described with these topics.
        where: What the positions belong to, for messages.
        may_be_gone: Topics may be absent (``subscribePattern``): the caller decides about these.

    Raises:
        FlinkstyleError: ``CLUSTER_MISMATCH`` if it is another cluster.
        TopicMissingError: If the view lacks a topic.
        TopicRecreatedError: If a topic has the same name and is another one.
    """
    if ids_differ(cluster_id, view.cluster_id):
        raise CLUSTER_MISMATCH.with_text(
            f"its positions belong to Kafka cluster {cluster_id}, "
            f"but its options reach cluster {view.cluster_id}.",
            remedy="Correct kafka.bootstrap.servers; or, if the job is to read that cluster, plan and apply "
            "a rewrite (PlanOffsetRewriteOperator) and resume from the new savepoint.",
        )
    for topic, topic_id in topic_ids.items():
        live = view.topics.get(topic)
        if live is None:
            if may_be_gone:
                continue
            raise TopicMissingError.on(f"of {where}", [topic])
        if ids_differ(topic_id, live.topic_id):
            raise TopicRecreatedError.between(where, topic, expected=topic_id, found=live.topic_id)


def require_within_log(positions: Offsets, view: ClusterView, where: str) -> None:
    """Check that there is one position per live partition, and that each lies in its log.

    Args:
        positions: Next offset to read per partition.
        view: The live cluster, described with every topic of ``positions``.
        where: Name of the cluster for messages.

    Raises:
        BadInputError: If there is no position, or a symbolic one (-1, -2).
        TopicMissingError: If the view lacks a topic.
        PartitionSetError: If live partitions and positions are not the same set.
        FlinkstyleError: ``OFFSET_BEFORE_START`` if records the position asks for are deleted.
        FlinkstyleError: ``OFFSET_BEYOND_END`` if the log does not reach the position.
    """
    require_positions(positions)
    require_partitions(positions.keys(), view, where)
    require_inside(positions, view, where)


def require_resumable(positions: Offsets, view: ClusterView, where: str) -> None:
    """Check that Spark can continue from positions; it reads newer partitions from their beginning.

    Raises:
        PartitionSetError: If there is a position for a partition that does not exist.
        FlinkstyleError: Whatever else ``require_within_log`` raises.
    """
    require_positions(positions)
    if absent := positions.topics - view.topics.keys():
        raise TopicMissingError.on(where, absent)
    if unknown := positions.keys() - view.partitions:
        raise PartitionSetError.between(where, missing=(), unknown=unknown)
    require_inside(positions, view, where)


def require_partitions(partitions: Collection[TopicPartition], view: ClusterView, where: str) -> None:
    """Check that the partitions are exactly the live ones of their topics.

    Raises:
        TopicMissingError: If the view lacks a topic.
        PartitionSetError: If a live partition is left out, or one is named that does not exist.
    """
    given, topics = frozenset(partitions), {topic for topic, _ in partitions}
    absent = topics - view.topics.keys()
    if absent:
        raise TopicMissingError.on(where, absent)
    live = {tp for tp in view.partitions if tp[0] in topics}
    if given != live:
        raise PartitionSetError.between(where, missing=live - given, unknown=given - live)


def require_inside(positions: Offsets, view: ClusterView, where: str) -> None:
    """Check that each position lies in its log; partitions the view lacks are skipped.

    Raises:
        FlinkstyleError: ``OFFSET_BEFORE_START`` if records the position asks for are deleted.
        FlinkstyleError: ``OFFSET_BEYOND_END`` if the log does not reach the position.
    """
    for tp, offset in sorted(positions.items()):
        log_range = view.log_range(tp)
        if log_range is not None:
            _require_inside(*tp, offset, log_range, where)


def _require_inside(topic: str, number: int, offset: NextOffset, log: LogRange, where: str) -> None:
    name = f"Position {offset} of {topic}-{number} on {where}"
    if offset < log.start:
        raise OFFSET_BEFORE_START.with_text(
            f"{name} should lie between {log.start} and {log.end}, but the log starts {log.start - offset} "
            "offsets later: those records are deleted.",
            remedy=f"Choose an offset from {log.start} on and accept the gap, or raise the topic's retention "
            "before the next try.",
        )
    if offset > log.end:
        raise OFFSET_BEYOND_END.with_text(
            f"{name} should lie between {log.start} and {log.end}, but the log ends {offset - log.end} "
            "offsets before it.",
            remedy="Check that the position belongs to this cluster and topic; an offset of another "
            "cluster must be translated (PlanOffsetRewriteOperator, flinkstyle offsets plan).",
        )


def validate_position(offset: NextOffset, log: LogRange, before: NextOffset | None) -> Chosen | Refused:
    """Return a position that a person picked with what it skips and repeats, or why it cannot be used.

    Args:
        offset: Next offset to read.
        log: The partition's offsets.
        before: The position so far **in the same log**; None if it counts in another one.
    """
    if offset < log.start:
        return Refused(
            f"position {offset} lies {log.start - offset} offsets before the log's start {log.start}: "
            "those records are deleted",
            None,
        )
    if offset > log.end:
        return Refused(
            f"position {offset} lies {offset - log.end} offsets behind the log's end {log.end}", None
        )
    if before is None:
        return Chosen(offset, skipped_records=None, repeated_records=None)
    return Chosen(
        offset,
        skipped_records=max(0, offset - before),
        repeated_records=max(0, before - offset),
    )
