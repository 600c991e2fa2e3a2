"""format("kafka-transactional") on real Spark and a real broker: the same promises as foreachBatch's sink."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.sinks.data_source import NAME, register, sharded
from airflow_flinkstyle.sinks.errors import (
    LineageError,
    RecordRefusedError,
    ShardCountError,
    SinkConfigError,
    SinkInputError,
)
from airflow_flinkstyle.sinks.spread import Spread
from tests.integration.sink_lab import ROWS, Lab, once, refused, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from testbed.kafka import Broker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(scope="module")
def spark(two_tasks: SparkSession) -> SparkSession:
    register(two_tasks)
    return two_tasks


class FileLab(Lab):
    """A query over files, each of them a batch: it ends by itself once all are written."""

    def add(self, batches: int) -> None:
        """Add files of so many batches."""
        folder = self.folder / "in"
        folder.mkdir(exist_ok=True)
        known = len(list(folder.iterdir()))
        for number in range(known, known + batches):
            path = folder / f"{number:03}.txt"
            path.write_text("".join(f"{value}\n" for value in range(number * ROWS, (number + 1) * ROWS)))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def write(
        self,
        *,
        shards: int = 2,
        plan: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        mode: str = "append",
        shape: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        checkpoint: str = "checkpoint",
        **options: str,
    ) -> None:
        """Run the query over all files that it has not read, or raise what it died of."""
        source = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        rows = source.load(str(self.folder / "in")).selectExpr("cast(value % 7 as string) key", "value")
        given = {"topic": self.topic, "lineage": f"{self.topic}-line", **options}
        writer = shape(sharded(plan(rows), shards)).writeStream.format(NAME).trigger(availableNow=True)
        writer.outputMode(mode)
        for name, value in self.cluster.config.items():
            writer.option(f"kafka.{name}", value)
        writer.options(**given).option("checkpointLocation", str(self.folder / checkpoint))
        query = writer.start()
        try:
            assert query.awaitTermination(150)
        finally:
            query.stop()


@pytest.fixture
def lab(spark: SparkSession, old_broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> FileLab:
    topic = topic_of(request)
    old_broker.create_topic(topic, partitions=3)
    return FileLab(spark, old_broker, topic, tmp_path, {"topic.metadata.propagation.max.ms": "1000"})


def test_each_record_is_there_once_over_runs_and_a_batch_that_is_run_again(lab: FileLab):
    lab.add(2)
    lab.write()
    lab.forget_commit(1)
    lab.add(1)
    lab.write()
    lab.add(1)
    lab.write(shards=3)  # which may change between batches
    assert lab.counts() == once(4)


def test_complete_batch_that_is_run_again_by_more_shards_is_not_written_again(lab: FileLab):
    lab.add(1)
    lab.write()
    lab.forget_commit(0)
    lab.add(1)
    lab.write(shards=3)
    assert lab.counts() == once(2)


def test_totals_of_a_query_with_state_are_there_once(lab: FileLab):
    def totals(rows: DataFrame) -> DataFrame:
        return rows.groupBy("key").count().selectExpr("key", "string(count) value")

    for _ in range(2):
        lab.add(1)
        lab.write(plan=totals, mode="complete")  # Spark lets no Python sink take updates
    found = Counter((record.key() or b"", record.value() or b"") for record in lab.records())
    counts = [Counter(value % 7 for value in range(rows)) for rows in (ROWS, 2 * ROWS)]
    assert found == Counter((b"%d" % key, b"%d" % count) for one in counts for key, count in one.items())


def key_in_shard(spark: SparkSession, shard: int) -> str:
    """Return a key that one of two shards writes."""
    keys = spark.range(7).selectExpr("string(id) key", "pmod(hash(binary(string(id))), 2) shard")
    return str(next(row.key for row in keys.collect() if row.shard == shard))


def test_half_written_batch_is_completed_by_the_next_run(lab: FileLab, old_broker: Broker):
    late = f"{lab.topic}-late"
    key = key_in_shard(lab.spark, 1)

    def routed(frame: DataFrame) -> DataFrame:
        topic = f"if(cast(key as string) = '{key}', '{late}', '{lab.topic}') topic"
        return frame.selectExpr("key", "value", "__hash", "__shard", topic)

    lab.add(1)
    with refused(RecordRefusedError, "failed delivery"):  # shard 0 has committed its part by then
        lab.write(shape=routed)
    assert 0 < sum(lab.counts().values()) < ROWS
    with refused(ShardCountError, "half written with 2 shards"):
        lab.write(shape=routed, shards=3)
    old_broker.create_topic(late, partitions=1)
    lab.write(shape=routed)
    main, lab.topic = lab.counts(), late
    assert main + lab.counts() == once(1)


def test_task_whose_rows_break_off_answers_nothing(spark: SparkSession, tmp_path: Path):
    told = tmp_path / "told"

    def work(batches: Iterator[pa.RecordBatch], _: range) -> int:
        rows = sum(batch.num_rows for batch in batches)
        told.write_text(str(rows))
        return rows

    def spread(last: int) -> Spread:
        value = f"if(id = {last}, raise_error('cut'), repeat('x', 100)) value"
        rows = spark.range(0, 100_000, 1, 1).selectExpr(value)
        return Spread(records=rows, tasks=1, shards=1)

    with pytest.raises(Exception, match="cut"):
        spread(95_000).answers(work)
    assert not told.exists()
    assert spread(100_000).answers(work) == [100_000]


def test_nothing_of_a_task_is_written_whose_rows_break_off(lab: FileLab):
    """As when an executor is lost, and with it the rest of the shuffle that a task reads.

    Spark sends 64 KiB at a time: so much has to come before the rows break off.
    """

    def cut(frame: DataFrame) -> DataFrame:
        bad, long = f"value = binary('{ROWS - 1}')", "rpad(value, 9999, binary(' '))"
        value = f"if({bad}, binary(raise_error('cut')), {long}) value"
        return frame.selectExpr("key", value, "__hash", "__shard")

    lab.add(1)
    lab.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 2)
    try:
        with pytest.raises(Exception, match="cut"):
            lab.write(shards=1, shape=cut)
    finally:
        lab.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert not lab.counts()
    lab.write(shards=1)
    assert lab.counts() == once(1)


def test_older_state_and_another_query_are_refused(lab: FileLab):
    lab.add(3)
    lab.write()
    lab.rewind(0)
    with refused(LineageError, "completed batch 2"):
        lab.write()
    with refused(LineageError, "expected to be written by query"):
        lab.write(checkpoint="another")
    with refused(LineageError, "no record of any"):
        lab.write(lineage=f"{lab.topic}-another")
    assert lab.counts() == once(3)


def test_rows_that_are_not_spread_as_asked_are_refused_before_anything_is_written(lab: FileLab):
    lab.add(1)
    for column in ("__shard", "__hash"):
        with refused(SinkConfigError, "spread over shards"):
            lab.write(shape=lambda frame, column=column: frame.drop(column))
    with refused(SinkConfigError, "none for lineage"):
        lab.write(lineage="")
    with refused(SinkConfigError, "found one numbered 2"):
        lab.write(shape=lambda frame: frame.coalesce(1).repartition(3))
    with refused(SinkConfigError, r"rows of the shards \[0\], found rows of the shards \[0, 1\]"):
        lab.write(shape=lambda frame: frame.coalesce(1).repartition(2))
    assert not lab.counts()
    with pytest.raises(SinkInputError, match="missed value"):
        sharded(lab.spark.range(1), 2)
