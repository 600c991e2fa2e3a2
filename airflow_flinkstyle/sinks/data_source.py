"""The transactional Kafka sink as ``writeStream.format("kafka-transactional")``.

The same core as ``foreachBatch``'s, with other hands: Spark asks for a writer in a Python process of the
driver before each batch, lets the tasks write with it, and commits in a process of the driver again. None of
them knows the script's objects. So the lineage is looked at before each batch; each task, which alone knows
query and batch, checks that they follow what was found; and the commit completes the batch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.sinks import frame as frames
from airflow_flinkstyle.sinks.decisions import require_follows, require_same_batch
from airflow_flinkstyle.sinks.errors import SinkConfigError, SinkInputError
from airflow_flinkstyle.sinks.lineage import complete_next, settled, written_by
from airflow_flinkstyle.sinks.marker import Completion
from airflow_flinkstyle.sinks.options import settings_of
from airflow_flinkstyle.sinks.speculation import require_no_speculation
from airflow_flinkstyle.sinks.task import final_answer, summed, write_shards
from airflow_flinkstyle.sinks.whole_input import whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_flinkstyle.sinks.settings import SinkSettings

NAME = "kafka-transactional"
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_SHARDS = "shards"
"""Under this name the shard column's metadata tells over how many shards the rows are spread."""
log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Make ``format("kafka-transactional")`` known to a session."""
    spark.dataSource.register(KafkaTransactional)


def sharded(frame: DataFrame, shards: int) -> DataFrame:
    """Return the rows as records, spread over shards by their keys; to be written as they are.

    A sink of Spark's cannot spread rows itself::

        register(spark)
        sharded(totals, 4).writeStream.format("kafka-transactional").option("lineage", "totals")...

    Args:
        frame: With the columns of Spark's own Kafka sink.
        shards: Transactions that share a batch; about as many as cores that write.

    Raises:
        SinkInputError: If a column is missing, unknown, or of another type.
        SinkConfigError: If tasks are run speculatively.
    """
    require_no_speculation(frame.sparkSession)
    frames.require_columns(frame.schema, topic="the option's")
    return frames.spread(frame, shards=shards, tasks=shards).withMetadata(frames.SHARD, {_SHARDS: shards})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDone(WriterCommitMessage):
    """What a task tells the commit."""

    query_id: str
    shard: int
    records: int
    digest: int = 0
    """Of a batch that was complete before; 0 for one that was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRefused(WriterCommitMessage):
    """What a task tells the commit if no other attempt could do better."""

    error: FlinkstyleError


class KafkaTransactional(DataSource):
    """Spark's way to the sink."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> ShardWriter:
        """Return the writer of the next batch; called in the driver, before it and again to commit it."""
        settings = settings_of(self.options, _shards(schema))
        if settings.topic is None and "topic" not in schema.fieldNames():
            raise SinkInputError(
                "A topic was expected, found neither option topic nor a column topic.",
                left="Nothing was written.",
                remedy="Give one of them, as for Spark's own Kafka sink.",
            )
        return ShardWriter(settings, frames.plan_of(schema, settings), settled(settings))


def _shards(schema: StructType) -> int:
    shards = next((f.metadata.get(_SHARDS) for f in schema.fields if f.name == frames.SHARD), None)
    if shards is None or frames.HASH not in schema.fieldNames():
        raise SinkConfigError(
            f"Format {NAME} expected rows that are spread over shards, found the columns "
            f"{', '.join(schema.fieldNames())}.",
            left="Nothing was written.",
            remedy="Write sharded(frame, n).writeStream (airflow_flinkstyle.sinks.data_source), with nothing "
            "between the two.",
        )
    return int(shards)


class ShardWriter(DataSourceStreamArrowWriter):
    """Writes the shards of a batch in the tasks, and completes it in the driver."""

    def __init__(self, settings: SinkSettings, plan: str, completed: Completion | None) -> None:
        self._settings, self._plan, self._completed = settings, plan, completed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ShardDone | ShardRefused:
        """Write one shard, in a task."""
        shard, query_id, batch_id = _place()
        if shard >= self._settings.shards:
            raise SinkConfigError(
                f"The rows were expected in {self._settings.shards} partitions, found one numbered {shard}.",
                left="Shards may have been written; none of them is part of a complete batch.",
                remedy="Write what sharded(frame, n) returns, with nothing between it and writeStream.",
            )
        require_follows(self._settings, self._completed, query_id=query_id, batch_id=batch_id)
        if self._is_complete(batch_id):  # perhaps with another number of shards
            chunks = frames.chunks_of(whole(iterator), None, [shard])
            records, digest = summed(chunks, [shard])[shard]
            return ShardDone(query_id=query_id, shard=shard, records=records, digest=digest)
        chunks = frames.chunks_of(whole(iterator), self._settings.topic, [shard])
        done = final_answer(lambda: write_shards(self._settings, batch_id, [shard], self._plan, chunks))
        if isinstance(done, FlinkstyleError):
            return ShardRefused(error=done)
        return ShardDone(query_id=query_id, shard=shard, records=done[0].records)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Complete the batch, in the driver."""
        for message in messages:
            if isinstance(message, ShardRefused):
                raise message.error
        done = [message for message in messages if isinstance(message, ShardDone)]
        found = sorted(message.shard for message in done)
        if found != list(range(self._settings.shards)):
            raise SinkConfigError(
                f"Batch {batchId} was expected to be written by {self._settings.shards} shards, found shards "
                f"{found}.",
                left="What was written stays; the batch is not complete.",
                remedy="Write what sharded(frame, n) returns, with nothing between it and writeStream.",
            )
        if self._is_complete(batchId):
            now = [(message.records, message.digest) for message in done]
            require_same_batch(batchId, written_by(self._settings, batchId), now)
            return
        completion = Completion(
            batch_id=batchId,
            records=sum(message.records for message in done),
            shards=self._settings.shards,
            query_id=done[0].query_id,
        )
        complete_next(self._settings, completion)
        log.info("Lineage %s: %s", self._settings.lineage, completion)

    def _is_complete(self, batch_id: int) -> bool:
        return self._completed is not None and self._completed.batch_id == batch_id

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave it to the next attempt, which finds by the markers what was committed."""
        log.warning("Lineage %s: batch %d is to be run again", self._settings.lineage, batchId)


def _place() -> tuple[int, str, int]:
    """Return this task's shard, query and batch."""
    context = TaskContext.get()
    if context is None:  # pragma: no cover - only a task calls this
        raise RuntimeError("a shard is written by a Spark task")
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        raise SinkConfigError(
            f"Spark was expected to tell its tasks the batch ({_BATCH_ID}, as 4.2 does), found "
            f"query {query_id} and batch {batch_id}.",
            left="Nothing was written.",
            remedy="Use TransactionalKafkaSink with foreachBatch.",
        )
    return context.partitionId(), query_id, int(batch_id)
