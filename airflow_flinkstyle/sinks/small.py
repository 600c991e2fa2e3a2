"""Small batches, written by the driver itself: all shards in one transaction, without shuffle and workers.

A batch of a few rows spends almost all of its time in Spark: in a shuffle, and in Python workers. So its
rows are collected, and one producer writes them with the markers of all shards.

The transaction is that of shard 0's id. Every run that begins initialises that id, and notes itself in the
marker, before anything else is written: so a driver that has initialised it, and finds its own run in shard
0's marker, is the only writer until another one initialises it; after that it can commit nothing. A late task
of an earlier attempt, of whichever shard, finds this run or this batch in its marker, and writes nothing.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.sinks import frame as frames
from airflow_flinkstyle.sinks.control_reading import read_shards
from airflow_flinkstyle.sinks.decisions import require_same_shard, written_before
from airflow_flinkstyle.sinks.errors import TransactionLeftOpenError
from airflow_flinkstyle.sinks.marker import Marker
from airflow_flinkstyle.sinks.producer import initialised_producer, send_marker, translated
from airflow_flinkstyle.sinks.settings import SMALL_BATCH_SHARD
from airflow_flinkstyle.sinks.shard import ABORT_TIMEOUT_S, PhaseWatch, ShardWritten, produce
from airflow_flinkstyle.sinks.spread import set_confs
from airflow_flinkstyle.sinks.task import summed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka import KafkaError, Producer
    from pyspark.sql import DataFrame, Row

    from airflow_flinkstyle.sinks.settings import SinkSettings
    from airflow_flinkstyle.sinks.shard import Chunk

MOST_BYTES: Final = 8 << 20
"""Of a batch that the driver takes: it is in its memory several times."""
_TRIES = 3
_MOST_PATIENCE = 64
_CONFS = {
    "spark.sql.adaptive.enabled": "false",  # as for a spread: asking takes its time
    "spark.sql.limit.initialNumPartitions": "100000",  # all at once: by default one, then four, then ...
}
log = logging.getLogger(__name__)


class SmallBatches:
    """Writes the small batches of one run, as long as batches are small."""

    def __init__(self, settings: SinkSettings, *, most_rows: int) -> None:
        """Describe; nothing is connected to before the first small batch.

        Args:
            settings: The sink, whose lineage this run has opened.
            most_rows: Of a small batch; 0 for none.
        """
        self._settings, self._most_rows = settings, most_rows
        self._id = settings.transactional_id(SMALL_BATCH_SHARD)
        self._shards = range(settings.shards)
        self._producer: Producer | None = None
        """Initialised, with nothing begun; None if another may have initialised its id since."""
        self._undelivered: list[KafkaError] = []
        self._streak, self._patience = 0, 1

    # --- which batches ------------------------------------------------------------------------

    def rows(self, frame: DataFrame) -> pa.RecordBatch | None:
        """Return the rows of a batch if it is small; None if it is not, or is not expected to be.

        The batches before decide what is expected: a plan whose batch is large after all runs twice.
        """
        if not self._most_rows or self._streak < self._patience:
            return None
        found = collected(frames.records_of(frame, shards=self._settings.shards), self._most_rows)
        if found is None:
            self._streak, self._patience = 0, min(2 * self._patience, _MOST_PATIENCE)
        return found

    def note(self, *, records: int, size_bytes: int) -> None:
        """Note how large the newest batch was, written by the driver or by tasks."""
        small = records <= self._most_rows and size_bytes <= MOST_BYTES
        self._streak = self._streak + 1 if small else 0

    # --- how they are written -----------------------------------------------------------------

    def write(self, batch_id: int, rows: pa.RecordBatch, plan: str) -> list[ShardWritten]:
        """Write a batch once, however often it is called.

        Args:
            batch_id: Spark's; grows within a lineage.
            rows: All of the batch.
            plan: What its records are made with.

        Raises:
            FlinkstyleError: As ``ShardTransaction`` does. Nothing of the batch is visible then, or all is.
        """
        tries_left = _TRIES
        while True:
            tries_left -= 1
            try:
                return self._write(batch_id, rows, plan)
            except FlinkstyleError as error:
                # The next try initialises the id again. That ends this attempt, or shows that it was
                # committed; or that a later run has begun, and nothing is written any more.
                if not error.retryable or isinstance(error, TransactionLeftOpenError) or not tries_left:
                    raise
                log.warning("Batch %d is written again: %s", batch_id, error)

    def release(self) -> None:
        """Let tasks write: shard 0's fences this producer."""
        self._producer = None

    def _write(self, batch_id: int, rows: pa.RecordBatch, plan: str) -> list[ShardWritten]:
        settings, watch = self._settings, PhaseWatch(self._settings, batch_id, self._shards)
        chunks = list(frames.chunks_of(iter([rows]), settings.topic, self._shards))
        totals = summed(chunks, self._shards)
        before: dict[int, Marker] = {}
        if self._producer is None:
            watch.enter("init")
            before = self._open(batch_id, plan)
        producer, self._producer = self._producer, None
        if producer is None:
            raise AssertionError("it was initialised")
        for shard, marker in before.items():
            require_same_shard(batch_id, shard, marker, totals[shard])
        new_markers = {
            shard: Marker(batch_id=batch_id, records=count, digest=digest, plan=plan, run=settings.run)
            for shard, (count, digest) in totals.items()
            if shard not in before
        }
        if new_markers:
            wanted = [chunk for chunk in chunks if chunk.shard in new_markers]
            with translated(settings, self._id, producer, self._undelivered):
                self._transact(producer, new_markers, wanted, watch)
        watch.enter("done" if new_markers else "skip")
        self._producer = producer
        phase_s = watch.stop()
        return [
            ShardWritten(
                shard=shard,
                records=totals[shard][0],
                size_bytes=rows.nbytes if shard == SMALL_BATCH_SHARD else 0,
                skipped=shard in before,
                phase_s=phase_s,
            )
            for shard in self._shards
        ]

    def _transact(
        self, producer: Producer, markers: Mapping[int, Marker], chunks: Sequence[Chunk], watch: PhaseWatch
    ) -> None:
        try:
            watch.enter("begin")
            producer.begin_transaction()
            watch.enter("marker")  # first: if the transaction is left open, every shard shows it
            for shard, marker in markers.items():
                send_marker(self._settings, producer, shard, marker)
            watch.enter("data")
            for chunk in chunks:
                produce(producer, chunk.records)
            watch.enter("pre-commit")
            producer.flush()
            watch.enter("commit")
            producer.commit_transaction()
        except BaseException:
            with suppress(Exception):  # the next init aborts it all the same
                producer.abort_transaction(ABORT_TIMEOUT_S)
            raise

    def _open(self, batch_id: int, plan: str) -> dict[int, Marker]:
        """Initialise the producer; returns the markers of shards that have written the batch already.

        Raises:
            FlinkstyleError: As ``written_before`` raises them.
            TransactionLeftOpenError: If something of the lineage is left open.
        """
        settings = self._settings
        self._undelivered.clear()
        with translated(settings, self._id):
            producer = initialised_producer(settings, self._id, undelivered=self._undelivered)
            found = read_shards(settings, self._shards)
        written = {}
        for shard, one in found.items():  # before ``left_open``: a later run may be at work
            before = written_before(settings, one.marker, shard=shard, batch_id=batch_id, plan=plan)
            if before is not None:
                written[shard] = before
        if left_open := [shard for shard, one in found.items() if one.left_open and shard not in written]:
            raise TransactionLeftOpenError.of(settings.control_topic, left_open)
        self._producer = producer
        return written


