"""The transactional Kafka sink as a ``foreachBatch`` function."""

from __future__ import annotations

import hashlib
import logging
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks import frame as frames
from airflow_flinkstyle.sinks.control_reading import unreadable
from airflow_flinkstyle.sinks.control_topic import default_name
from airflow_flinkstyle.sinks.decisions import records_there
from airflow_flinkstyle.sinks.errors import SINK_CONFIG, TransactionLeftOpenError
from airflow_flinkstyle.sinks.left_open import output_ends
from airflow_flinkstyle.sinks.lineage import open_lineage
from airflow_flinkstyle.sinks.marker import Completion
from airflow_flinkstyle.sinks.resume import SinkState, expected, note_failure, note_state
from airflow_flinkstyle.sinks.running_query import RunningQuery
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.small import SmallBatches
from airflow_flinkstyle.sinks.source_offsets import SourceOffsets
from airflow_flinkstyle.sinks.spread import Spread, is_last_attempt, most_attempts
from airflow_flinkstyle.sinks.task import final_answer, summed, write_shards, written_by_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.sinks.lineage import Opened
    from airflow_flinkstyle.sinks.readable_records import ReadableRecords
    from airflow_flinkstyle.sinks.settings import OnPhase
    from airflow_flinkstyle.sinks.shard import ShardWritten

log = logging.getLogger(__name__)
_QUERY_ID = "sql.streaming.queryId"
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWritten:
    """What became of a batch."""

    batch_id: int
    records: int
    skipped_shards: int
    """Shards that an earlier attempt had written."""
    phase_s: Mapping[str, float]
    """Seconds by phase, of the slowest shard in each."""
    marked: tuple[int, ...]
    """Shards whose newest marker is this batch's; none where Spark knew beforehand that there are no rows."""
    size_bytes: int = 0
    """Of the records' rows in memory; 0 if they were not written now."""
    from_driver: bool = False
    """The driver wrote them, in one transaction: the batch was small."""


