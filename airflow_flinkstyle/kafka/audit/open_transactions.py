"""Name the transactions that hold a log's end back, from the brokers' own transaction log.

The client cannot ask brokers for it, so ``__transaction_state`` is read: its newest record per
transactional id holds state, partitions, producer and time-out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from airflow_flinkstyle.errors import FlinkstyleError, MessageFormatError
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import NOTHING_CHANGED, ClusterDeniedError, TopicMissingError
from airflow_flinkstyle.kafka.reading import ReadRange, scan

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.fence.fencing import Moving
    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.types import TopicPartition

_TOPIC = "__transaction_state"
State = Literal["Ongoing", "PrepareCommit", "PrepareAbort"]
"""As Kafka's own tools call it; the second and third end by themselves."""
_UNENDED: Final[dict[int, State]] = {1: "Ongoing", 2: "PrepareCommit", 3: "PrepareAbort"}
_NEWEST_VERSION = 1
_STALL_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that has neither committed nor aborted."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    """After which the brokers abort it."""
    state: State
    partitions: frozenset[TopicPartition]
    updated_ms: int
    """When it last took a partition in or changed its state, by the broker's clock."""
    started_ms: int
    """When it began, by the broker's clock."""

    @property
    def lineage(self) -> str:
        """The lineage, if the id is as those of a transactional sink: lineage, dash, shard; else empty."""
        lineage, _, shard = self.transactional_id.rpartition("-")
        return lineage if shard == "complete" or shard.isdigit() else ""

    def __str__(self) -> str:
        """Return the ids of its producer, and its time-out."""
        return (
            f"transactional.id {self.transactional_id} (producer {self.producer_id}, epoch {self.epoch}, "
            f"time-out {self.timeout_ms / 1000:g} s)"
        )


def open_transactions(cluster: KafkaCluster) -> list[OpenTransaction]:
    """Return every open transaction of the cluster, the oldest first.

    Raises:
        ClusterDeniedError: If the credentials may not read the transaction log.
        MessageFormatError: If its records are of a version this package does not know.
    """
    newest: dict[bytes, bytes | None] = {}

    def keep(_: TopicPartition, message: KafkaMessage) -> None:
        newest[message.key() or b""] = message.value()

    try:
        logs = describe(cluster, [_TOPIC]).topics[_TOPIC].partitions
        ranges = {(_TOPIC, number): ReadRange(low=log.start, high=log.end) for number, log in logs.items()}
        scan(cluster, ranges, keep, "read_uncommitted", stall_s=_STALL_S)
    except TopicMissingError:  # the first transaction of a cluster creates it
        return []
    except ClusterDeniedError as error:
        raise _denied(cluster) from error
    found = [parse(key, value) for key, value in newest.items() if value is not None]
    return sorted((one for one in found if one is not None), key=lambda one: one.started_ms)


def explain(cluster: KafkaCluster, moving: Moving) -> str:
    """Return what moved, and whose transactions are open, or why that could not be read."""
    sentence = f"{moving.describe()} (cluster {cluster.name})"
    if not moving.open_transactions:
        return sentence
    try:
        found = [t for t in open_transactions(cluster) if t.partitions & moving.open_transactions.keys()]
    except FlinkstyleError as error:
        return f"{sentence} Whose transactions they are could not be read: {error.problem}"
    return f"{sentence} They belong to {', '.join(sorted(map(str, found))) or 'no producer any more'}."


def parse(key: bytes, value: bytes) -> OpenTransaction | None:
    """Read a record of the transaction log; None if its transaction has ended.

    Raises:
        MessageFormatError: If its version is unknown, or it is cut short.
    """
    try:
        return _parse(key, value)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise _unknown(f"{value[:40]!r} ({error})") from error


def _parse(key: bytes, value: bytes) -> OpenTransaction | None:
    head, body = _Bytes(key), _Bytes(value)
    head.number("h")
    transactional_id = head.text(head.number("h"))
    version = body.number("h")
    if version not in range(_NEWEST_VERSION + 1):
        raise _unknown(f"version {version}")
    producer_id, epoch, timeout_ms, status = (body.number(kind) for kind in "qhib")
    if status not in _UNENDED:
        return None
    partitions = frozenset(_partitions(body, compact=version > 0))
    updated_ms, started_ms = body.number("q"), body.number("q")
    return OpenTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=_UNENDED[status],
        partitions=partitions,
        updated_ms=updated_ms,
        started_ms=started_ms,
    )


def _partitions(body: _Bytes, *, compact: bool) -> list[TopicPartition]:
    """Read the list of topics; from version 1 on lengths are varints, one more than they count."""

    def length(kind: str) -> int:
        return body.varint() - 1 if compact else body.number(kind)

    found = []
    for _ in range(length("i")):
        topic = body.text(length("h"))
        found += [(topic, body.number("i")) for _ in range(length("i"))]
        if compact:
            body.skip_tags()
    return found


class _Bytes:
    """Bytes that are read from the front, in Kafka's own encoding."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, kind: str) -> int:
        found: int = struct.unpack_from(f">{kind}", self._data, self._at)[0]
        self._at += struct.calcsize(kind)
        return found

    def skip(self, length: int) -> None:
        self._at += length

    def text(self, length: int) -> str:
        self.skip(length)
        return self._data[self._at - length : self._at].decode()

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def _denied(cluster: KafkaCluster) -> ClusterDeniedError:
    return ClusterDeniedError(
        f"The credentials of Kafka cluster {cluster} were expected to be allowed to read {_TOPIC}, which "
        "shows whose transactions are open, but were denied it.",
        state_after=NOTHING_CHANGED,
        remedy=f"Allow their principal READ and DESCRIBE on topic {_TOPIC}; or ask with "
        "kafka-transactions.sh list, as a user who has DESCRIBE on the transactional ids.",
    )


def _unknown(found: str) -> MessageFormatError:
    return MessageFormatError(
        f"A record of {_TOPIC} of version 0 to {_NEWEST_VERSION} was expected, found {found}.",
        state_after=NOTHING_CHANGED,
        remedy="Use kafka-transactions.sh describe-producers to see who holds the partition.",
    )
