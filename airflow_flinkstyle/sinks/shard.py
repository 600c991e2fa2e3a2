"""One shard of one batch in one transaction, unless its marker shows that it was written.

The phases are Flink's: begin, pre-commit (the flush), commit, abort. The marker makes the commit the proof
that the batch was written: no second phase is needed, and nothing can be committed twice.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.sinks.control_reading import read_shard
from airflow_flinkstyle.sinks.decisions import require_same_shard, written_before
from airflow_flinkstyle.sinks.errors import TransactionLeftOpenError
from airflow_flinkstyle.sinks.marker import WRAP, Marker
from airflow_flinkstyle.sinks.producer import initialised_producer, send_marker, translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confluent_kafka import KafkaError, Producer

    from airflow_flinkstyle.sinks.readable_records import ReadableRecords
    from airflow_flinkstyle.sinks.settings import Phase, SinkSettings

ABORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some records of a shard, and the sum of their hashes."""

    shard: int
    records: Iterable[tuple[Any, ...]]
    """As the client's ``produce`` takes them, by position: an object for each would cost more than that."""
    count: int
    digest: int
    size_bytes: int = 0
    """Of their rows in Arrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWritten:
    """What became of one shard of one batch."""

    shard: int
    records: int
    skipped: bool
    """The marker was there: an earlier attempt had written it."""
    size_bytes: int = 0
    """Of the records' rows in Arrow."""
    phase_s: dict[str, float] = field(default_factory=dict)


class ShardTransaction:
    """Writes one shard of one batch once, however often it is tried: open, add, pre-commit, commit; or abort.

    Methods may be called in any thread, one at a time.
    """

    def __init__(
        self,
        settings: SinkSettings,
        batch_id: int,
        shard: int,
        plan: str,
        readable: ReadableRecords | None = None,
    ) -> None:
        """Describe the shard; nothing is connected to before it is opened.

        Args:
            settings: The sink.
            batch_id: Spark's; grows within a lineage.
            shard: From 0.
            plan: What the records are made with.
            readable: Records that the output holds already; they are not written again.
        """
        self.shard = shard
        self._readable = readable
        self._settings, self._batch_id, self._plan = settings, batch_id, plan
        self._id = settings.transactional_id(shard)
        self._watch = PhaseWatch(settings, batch_id, [shard])
        self._producer: Producer | None = None
        """None before and after the transaction, and in a replay of a shard that was written."""
        self._undelivered: list[KafkaError] = []
        self._before: Marker | None = None
        self._count, self._digest, self._size_bytes = 0, 0, 0

    def open(self, queue_kib: int) -> None:
        """Fence every earlier attempt; begin a transaction, unless the shard was written before.

        Args:
            queue_kib: Records that wait in memory to be sent, at most.

        Raises:
            FlinkstyleError: As ``written_before`` raises them.
        """
        self._watch.enter("init")
        with translated(self._settings, self._id):
            producer = initialised_producer(
                self._settings, self._id, queue_kib=queue_kib, undelivered=self._undelivered
            )
            found = read_shard(self._settings, self.shard)
            # Before ``left_open``: a later run's driver may be writing all shards of a small batch.
            self._before = written_before(
                self._settings,
                found.marker,
                shard=self.shard,
                batch_id=self._batch_id,
                plan=self._plan,
            )
            if self._before is not None:
                self._watch.enter("skip")
                return
            if found.left_open:
                raise TransactionLeftOpenError.of(self._settings.control_topic, [self.shard])
            self._watch.enter("begin")
            producer.begin_transaction()
            self._producer = producer
            if found.marker is not None:  # sent again: if brokers leave this transaction open, it shows
                with self._translated():
                    send_marker(self._settings, producer, self.shard, found.marker)
            self._watch.enter("data")

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._settings, self._id, self._producer, self._undelivered)

    def add(self, chunk: Chunk) -> None:
        """Send records, or only count them in a replay.

        Raises:
            ProducerFencedError: If another attempt has begun, or time ran out.
        """
        if self._producer is not None:
            with self._translated():
                records = chunk.records if self._readable is None else self._readable.missing(chunk.records)
                produce(self._producer, records)
        self._count, self._digest = self._count + chunk.count, (self._digest + chunk.digest) % WRAP
        self._size_bytes += chunk.size_bytes

    def pre_commit(self) -> None:
        """Flush what was added; in a replay, compare it with what was written before.

        Raises:
            FlinkstyleError: ``REPLAY_DIFFERS`` if the shard was written before with other records.
            ProducerFencedError: If another attempt has begun, or time ran out; nothing is visible.
        """
        if self._producer is not None:
            self._watch.enter("pre-commit")
            with self._translated():
                self._producer.flush()
        elif self._before is not None:
            require_same_shard(self._batch_id, self.shard, self._before, (self._count, self._digest))

    def commit(self) -> ShardWritten:
        """Make what was added visible, together with its marker.

        Raises:
            ProducerFencedError: If another attempt has begun, or time ran out; nothing is visible.
            FlinkstyleError: ``RECORD_REFUSED`` if the broker did not take a record; nothing is visible.
        """
        producer, settings = self._producer, self._settings
        if producer is not None:
            marker = Marker(
                batch_id=self._batch_id,
                records=self._count,
                digest=self._digest,
                plan=self._plan,
                run=settings.run,
            )
            with self._translated():
                self._watch.enter("marker")
                send_marker(settings, producer, self.shard, marker)
                self._watch.enter("commit")
                producer.commit_transaction()
            self._producer = None
            self._watch.enter("done")
        return ShardWritten(
            shard=self.shard,
            records=self._count,
            size_bytes=self._size_bytes,
            skipped=self._before is not None,
            phase_s=self._watch.stop(),
        )

    def abort(self) -> None:
        """End a transaction that is open; it is no error if no broker answers."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._watch.enter("abort")
            with suppress(Exception):  # the next attempt's init aborts it all the same
                producer.abort_transaction(ABORT_TIMEOUT_S)


def produce(producer: Producer, records: Iterable[tuple[Any, ...]]) -> None:
    """Add records to what a producer sends; waits where its queue is full."""
    add = producer.produce
    for record in records:
        try:
            add(*record)
        except BufferError:
            _produce_when_sent(producer, record)


def _produce_when_sent(producer: Producer, record: tuple[Any, ...]) -> None:
    """Wait until the brokers have taken so much that the queue has room again."""
    while True:
        producer.poll(0.002)
        try:
            producer.produce(*record)
        except BufferError:
            continue
        return


class PhaseWatch:
    """Reports the phases of shards that are written together, and measures how long each took."""

    def __init__(self, settings: SinkSettings, batch_id: int, shards: Sequence[int]) -> None:
        """Begin to watch; ``shards`` are those whose phases are reported."""
        self._settings, self._batch_id, self._shards = settings, batch_id, shards
        self._spent: dict[str, float] = {}
        self._phase: Phase | None = None
        self._since_s = time.monotonic()

    def enter(self, phase: Phase) -> None:
        """Note the end of the phase before, and the begin of this one."""
        self.stop()
        self._phase = phase
        for shard in self._shards:
            self._settings.report_phase(self._batch_id, shard, phase)

    def stop(self) -> dict[str, float]:
        """Return the seconds spent by phase."""
        now_s = time.monotonic()
        if self._phase is not None:
            self._spent[self._phase] = self._spent.get(self._phase, 0.0) + now_s - self._since_s
        self._since_s = now_s
        return self._spent
