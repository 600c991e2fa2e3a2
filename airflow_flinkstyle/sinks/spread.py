"""A batch spread over Spark tasks, each of which is given all of its rows, and answers for its shards."""

from __future__ import annotations

import pickle
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_flinkstyle.sinks.errors import INPUT_CUT, SINK_CONFIG
from airflow_flinkstyle.sinks.frame import spread
from airflow_flinkstyle.sinks.task import shards_of_task, tasks_for
from airflow_flinkstyle.spark_versions import ends_the_rows_of_a_killed_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import BufferedReader
    from types import FrameType

    import pyarrow as pa
    from pyspark import RDD, TaskContext
    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.sinks.settings import SinkSettings

T = TypeVar("T")


def whole(batches: Iterator[T]) -> Iterator[T]:
    """Yield what a task is given, and check that Spark ended it; to be read in the task's own thread.

    Spark hands them to the Python worker as a stream of Arrow batches. Arrow takes a connection that breaks
    off between two batches for the end of the stream. It breaks off when the JVM is killed, and when that
    cannot read on (an executor is lost, and with it the rest of a shuffle). What came until then must not be
    committed. After the rows the JVM writes that there are no more, whatever the worker does meanwhile.

    Raises:
        FlinkstyleError: ``INPUT_CUT`` if the rows break off.
        FlinkstyleError: ``SINK_CONFIG`` if this version of PySpark does not show it.
    """
    connection = _connection()
    yield from batches
    if not connection.peek(1):
        raise INPUT_CUT.error()


def _connection() -> BufferedReader:
    """Return what the worker reads from; PySpark has no call for it, but ``worker.main`` always has it."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name == "main" and "infile" in frame.f_code.co_varnames:
            found: BufferedReader = frame.f_locals["infile"]
            return found
        frame = frame.f_back
    raise SINK_CONFIG.with_text(
        "PySpark's worker was expected to read a task's rows in a function main(infile, ...), as 3.5 to 4.2 "
        "do, but no such function is running: whether all rows have come cannot be checked.",
        state_after="Nothing was written.",
        remedy="Use a version of PySpark that the package supports.",
    )


_ANSWER = "answer binary"
_CONFS = {
    "spark.sql.adaptive.enabled": "false",  # with one shuffle it gains nothing, and takes time
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",  # the default fills a worker's memory with rows
}
"""Set for the sink's own job, not for the rest of the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A batch's records, spread over tasks that write some shards each."""

    records: DataFrame
    tasks: int
    shards: int

    @classmethod
    def of(cls, frame: DataFrame, settings: SinkSettings) -> Spread:
        """Spread a batch by its keys, over as many tasks as the job has cores for at this moment."""
        cores = frame.sparkSession.sparkContext.defaultParallelism
        tasks = tasks_for(settings.shards, cores=cores, pool_size=settings.producer_pool_size)
        records = spread(frame, shards=settings.shards, tasks=tasks)
        return cls(records=records, tasks=tasks, shards=settings.shards)

    def answers(self, work: Callable[[Iterator[pa.RecordBatch], range], object]) -> list[Any]:
        """Return what each task answers to its rows and the shards they belong to."""
        tasks, shards = self.tasks, self.shards

        def found_in(batches: Iterator[pa.RecordBatch]) -> object:
            return work(whole(batches), shards_of_task(_task(), tasks=tasks, shards=shards))

        def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow

            yield pyarrow.RecordBatch.from_pydict({"answer": [pickle.dumps(found_in(batches))]})

        session = self.records.sparkSession
        with set_confs(session, _CONFS):
            if ends_the_rows_of_a_killed_task(session.sparkContext._jvm):  # noqa: SLF001
                batches = _in_arrow(self.records)
                return list(batches.mapPartitions(lambda rows: [found_in(rows)]).collect())
            rows = self.records.mapInArrow(answer, _ANSWER).collect()
        return [pickle.loads(row.answer) for row in rows]  # noqa: S301  # ours


def _in_arrow(records: DataFrame) -> RDD[pa.RecordBatch]:
    """Return rows as batches of Arrow, by a way on which the stream breaks off when the task is killed."""
    from pyarrow import ipc
    from pyspark.rdd import RDD
    from pyspark.serializers import NoOpSerializer
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(records.schema)
    batches = records._jdf.toArrowBatchRdd().toJavaRDD()  # noqa: SLF001  # as PySpark's own toPandas
    sent = RDD(batches, records.sparkSession.sparkContext, NoOpSerializer())
    return sent.mapPartitions(lambda rows: (ipc.read_record_batch(batch, schema) for batch in rows))


@contextmanager
def set_confs(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set confs of the query's own session for as long as the block runs."""
    before = {name: spark.conf.get(name, None) for name in confs}
    for name, value in confs.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)


def most_attempts(session: SparkSession) -> int:
    """Return how often Spark runs a task before it gives up: in local mode the master names it."""
    scheduler = session.sparkContext._jsc.sc().taskScheduler()  # noqa: SLF001
    return int(scheduler.maxTaskFailures())


def is_last_attempt(most: int) -> bool:
    """Return, in a task, whether Spark runs it no more if it fails now.

    Args:
        most: As ``most_attempts`` returns it, in the driver.
    """
    return _context().attemptNumber() + 1 >= most


def _task() -> int:
    """Return the number of this task's partition."""
    return _context().partitionId()


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:  # pragma: no cover - only a task calls this
        raise RuntimeError("a shard is written by a Spark task")
    return context
