"""What MirrorMaker 2 notes about its own work, decoded from its three internal topics.

- Its **positions** (the connector's offsets, on the target): the last source offset it has replicated. Only
  there, as MirrorMaker writes it; everywhere else a position is the next offset, that of a partition's first
  record that it has not replicated.
- **Offset syncs** (on the source unless set otherwise): pairs of offsets of one record in both logs. Only
  some records get one, and compaction keeps the newest per partition.
- **Checkpoints** (on the target): where it would let a consumer group continue, translated by the syncs.

Only the positions take part in a proof: they show that nothing is missing at the end. Syncs and
checkpoints show lag and serve comparison; their pairs are too far apart to prove a place.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import MessageFormatError
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import (
    NOTHING_CHANGED,
    MirrorPositionMissingError,
    MirrorTopicMissingError,
    TopicMissingError,
)
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.types import TopicPartition

_CHECKPOINT_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    """One record's offset in both logs."""

    topic: str
    """As the source calls it."""
    partition: int
    upstream: int
    """The record's offset on the source."""
    downstream: int
    """Its copy's offset on the target."""
    noted_at_ms: int
    """When MirrorMaker wrote the sync, epoch milliseconds by its clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where MirrorMaker would let a consumer group continue to read one partition."""

    group: str
    target_topic: str
    """As the target calls it."""
    partition: int
    upstream: int
    """Next offset the group had committed on the source when it was translated."""
    downstream: int
    """Next offset to read on the target instead."""
    noted_at_ms: int


def read_positions(target: KafkaCluster, mirror: MirrorSettings) -> Offsets:
    """Return per source partition how far MirrorMaker has replicated, by its own positions.

    Raises:
        MirrorPositionMissingError: If its offsets topic does not exist.
        MessageFormatError: If a record of this mirror in it cannot be understood.
    """
    topic = mirror.positions_topic
    newest: dict[bytes | None, KafkaMessage] = {}

    def keep(record: KafkaMessage) -> None:
        """Only the newest record of a key is decoded: MirrorMaker notes each position every minute."""
        key = record.key()
        newest.pop(key, None)  # so that the order is that of the newest ones
        newest[key] = record

    try:
        _read(target, topic, keep)
    except TopicMissingError as error:
        raise MirrorPositionMissingError(
            f"MirrorMaker's positions for {mirror.source_alias}->{mirror.target_alias} were expected in "
            f"topic {topic} on {target}, but there is no such topic.",
            state_after=NOTHING_CHANGED,
            remedy="Start MirrorMaker 2, or set the mirror's source_alias, or offsets_topic "
            "(Connect: its offset.storage.topic), to what it really uses.",
        ) from error
    positions: dict[TopicPartition, NextOffset] = {}
    for record in newest.values():
        entry = decode_position(record, mirror)
        if entry is None:
            continue
        partition, offset = entry
        if offset is None:
            positions.pop(partition, None)
        else:
            positions[partition] = offset
    return Offsets(positions)


def read_offset_syncs(
    source: KafkaCluster, target: KafkaCluster, mirror: MirrorSettings
) -> dict[TopicPartition, tuple[OffsetSync, ...]]:
    """Return the offset syncs that compaction has left, per source partition, in the order written.

    Raises:
        MirrorTopicMissingError: If the topic with them does not exist.
        MessageFormatError: If one of them cannot be understood.
    """
    syncs: dict[TopicPartition, list[OffsetSync]] = {}

    def keep(record: KafkaMessage) -> None:
        sync = decode_offset_sync(record)
        syncs.setdefault((sync.topic, sync.partition), []).append(sync)

    cluster = source if mirror.syncs_on == "source" else target
    try:
        _read(cluster, mirror.syncs_topic, keep)
    except TopicMissingError as error:
        raise MirrorTopicMissingError.between(mirror.syncs_topic, "offset syncs", str(cluster)) from error
    return {tp: tuple(found) for tp, found in syncs.items()}


def read_checkpoints(target: KafkaCluster, mirror: MirrorSettings) -> tuple[Checkpoint, ...]:
    """Return the newest checkpoint of each group and partition, in that order.

    Raises:
        MirrorTopicMissingError: If the topic with them does not exist.
        MessageFormatError: If one of them cannot be understood.
    """
    newest: dict[tuple[str, str, int], Checkpoint] = {}

    def keep(record: KafkaMessage) -> None:
        checkpoint = decode_checkpoint(record)
        newest[checkpoint.group, checkpoint.target_topic, checkpoint.partition] = checkpoint

    topic = mirror.checkpoints_topic
    try:
        _read(target, topic, keep)
    except TopicMissingError as error:
        raise MirrorTopicMissingError.between(topic, "checkpoints", str(target)) from error
    return tuple(checkpoint for _, checkpoint in sorted(newest.items()))