class TransactionalKafkaSink:
    """Writes each record of a stream once, for readers with ``isolation.level=read_committed``.

    Use it where the stream is written::

        sink = TransactionalKafkaSink({"bootstrap.servers": "..."}, topic="totals", shards=4)
        frame.writeStream.foreachBatch(sink.foreach_batch).option("checkpointLocation", ...).start()

    The frame has the columns of Spark's own Kafka sink. A batch becomes visible shard by shard; readers that
    want whole batches wait for the lineage's completion record. The plan must be deterministic.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        topic: str | None = None,
        shards: int,
        lineage: str | None = None,
        control_topic: str | None = None,
        transaction_timeout_ms: int = 300_000,
        materialise: bool = False,
        commit_offsets: str | bool = False,
        producer_pool_size: int = 5,
        small_batch_rows: int = 1000,
        on_phase: OnPhase | None = None,
    ) -> None:
        """Describe the sink; nothing is connected to before the first batch.

        Args:
            config: Client settings in librdkafka's names, ``bootstrap.servers`` at least.
            topic: For records without a ``topic`` column.
            shards: Transactions that share a batch; a multiple of the cores that write.
            lineage: Names the batch numbering; default: the query's id, which a fork changes.
            control_topic: Default: ``flinkstyle-<lineage>.internal``.
            transaction_timeout_ms: How long one task's shards of a batch may take.
            materialise: Store each batch in the checkpoint before it is written, so that a plan that is not
                deterministic can be used.
            commit_offsets: Commit how far the Kafka sources were read together with each batch's completion:
                for this group, or with True for the one that their option ``kafka.group.id`` names. Sources
                and sink must be in one cluster.
            producer_pool_size: Shards that one task writes at the same time, at most.
            small_batch_rows: Batches with so many rows at most are written by the driver, in one transaction,
                once the batch before was small too; 0: none.
            on_phase: Called with batch, shard and phase, in the worker, or in the driver for a small batch.
        """
        self._cluster = KafkaCluster(name="sink", config=dict(config))
        self._topic, self._shards, self._lineage = topic, shards, lineage
        self._control_topic = control_topic
        self._timeout_ms, self._on_phase = transaction_timeout_ms, on_phase
        self._materialise, self._commit_offsets = materialise, commit_offsets
        self._pool_size, self._small_rows = producer_pool_size, small_batch_rows
        self._runs: dict[str, _Run] = {}
        self.last_batch: BatchWritten | None = None
        """What became of the newest batch of this run."""

    @property
    def named_lineage(self) -> str | None:
        """The lineage as it was given; None for the query's id."""
        return self._lineage

    @property
    def commits_offsets(self) -> bool:
        """Whether it commits offsets for a consumer group."""
        return bool(self._commit_offsets)

    @property
    def place(self) -> tuple[str, str | None]:
        """Servers, and the topic; None if each record names its own."""
        return self._cluster.bootstrap_servers, self._topic

    def foreach_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; for ``writeStream.foreachBatch``."""
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        try:
            self.last_batch = self._write(frame, query_id, batch_id)
        except BaseException as error:
            self._runs.pop(query_id, None)
            if isinstance(error, FlinkstyleError):
                note_failure(query_id, error)
            raise

    def _write(self, frame: DataFrame, query_id: str, batch_id: int) -> BatchWritten:
        """Write a batch; if brokers have left a transaction open, in a new run, which ends that first."""
        tries_left = _TRIES
        while True:
            run = self._runs.get(query_id)
            if run is None or run.next_batch != batch_id:  # the query has been started (again)
                run = self._runs[query_id] = self._open(frame, query_id, batch_id)
            try:
                return run.write(frame, batch_id)
            except TransactionLeftOpenError as error:
                tries_left -= 1
                if not tries_left:
                    raise
                log.warning("Batch %d is written again: %s", batch_id, error)
                del self._runs[query_id]

    def _open(self, frame: DataFrame, query_id: str, batch_id: int) -> _Run:
        require_no_speculation(frame.sparkSession)
        own = self._lineage or query_id
        resume = expected(query_id, own)
        settings = replace(
            self._settings(own, resume.lineage_of(own) if resume else own),
            topics_vary="topic" in frame.columns,
        )
        opened = open_lineage(settings, query_id=query_id, batch_id=batch_id, resume=resume)
        consumed, query = None, None
        if self._materialise or self._commit_offsets:
            query = RunningQuery(frame.sparkSession, query_id)
        if query is not None and self._commit_offsets:
            consumed = SourceOffsets(
                query, self._commit_offsets, cluster=self._cluster, cluster_id=opened.cluster_id
            )
        return _Run(
            settings=settings,
            query_id=query_id,
            next_batch=batch_id,
            opened=opened,
            small=SmallBatches(settings, most_rows=self._small_rows),
            stored_by=query if self._materialise else None,
            consumed=consumed,
        )

    def _settings(self, own: str, lineage: str) -> SinkSettings:
        named = self._control_topic
        if named is not None and lineage != own:
            # A topic of its own: an open transaction of the old lineage would hide the new one's markers.
            named = f"{lineage}.{named}"
        return SinkSettings(
            cluster=self._cluster,
            topic=self._topic,
            lineage=lineage,
            shards=self._shards,
            control_topic=named or default_name(lineage),
            transaction_timeout_ms=self._timeout_ms,
            producer_pool_size=self._pool_size,
            run=uuid.uuid4().hex,
            on_phase=self._on_phase,
        )


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of a query: from the first batch after a start to the query's end."""

    settings: SinkSettings
    query_id: str
    next_batch: int
    opened: Opened
    small: SmallBatches
    stored_by: RunningQuery | None
    """Whose checkpoint takes the batches first; None if they are not stored."""
    consumed: SourceOffsets | None
    """What is committed with each completion; None for nothing."""
    state: SinkState = field(init=False)
    readable: ReadableRecords | None = field(init=False)
    """Records of the first batch that the output may hold."""

    def __post_init__(self) -> None:
        settings, opened = self.settings, self.opened
        self.readable = opened.readable
        self.state = SinkState(
            lineage=settings.lineage,
            shards=settings.shards,
            control_topic=settings.control_topic,
            cluster_id=opened.cluster_id,
            completed_batch=opened.completed.batch_id,
            markers={shard: marker.batch_id for shard, marker in opened.markers.items()},
            commits_group=self.consumed.group if self.consumed else None,
        )
        note_state(self.query_id, self.state)

    def write(self, frame: DataFrame, batch_id: int) -> BatchWritten:
        settings = self.settings
        frames.require_columns(frame.schema, topic=settings.topic)
        plan = frames.plan_of(frame.schema, settings)
        if self.stored_by is not None:
            frame = materialised(frame, self.stored_by, settings.lineage, batch_id)
        written = self._already_written(frame, batch_id, plan)
        if written is None:
            written = self._from_driver(frame, batch_id, plan) or self._by_tasks(frame, batch_id, plan)
            if left_open := unreadable(settings, written.marked, batch_id):
                raise TransactionLeftOpenError.of(settings.control_topic, left_open)
            self._complete(written)
        self.small.note(records=written.records, size_bytes=written.size_bytes)
        self.next_batch = batch_id + 1
        self.state = replace(self.state, completed_batch=batch_id)
        note_state(self.query_id, self.state)
        log.info("Lineage %s: %s", settings.lineage, written)
        return written

    def _already_written(self, frame: DataFrame, batch_id: int, plan: str) -> BatchWritten | None:
        """Compare a batch that an earlier run has written with what it would be now, before it is written.

        Returns:
            The batch if all of it was written; None if some of it or all is still to be written.
        """
        was, complete = self.opened.written(batch_id), self.opened.completed.batch_id == batch_id
        records = records_there(
            batch_id,
            was,
            complete=complete,
            plan=plan,
            totals=lambda: _totals(Spread.of(frame, self.settings)),
        )
        if records is None:
            return None
        return BatchWritten(
            batch_id=batch_id, records=records, skipped_shards=len(was), phase_s={}, marked=tuple(was)
        )

    def _from_driver(self, frame: DataFrame, batch_id: int, plan: str) -> BatchWritten | None:
        """Write a small batch; None if it is not small.

        Not the first one of a run, of which an earlier run may have written a part: no batch before it tells
        that it is small.
        """
        rows = self.small.rows(frame)
        if rows is None:
            return None
        written = summed_up(batch_id, self.small.write(batch_id, rows, plan))
        return replace(written, from_driver=True)

    def _by_tasks(self, frame: DataFrame, batch_id: int, plan: str) -> BatchWritten:
        self.small.release()
        return _write(Spread.of(frame, self.settings), self.settings, batch_id, plan, self.readable)

    def _complete(self, written: BatchWritten) -> None:
        batch_id = written.batch_id
        self.readable = None
        completion = Completion(
            batch_id=batch_id,
            records=written.records,
            shards=self.settings.shards,
            query_id=self.query_id,
            ends=output_ends(self.settings),
        )
        self.opened.completer.complete(completion, self.consumed.of(batch_id) if self.consumed else None)
        self.state = with_markers(self.state, written)


