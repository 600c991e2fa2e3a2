"""Write one shard of one batch in one transaction, unless its marker says that it is there.

The phases are Flink's: begin, pre-commit (the flush), commit, abort. The marker makes the commit the proof
that the batch was written: no second phase is needed, and nothing can be committed twice.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.sinks.control_topic import marker_partition, read_marker
from airflow_flinkstyle.sinks.errors import (
    REPLAYS,
    LineageError,
    PlanChangedError,
    ReplayDiffersError,
    RunSupersededError,
    ShardCountError,
)
from airflow_flinkstyle.sinks.marker import Marker
from airflow_flinkstyle.sinks.pool import WORKER
from airflow_flinkstyle.sinks.producer import open_producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Producer

    from airflow_flinkstyle.sinks.settings import Phase, SinkSettings

WRAP = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some records of a shard, and the sum of their hashes."""

    records: Iterable[tuple[Any, ...]]
    """As the client's ``produce`` takes them, by position: an object for each would cost more than that."""
    count: int
    digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWritten:
    """What became of one shard of one batch."""

    shard: int
    records: int
    skipped: bool
    """The marker was there: an earlier attempt had written it."""
    phase_s: dict[str, float] = field(default_factory=dict)


def write_shard(
    settings: SinkSettings, batch_id: int, shard: int, plan: str, chunks: Iterable[Chunk]
) -> ShardWritten:
    """Write a shard of a batch once, however often it is called.

    Args:
        settings: The sink.
        batch_id: Spark's; grows within a lineage.
        shard: From 0.
        plan: What the records are made with.
        chunks: The shard's records; read at most once.

    Raises:
        PlanChangedError: If the shard was written before with other columns.
        ReplayDiffersError: If it was written before with other records.
        LineageError: If a later batch was written before.
        ShardCountError: If a later run has begun to write with another number of shards.
        RunSupersededError: If a later run has begun to write.
        ProducerFencedError: If another attempt has begun, or time ran out; nothing of this one is visible.
        ProducersPoolEmptyError: If this process writes too many shards at the same time.
    """
    watch = _Watch(settings, batch_id, shard)
    transactional_id = settings.transactional_id(shard)
    watch.enter("init")
    place = WORKER.place(transactional_id, size=settings.producer_pool_size)
    with place, open_producer(settings, transactional_id) as producer:
        before = read_marker(settings, shard)
        if before is not None and before.batch_id >= batch_id:
            watch.enter("skip")
            count = _require_same(settings, batch_id, shard, plan, before, chunks)
            return ShardWritten(shard=shard, records=count, skipped=True, phase_s=watch.stop())
        _require_claimed(settings, shard, before)
        watch.enter("begin")
        producer.begin_transaction()
        try:
            count = _write(producer, settings, watch, plan, chunks)
        except BaseException:
            watch.enter("abort")
            with suppress(Exception):  # the next attempt's init aborts it all the same
                producer.abort_transaction(5.0)
            raise
        settings.tell(batch_id, shard, "done")
    return ShardWritten(shard=shard, records=count, skipped=False, phase_s=watch.stop())


def final_answer(write: Callable[[], ShardWritten]) -> ShardWritten | FlinkstyleError:
    """Return what became of a shard, or the error that no other attempt of the task can mend.

    Spark would try a task that fails several times. A driver that was frozen and wakes tries shards that were
    written long ago; each time it would fence, in vain, who writes them now.
    """
    try:
        return write()
    except FlinkstyleError as error:
        if error.retryable:
            raise
        return error


def written_by_all(answers: Iterable[ShardWritten | FlinkstyleError]) -> list[ShardWritten]:
    """Return the shards of a batch, or raise the error that one of them ended with."""
    written = []
    for answer in answers:
        if isinstance(answer, FlinkstyleError):
            raise answer
        written.append(answer)
    return written