def _read(cluster: KafkaCluster, topic: str, keep: Callable[[KafkaMessage], None]) -> None:
    """Hand on every committed record of a topic, in order within a partition."""
    ranges = {
        (topic, number): ReadRange(low=log_range.start, high=log_range.last_stable)
        for number, log_range in describe(cluster, [topic]).topics[topic].partitions.items()
    }
    scan(cluster, ranges, lambda _, record: keep(record), "read_committed")


def decode_position(
    record: KafkaMessage, mirror: MirrorSettings
) -> tuple[TopicPartition, NextOffset | None] | None:
    """Return partition and position; None if the record belongs to another connector or cluster."""
    try:
        connector, place = json.loads(record.key() or b"")
        if connector != mirror.connector_name or place["cluster"] != mirror.source_alias:
            return None
        partition = (str(place["topic"]), int(place["partition"]))
        value = record.value()
        return partition, None if value is None else NextOffset(int(json.loads(value)["offset"]) + 1)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        expected = '["connector", {"cluster", "partition", "topic"}] = {"offset"} as JSON'
        raise _not_understood(record, expected, error) from error


def decode_offset_sync(record: KafkaMessage) -> OffsetSync:
    """Return the sync in a record of the offset-syncs topic: ``topic, partition -> upstream, downstream``."""
    try:
        key, value = _Fields(record.key()), _Fields(record.value())
        sync = OffsetSync(
            topic=key.text(),
            partition=key.number("i"),
            upstream=value.number("q"),
            downstream=value.number("q"),
            noted_at_ms=record.timestamp()[1],
        )
        key.end()
        value.end()
    except (ValueError, struct.error) as error:
        raise _not_understood(record, "an offset sync without a version field", error) from error
    return sync


def decode_checkpoint(record: KafkaMessage) -> Checkpoint:
    """Return the checkpoint in a record of the checkpoints topic.

    The record is ``group, topic, partition -> version, upstream, downstream, metadata``.
    """
    try:
        key, value = _Fields(record.key()), _Fields(record.value())
        value.version(_CHECKPOINT_VERSION)
        checkpoint = Checkpoint(
            group=key.text(),
            target_topic=key.text(),
            partition=key.number("i"),
            upstream=value.number("q"),
            downstream=value.number("q"),
            noted_at_ms=record.timestamp()[1],
        )
        value.text()  # the group's own metadata
        key.end()
        value.end()
    except (ValueError, struct.error) as error:
        raise _not_understood(record, f"a checkpoint of version {_CHECKPOINT_VERSION}", error) from error
    return checkpoint


class _Fields:
    """Reads one value after another in Kafka's struct encoding."""

    def __init__(self, content: bytes | None) -> None:
        if content is None:
            raise ValueError("nothing is there")
        self._content, self._at = content, 0

    def number(self, kind: str) -> int:
        """Return the next big-endian integer; ``kind`` as the ``struct`` module names it."""
        (value,) = struct.unpack_from(f">{kind}", self._content, self._at)
        self._at += struct.calcsize(kind)
        return int(value)

    def text(self) -> str:
        """Return the next string: its length in two bytes, then UTF-8."""
        length = self.number("h")
        begin, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._content):
            raise ValueError(f"a text of {length} bytes at byte {begin} of {len(self._content)}")
        return self._content[begin : self._at].decode()

    def version(self, known: int) -> None:
        """Refuse another version."""
        if (found := self.number("h")) != known:
            raise ValueError(f"version {found}")

    def end(self) -> None:
        """Refuse bytes that a newer version may have added."""
        if surplus := len(self._content) - self._at:
            raise ValueError(f"{surplus} bytes more than expected")


def _not_understood(record: KafkaMessage, expected: str, error: Exception) -> MessageFormatError:
    return MessageFormatError(
        f"Record {record.offset()} of {record.topic()}-{record.partition()} should be {expected}, but it has "
        f"{error}: its key is {record.key()!r:.200}, its value {record.value()!r:.200}.",
        state_after=NOTHING_CHANGED,
        remedy="Check that the mirror's settings name MirrorMaker's own topics; if they do, a newer "
        "MirrorMaker wrote this, and a newer airflow-flinkstyle may know it.",
    )