def _write(
    rows: Spread, settings: SinkSettings, batch_id: int, plan: str, readable: ReadableRecords | None
) -> BatchWritten:
    most = most_attempts(rows.records.sparkSession)

    def write(batches: Iterator[pa.RecordBatch], shards: range) -> list[ShardWritten] | FlinkstyleError:
        chunks = frames.chunks_of(batches, settings.topic, shards)
        return final_answer(
            lambda: write_shards(settings, batch_id, shards, plan, chunks, readable),
            is_last=is_last_attempt(most),
        )

    answers = rows.answers(write)
    return summed_up(batch_id, written_by_all(answers, settings.shards))


def summed_up(batch_id: int, results: Sequence[ShardWritten]) -> BatchWritten:
    """Put together what became of a batch's shards; there are none of an empty batch. Pure."""
    phase_s: dict[str, float] = {}
    for result in results:
        for phase, seconds in result.phase_s.items():
            phase_s[phase] = max(seconds, phase_s.get(phase, 0.0))
    return BatchWritten(
        batch_id=batch_id,
        records=sum(result.records for result in results),
        skipped_shards=sum(result.skipped for result in results),
        phase_s=phase_s,
        marked=tuple(sorted(result.shard for result in results)),
        size_bytes=sum(result.size_bytes for result in results),
    )


