"""Read ranges of many partitions with one consumer."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from airflow_flinkstyle.kafka.errors import (
    NOTHING_CHANGED,
    OFFSET_BEFORE_START,
    READ_STALLED,
    name_partitions,
)
from airflow_flinkstyle.kafka.fingerprints import NO_KEY, Fingerprints, fingerprint, key_print
from airflow_flinkstyle.kafka.settings import consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Consumer, KafkaError

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.types import TopicPartition

log = logging.getLogger(__name__)

_BATCH = 1000
_LOG_EVERY_S = 10.0
_POLL_S = 0.2
_LOG_APPEND_TIME = 2  # confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
_BEFORE_START = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")

STALL_S = 60.0
"""Longest wait during which no record arrives."""


class KafkaMessage(Protocol):
    """What this package uses of the client's message; the client's own stubs have None everywhere."""

    def topic(self) -> str:
        """Return the topic."""

    def partition(self) -> int:
        """Return the partition."""

    def offset(self) -> int:
        """Return the offset; of an end-of-partition event, the end."""

    def key(self) -> bytes | None:
        """Return the key."""

    def value(self) -> bytes | None:
        """Return the value; None for a tombstone."""

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        """Return the headers in the record's order."""

    def timestamp(self) -> tuple[int, int]:
        """Return kind and epoch milliseconds."""

    def error(self) -> KafkaError | None:
        """Return the error or event that is in a record's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """What to read of one partition."""

    low: int
    """First offset."""
    high: int
    """End, exclusive; at most the log's (last stable) end."""


def scan(
    cluster: KafkaCluster,
    ranges: Mapping[TopicPartition, ReadRange],
    on_record: Callable[[TopicPartition, KafkaMessage], None],
    isolation: Isolation,
    *,
    on_deleted: Callable[[TopicPartition], None] | None = None,
    stall_s: float = STALL_S,
) -> None:
    """Call ``on_record`` for every record of the ranges, in order within a partition.

    A range that ends in transaction markers or aborted records has no last record to wait for;
    the client's end-of-partition event then shows that it is read.

    ``on_deleted`` is called for a range that begins before the log's start; the other ranges are still read.

    Raises:
        FlinkstyleError: ``OFFSET_BEFORE_START`` if a range begins before the log's start and ``on_deleted``
            is not given.
        FlinkstyleError: ``READ_STALLED`` if nothing arrives for ``stall_s``.
    """
    from confluent_kafka import TopicPartition as ClientPartition

    unread = {tp: r for tp, r in ranges.items() if r.low < r.high}
    if not unread:
        return
    with consumer(cluster, isolation) as client:
        client.assign([ClientPartition(topic, number, r.low) for (topic, number), r in unread.items()])
        progress = _ReadProgress(cluster, sum(r.high - r.low for r in unread.values()))
        moved_at = time.monotonic()
        while unread:
            messages = _next(client)
            if messages:
                moved_at = time.monotonic()
                progress.add(len(messages))
            elif time.monotonic() - moved_at > stall_s:
                raise _stalled(cluster, unread, stall_s)
            _take(cluster, messages, unread, on_record, on_deleted)


def _next(client: Consumer) -> list[KafkaMessage]:
    """Return the messages that have arrived; if none has, wait for one.

    With a timeout ``consume`` waits for a full batch, also behind the last record that is wanted.
    """
    arrived = cast("list[KafkaMessage]", client.consume(_BATCH, timeout=0))
    if arrived:
        return arrived
    first = cast("KafkaMessage | None", client.poll(_POLL_S))
    return [] if first is None else [first]


class _ReadProgress:
    """Logs every few seconds how much of a long read is done."""

    def __init__(self, cluster: KafkaCluster, offsets: int) -> None:
        self._cluster, self._offsets, self._read = cluster, offsets, 0
        self._logged_at_s = time.monotonic()

    def add(self, records: int) -> None:
        self._read += records
        if time.monotonic() - self._logged_at_s > _LOG_EVERY_S:
            self._logged_at_s = time.monotonic()
            log.info("Read %d records of at most %d on %s", self._read, self._offsets, self._cluster.name)


