"""How MirrorMaker 2 is doing: its own notes, compared with what both clusters hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.errors import MirrorTopicMissingError
from airflow_flinkstyle.kafka.mirror.lag import lag_above
from airflow_flinkstyle.kafka.mirror.topics import read_checkpoints, read_offset_syncs, read_positions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.mirror.topics import Checkpoint, OffsetSync
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.types import NextOffset, TopicPartition


_HEARTBEATS = "heartbeats"
"""Where MirrorMaker writes every second, so that its copy is always a little behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition and its copy."""

    topic: str
    partition: int
    target_topic: str
    source_end: int
    """The offset that the next record on the source gets."""
    target_end: int | None
    """The same on the target; None if the partition does not exist there."""
    mirrored_to: NextOffset | None
    """The first source offset that MirrorMaker has not replicated, as it notes; None before its first."""
    lag_records: int
    """Source records from there on; offsets instead of records where they are many."""
    last_sync: OffsetSync | None

    @property
    def in_sync(self) -> bool:
        """True if nothing is missing on the target, as far as MirrorMaker has noted it."""
        return self.lag_records == 0 and self.target_end is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredGroup:
    """Where MirrorMaker would let a consumer group continue, and how much it would read there."""

    group: str
    topic: str
    """As the source calls it."""
    partition: int
    upstream: int
    """Next offset the group had committed on the source when MirrorMaker translated it."""
    downstream: int
    """Next offset on the target instead: near the right place, before it as a rule."""
    noted_at_ms: int
    unread_on_source: int | None
    """Offsets from ``upstream`` to the source's end; None if that is before it: the topic was created
    again."""
    unread_on_target: int | None
    """Offsets from ``downstream`` to the target's end. If these are more than from ``upstream``, that many
    are read again, not counting markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    """What a mirror notes about itself and what is in both clusters, at one moment."""

    looked_at_ms: int
    partitions: tuple[PartitionStatus, ...]
    groups: tuple[MirroredGroup, ...]
    absent: tuple[str, ...]
    """MirrorMaker's own topics that do not exist, syncs or checkpoints: it may be set to write neither."""

    @property
    def in_sync(self) -> bool:
        """True if every partition is in sync; a mirror that mirrors nothing is not."""
        return bool(self.partitions) and all(partition.in_sync for partition in self.partitions)

    @property
    def newest_sync_age_s(self) -> float | None:
        """Seconds since MirrorMaker's newest offset sync; a mirror with nothing to copy writes none."""
        noted = [one.last_sync.noted_at_ms for one in self.partitions if one.last_sync is not None]
        return (self.looked_at_ms - max(noted)) / 1000 if noted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorNotes:
    """What MirrorMaker's internal topics hold."""

    positions: Offsets
    syncs: Mapping[TopicPartition, tuple[OffsetSync, ...]]
    checkpoints: tuple[Checkpoint, ...]
    absent: tuple[str, ...]
    """Topics with syncs or checkpoints that do not exist."""


def mirror_status(
    source: KafkaCluster,
    target: KafkaCluster,
    mirror: MirrorSettings,
    topics: Collection[str] | None = None,
) -> MirrorStatus:
    """Read MirrorMaker's topics and both clusters; writes nothing.

    Args:
        source: The cluster that is mirrored.
        target: The cluster that holds the copy.
        mirror: MirrorMaker's settings.
        topics: Source topics; all that MirrorMaker has a position for by default, but its own heartbeats.

    Raises:
        MirrorPositionMissingError: If its offsets topic does not exist.
        TopicMissingError: If a topic that was asked for does not exist on the source.
        MessageFormatError: If MirrorMaker's topics cannot be understood.
    """
    notes = read_notes(source, target, mirror)
    if topics is None:  # MirrorMaker keeps the positions of topics that were deleted since
        topics = {topic for topic, _ in notes.positions if not is_heartbeats(topic)} & existing_topics(source)
    # As in a proof: the source after MirrorMaker's positions, the target last.
    view = describe(source, topics)
    lag = lag_above(source, mirror, view, notes.positions)
    copies = {mirror.target_topic(topic) for topic in topics} & existing_topics(target)
    return status_of(mirror, notes, lag, source=view, target=describe(target, copies), looked_at_ms=now_ms())


def is_heartbeats(topic: str) -> bool:
    """Return whether a topic is MirrorMaker's own, or the copy of one by its default policy."""
    return topic.rpartition(".")[2] == _HEARTBEATS


def read_notes(source: KafkaCluster, target: KafkaCluster, mirror: MirrorSettings) -> MirrorNotes:
    """Read MirrorMaker's three topics.

    Raises:
        MirrorPositionMissingError: If its offsets topic does not exist.
        MessageFormatError: If one of them cannot be understood.
    """
    positions = read_positions(target, mirror)
    syncs: Mapping[TopicPartition, tuple[OffsetSync, ...]] = {}
    checkpoints: tuple[Checkpoint, ...] = ()
    absent = []
    try:
        syncs = read_offset_syncs(source, target, mirror)
    except MirrorTopicMissingError:
        absent.append(mirror.syncs_topic)
    try:
        checkpoints = read_checkpoints(target, mirror)
    except MirrorTopicMissingError:
        absent.append(mirror.checkpoints_topic)
    return MirrorNotes(positions=positions, syncs=syncs, checkpoints=checkpoints, absent=tuple(absent))


def status_of(
    mirror: MirrorSettings,
    notes: MirrorNotes,
    lag: Mapping[TopicPartition, int],
    *,
    source: ClusterView,
    target: ClusterView,
    looked_at_ms: int,
) -> MirrorStatus:
    """Compare MirrorMaker's notes with what both clusters hold. Pure.

    Args:
        mirror: MirrorMaker's settings.
        notes: What its topics hold.
        lag: Source records above its positions, for every partition of ``source``.
        source: The source's topics that are asked about.
        target: Their copies, those that exist.
        looked_at_ms: The clock, epoch milliseconds.
    """
    partitions = []
    for tp in sorted(source.partitions):
        target_topic, syncs = mirror.target_topic(tp[0]), notes.syncs.get(tp)
        copy = target.log_range((target_topic, tp[1]))
        partitions.append(
            PartitionStatus(
                topic=tp[0],
                partition=tp[1],
                target_topic=target_topic,
                source_end=source.topics[tp[0]].partitions[tp[1]].end,
                target_end=copy.end if copy else None,
                mirrored_to=notes.positions.get(tp),
                lag_records=lag[tp],
                last_sync=syncs[-1] if syncs else None,
            )
        )
    return MirrorStatus(
        looked_at_ms=looked_at_ms,
        partitions=tuple(partitions),
        groups=tuple(_groups(partitions, notes.checkpoints)),
        absent=notes.absent,
    )


def _groups(
    partitions: Iterable[PartitionStatus], checkpoints: Iterable[Checkpoint]
) -> Iterator[MirroredGroup]:
    copies = {(one.target_topic, one.partition): one for one in partitions}
    for checkpoint in checkpoints:
        one = copies.get((checkpoint.target_topic, checkpoint.partition))
        if one is not None and one.target_end is not None:
            yield MirroredGroup(
                group=checkpoint.group,
                topic=one.topic,
                partition=one.partition,
                upstream=checkpoint.upstream,
                downstream=checkpoint.downstream,
                noted_at_ms=checkpoint.noted_at_ms,
                unread_on_source=_unread(checkpoint.upstream, one.source_end),
                unread_on_target=_unread(checkpoint.downstream, one.target_end),
            )


def _unread(position: int, end: int) -> int | None:
    return end - position if position <= end else None