def with_markers(state: SinkState, written: BatchWritten) -> SinkState:
    """Note the markers that a batch has written: an empty one leaves those of the batch before. Pure."""
    return replace(state, markers={**state.markers, **dict.fromkeys(written.marked, written.batch_id)})


def _totals(rows: Spread) -> dict[int, tuple[int, int]]:
    """Return records and digest per shard."""

    def totals(batches: Iterator[pa.RecordBatch], shards: range) -> dict[int, tuple[int, int]]:
        return summed(frames.chunks_of(batches, None, shards), shards)

    return {shard: found for answer in rows.answers(totals) for shard, found in answer.items()}


def require_no_speculation(session: SparkSession) -> None:
    """Check that Spark does not run tasks speculatively: two attempts would fence each other.

    Raises:
        FlinkstyleError: ``SINK_CONFIG`` if it does.
    """
    asked = session.sparkContext.getConf().get("spark.speculation") or ""
    if asked.strip().lower() == "true":  # Spark takes any case
        raise SINK_CONFIG.with_text(
            "spark.speculation was expected to be off, found that it is on: two attempts of a shard "
            "would fence each other for ever.",
            state_after="Nothing was written.",
            remedy="Set spark.speculation=false.",
        )


_FOLDER = "materialised"
_STATE = "state"
"""Spark makes it when it plans the first batch of a query with state, and of no other."""


def materialised(frame: DataFrame, query: RunningQuery, lineage: str, batch_id: int) -> DataFrame:
    """Return a batch's rows as they were stored when it was run first; they are stored if it is now.

    ``materialised/<lineage>/<batch>-<hash of its plan>/<attempt>`` holds the rows; the file ``chosen`` beside
    it names the attempt that counts, and is created once. An attempt that was killed on the way, or comes
    second, is never read. A folder goes once Spark has committed its batch, which is sure when the next one
    begins.

    Args:
        frame: The rows as the plan makes them now; not computed if they were stored before.
        query: Whose batch it is.
        lineage: Under which it is written.
        batch_id: The batch.

    Raises:
        FlinkstyleError: ``SINK_CONFIG`` if the query has state.
    """
    _require_no_state(query)
    plan = hashlib.sha256(query.planned(batch_id).encode()).hexdigest()[:16]
    parent, kept = f"{_FOLDER}/{lineage}", f"{batch_id}-{plan}"
    for name in query.folders(parent):
        if int(name.partition("-")[0]) < batch_id:  # a driver that lags behind leaves the newer ones
            query.delete(f"{parent}/{name}")
    folder = f"{parent}/{kept}"
    if query.read(f"{folder}/chosen") is None:
        attempt = uuid.uuid4().hex
        frame.write.parquet(f"{query.checkpoint}/{folder}/{attempt}")
        query.create(f"{folder}/chosen", attempt)
    chosen = query.read(f"{folder}/chosen")
    return frame.sparkSession.read.schema(frame.schema).parquet(f"{query.checkpoint}/{folder}/{chosen}")


def _require_no_state(query: RunningQuery) -> None:
    """Refuse a query with state: a batch that is read from what was stored does not run its plan.

    So Spark would miss what the plan reports: the watermark does not move, and the state stores report no
    commit. Then 4.2 fails behind the batch's commit; with state checkpoint ids it can never commit it.
    """
    if query.folders(_STATE):
        raise SINK_CONFIG.with_text(
            f"materialise expected a query without state, found {query.checkpoint}/{_STATE}: a batch "
            "that is run again is read from what was stored, so its plan would report to Spark neither the "
            "state's commits nor the watermark.",
            state_after="Nothing was written.",
            remedy="Leave out materialise, and what is not deterministic; or write the totals to a topic "
            "first, and do the rest in a query of its own, with materialise.",
        )