def collected(records: DataFrame, most_rows: int) -> pa.RecordBatch | None:
    """Return the rows of a batch; None if they are more.

    Args:
        records: As ``frames.records_of`` makes them. Each of its partitions is run, as the state of a query
            needs it, unless one alone has too many rows.
        most_rows: How many may be returned.
    """
    from pyarrow import RecordBatch, array
    from pyspark.sql.pandas.types import to_arrow_schema

    with set_confs(records.sparkSession, _CONFS):
        rows = _whole(records.limit(most_rows + 1))
    if len(rows) > most_rows:
        return None
    schema = to_arrow_schema(records.schema)
    columns = [array([_plain(row[at]) for row in rows], kind) for at, kind in enumerate(schema.types)]
    return RecordBatch.from_arrays(columns, schema=schema)


def _whole(frame: DataFrame) -> list[Row]:
    """Collect rows, and be sure that none is missing.

    ``collect`` takes the end of its connection for the end of the rows, also when the JVM was killed. What
    came until then must not be committed.
    """
    return served_rows(frame, frame._jdf.collectToPython())  # noqa: SLF001  # as ``collect`` of PySpark


def served_rows(frame: DataFrame, served: Any) -> list[Row]:  # noqa: ANN401  # an array of Java
    """Return the rows that the JVM serves, and raise Py4J's error if it has not served all of them."""
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    load = vars(sys.modules[type(frame).collect.__module__])["_load_from_socket"]
    read = load(served, BatchedSerializer(CPickleSerializer()))  # type: ignore[no-untyped-call]
    if hasattr(read, "__enter__"):  # since Spark 4.2
        with read as stream:
            rows = list(stream)
    else:
        rows = list(read)
    served[2].getResult()  # the JVM has written all of them, else this raises
    return rows


def _plain(value: Any) -> Any:  # noqa: ANN401  # whatever a column holds
    """Return what Arrow takes for a value of a row: headers are lists of rows."""
    if isinstance(value, list):
        return [one.asDict() for one in value]
    return value