def _take(
    cluster: KafkaCluster,
    messages: list[KafkaMessage],
    unread: dict[TopicPartition, ReadRange],
    on_record: Callable[[TopicPartition, KafkaMessage], None],
    on_deleted: Callable[[TopicPartition], None] | None,
) -> None:
    """Hand records on; remove the partitions that are read to their end.

    They stay assigned: at its end a partition costs nothing, each change of the assignment does.
    """
    for message in messages:
        tp = (message.topic(), message.partition())
        wanted = unread.get(tp)
        error = message.error()
        if error is not None and error.name() != "_PARTITION_EOF":
            if on_deleted is None or error.name() not in _BEFORE_START:
                _raise_for(cluster, tp, wanted, error)
            elif unread.pop(tp, None):
                on_deleted(tp)
            continue
        if wanted is None:
            continue
        offset = message.offset()
        if error is None and offset < wanted.high:
            on_record(tp, message)
        # After the last record the position is offset + 1; an end-of-partition event holds the position.
        if offset + (error is None) >= wanted.high:
            del unread[tp]


def _raise_for(
    cluster: KafkaCluster, tp: TopicPartition, wanted: ReadRange | None, error: KafkaError
) -> None:
    from confluent_kafka import KafkaException

    if error.name() in _BEFORE_START and wanted is not None:
        raise OFFSET_BEFORE_START.with_text(
            f"Offset {wanted.low} of {tp[0]}-{tp[1]} on {cluster} was expected to exist, but was deleted "
            "while it was read.",
            remedy="Raise the topic's retention for the time of the migration, then try again.",
        )
    if not error.retriable() or error.fatal():
        raise KafkaException(error)


def _stalled(
    cluster: KafkaCluster, unread: Mapping[TopicPartition, ReadRange], stall_s: float
) -> FlinkstyleError:
    first = min(unread)
    return READ_STALLED.with_text(
        f"Reading {name_partitions(unread)} on {cluster} up to offset {unread[first].high} stalled: "
        f"nothing arrived for {stall_s:g} s.",
        state_after=NOTHING_CHANGED,
        remedy="Check that the brokers answer and that no transaction is open there, then retry.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What makes two records of a partition and its copy the same, beside key, value and headers."""

    dated: bool = True
    """Timestamps survive the mirror; a broker that stamps records itself overwrites them."""
    keyed: bool = True
    """Keep keys and tombstones too: one of the logs is compacted."""
    ignored_headers: frozenset[str] = frozenset()
    """Names of headers that do not count."""


def read_fingerprints(
    cluster: KafkaCluster,
    wanted: Mapping[TopicPartition, Fingerprints],
    isolation: Isolation,
    identities: Mapping[TopicPartition, Identity],
) -> set[TopicPartition]:
    """Fill empty ``Fingerprints`` with the records between their ``low`` and ``high``.

    Returns the partitions of which records were deleted before they were read; their ranges lack some.

    Args:
        cluster: Where to read.
        wanted: To fill, by partition.
        isolation: The job's own; it decides what a reader sees.
        identities: What makes records the same, by partition.
    """

    def add(tp: TopicPartition, message: KafkaMessage) -> None:
        fingerprints, identity = wanted[tp], identities[tp]
        key, value, headers = message.key(), message.value(), message.headers() or ()
        kind, timestamp_ms = message.timestamp()
        if headers and identity.ignored_headers:
            headers = [header for header in headers if header[0] not in identity.ignored_headers]
        is_dated = identity.dated and kind != _LOG_APPEND_TIME
        fingerprints.newest_ms = timestamp_ms if is_dated else -1
        fingerprints.oldest_ms = min(fingerprints.oldest_ms, fingerprints.newest_ms)
        fingerprints.add(
            message.offset(),
            fingerprint(key, value, headers, timestamp_ms if is_dated else None),
            key_print(key) if fingerprints.keyed else NO_KEY,
            tombstone=value is None,
        )

    ranges = {tp: ReadRange(low=w.low, high=w.high) for tp, w in wanted.items()}
    deleted: set[TopicPartition] = set()
    scan(cluster, ranges, add, isolation, on_deleted=deleted.add)
    return deleted


def count_records(
    cluster: KafkaCluster, ranges: Mapping[TopicPartition, ReadRange], isolation: Isolation
) -> dict[TopicPartition, int]:
    """Return how many records a reader sees in each range."""
    counts = dict.fromkeys(ranges, 0)

    def add(tp: TopicPartition, _: KafkaMessage) -> None:
        counts[tp] += 1

    scan(cluster, ranges, add, isolation)
    return counts