def _write(
    producer: Producer, settings: SinkSettings, watch: _Watch, plan: str, chunks: Iterable[Chunk]
) -> int:
    watch.enter("data")
    count, digest, produce = 0, 0, producer.produce
    for chunk in chunks:
        for record in chunk.records:
            try:
                produce(*record)
            except BufferError:
                _produce_when_sent(producer, record)
        count, digest = count + chunk.count, (digest + chunk.digest) % WRAP
    watch.enter("pre-commit")
    producer.flush()
    watch.enter("marker")
    made = Marker(batch_id=watch.batch_id, records=count, digest=digest, plan=plan, run=settings.run)
    producer.produce(
        settings.control_topic,
        made.to_bytes(),
        settings.transactional_id(watch.shard),
        partition=marker_partition(watch.shard),
    )
    watch.enter("commit")
    producer.commit_transaction()
    return count


def _produce_when_sent(producer: Producer, record: tuple[Any, ...]) -> None:
    """Wait until the brokers have taken so much that the queue has room again."""
    while True:
        producer.poll(0.01)
        try:
            producer.produce(*record)
        except BufferError:
            continue
        return


def _require_claimed(settings: SinkSettings, shard: int, before: Marker | None) -> None:
    """Check that the shard is this run's to write.

    A task of a driver that was frozen may begin when a later run has gone on: on a lineage that came back
    from another cluster even with a batch that no marker here knows. Its init ends nobody's work for good;
    this check is what keeps it from writing.
    """
    if before is not None and before.shards != settings.shards:
        raise _another_number(settings, shard, before)
    if settings.run and (before is None or before.run != settings.run):
        raise RunSupersededError.of(settings.lineage, shard)


def _another_number(settings: SinkSettings, shard: int, before: Marker) -> ShardCountError:
    return ShardCountError(
        f"Shard {shard} of lineage {settings.lineage} was expected to be one of {settings.shards}, but a "
        f"later run has begun to write with {before.shards}.",
        left=REPLAYS,
        remedy="Nothing is to be done if the job goes on; else look for a second driver of it.",
    )


def _require_same(
    settings: SinkSettings, batch_id: int, shard: int, plan: str, before: Marker, chunks: Iterable[Chunk]
) -> int:
    """Check that a shard that was written holds what would be written now; returns the number of records."""
    if before.batch_id > batch_id:
        raise LineageError(
            f"Shard {shard} of lineage {settings.lineage} was expected to end before batch {batch_id}, but "
            f"has written batch {before.batch_id}: an older state was restored.",
            left="Nothing was written; the batch would have been left out silently.",
            remedy="Start the job with rewind=fork (a new lineage) or re-emit.",
        )
    if before.plan != plan:
        raise PlanChangedError.of(batch_id, [shard])
    seen = summed(chunks)
    if seen != (before.records, before.digest):
        raise ReplayDiffersError.of(batch_id, [shard])
    return seen[0]


def summed(chunks: Iterable[Chunk]) -> tuple[int, int]:
    """Return records and digest of what would be written; nothing is."""
    count, digest = 0, 0
    for chunk in chunks:
        count, digest = count + chunk.count, (digest + chunk.digest) % WRAP
    return count, digest


class _Watch:
    """Tells phases as they begin, and how long each took."""

    def __init__(self, settings: SinkSettings, batch_id: int, shard: int) -> None:
        self.settings, self.batch_id, self.shard = settings, batch_id, shard
        self._spent: dict[str, float] = {}
        self._phase: Phase | None = None
        self._since_s = time.monotonic()

    def enter(self, phase: Phase) -> None:
        self.stop()
        self._phase = phase
        self.settings.tell(self.batch_id, self.shard, phase)

    def stop(self) -> dict[str, float]:
        now_s = time.monotonic()
        if self._phase is not None:
            self._spent[self._phase] = self._spent.get(self._phase, 0.0) + now_s - self._since_s
        self._since_s = now_s
        return self._spent
