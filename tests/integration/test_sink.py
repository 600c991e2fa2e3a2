"""The transactional sink on real Spark and a real broker: every record once for read_committed readers."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks import TransactionalKafkaSink
from airflow_flinkstyle.sinks.errors import (
    ControlTopicError,
    LineageError,
    RecordRefusedError,
    ReplayDiffersError,
    ShardCountError,
    SinkInputError,
    TransactionTimeoutError,
)
from testbed.session import local_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.kafka.reading import Record
    from testbed.kafka import Broker
    from testbed.spark import SparkPaths

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

ROWS = 40
"""Per batch: values 0 to 39 in batch 0, and so on; the same whenever a batch is run."""


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    with local_session(spark_paths, confs, threads=1) as session:  # shard 0 commits before shard 1 begins
        yield session


@pytest.fixture
def topic(old_broker: Broker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    old_broker.create_topic(name, partitions=3)
    return name


class Lab:
    """A stream of numbers into a topic through a sink; each start is a new run of the same query."""

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        topic: str,
        folder: Path,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.spark, self.topic, self.folder = spark, topic, folder
        servers = {"bootstrap.servers": broker.bootstrap, **(config or {})}
        self.cluster = KafkaCluster(name="out", config=servers)

    def sink(self, **options: Any) -> TransactionalKafkaSink:
        given = {"topic": self.topic, "shards": 2, "lineage": f"{self.topic}-line", **options}
        return TransactionalKafkaSink(self.cluster.config, **given)

    def run(
        self,
        write: Callable[[DataFrame, int], None],
        *,
        batches: int,
        shape: Callable[[DataFrame], DataFrame] | None = None,
        checkpoint: str = "checkpoint",
    ) -> None:
        """Run the query until so many batches have ended in this run, or raise what it died of."""
        done: list[int] = []

        def counted(frame: DataFrame, batch_id: int) -> None:
            if len(done) < batches:
                write(frame, batch_id)
                done.append(batch_id)

        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        rows = (shape or as_records)(source)
        writer = rows.writeStream.foreachBatch(counted).trigger(processingTime="0 seconds")
        query = writer.option("checkpointLocation", str(self.folder / checkpoint)).start()
        try:
            while len(done) < batches or not (self.folder / checkpoint / f"commits/{done[-1]}").exists():
                assert not query.awaitTermination(0.05), "the source has no end"
        finally:
            query.stop()
            self.truncate(checkpoint, done)

    def truncate(self, checkpoint: str, done: list[int]) -> None:
        """Leave only the batches that were written: the run goes on a little longer than it is looked at."""
        for name in ("offsets", "commits"):
            for log in (self.folder / checkpoint / name).glob("*"):
                number = log.name.strip(".").removesuffix(".crc")
                if number.isdigit() and done and int(number) > done[-1]:
                    log.unlink()

    def forget_commit(self, batch_id: int) -> None:
        """Let Spark run a batch again, as after a crash behind the sink's commit."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            (self.folder / "checkpoint/commits" / name).unlink(missing_ok=True)

    def records(self, isolation: str = "read_committed") -> list[Record]:
        view = describe(self.cluster, [self.topic])
        found: list[Record] = []
        ranges = {
            tp: ReadRange(low=span.start, high=span.last_stable)
            for tp in view.partitions
            if (span := view.log_range(tp))
        }
        scan(self.cluster, ranges, lambda _, record: found.append(record), isolation)  # type: ignore[arg-type]
        return found

    def counts(self) -> Counter[int]:
        return Counter(int(record.value() or b"") for record in self.records())


@pytest.fixture
def lab(spark: SparkSession, old_broker: Broker, topic: str, tmp_path: Path) -> Lab:
    return Lab(spark, old_broker, topic, tmp_path)


def as_records(source: DataFrame) -> DataFrame:
    return source.selectExpr("cast(value % 7 as string) as key", "cast(value as string) as value")


def once(batches: int) -> Counter[int]:
    return Counter(range(batches * ROWS))


def test_each_record_is_there_once_over_two_runs(lab: Lab):
    sink = lab.sink()
    lab.run(sink.foreach_batch, batches=3)
    lab.run(lab.sink().foreach_batch, batches=2)
    assert lab.counts() == once(5)
    assert sink.last_batch is not None
    assert sink.last_batch.records == ROWS
    assert {"init", "data", "pre-commit", "marker", "commit"} <= sink.last_batch.phase_s.keys()


def test_batch_that_spark_runs_again_is_not_written_again(lab: Lab):
    lab.run(lab.sink().foreach_batch, batches=2)
    lab.forget_commit(1)
    sink = lab.sink()
    lab.run(sink.foreach_batch, batches=1)
    assert sink.last_batch is not None
    assert (sink.last_batch.batch_id, sink.last_batch.skipped_shards) == (1, 2)
    lab.run(lab.sink(shards=3).foreach_batch, batches=1)  # and the number of shards may change there
    assert lab.counts() == once(3)


def refused(error: type[Exception], text: str) -> AbstractContextManager[object]:
    """Expect a query to die of an error of ours; Spark has only its text."""
    return pytest.raises(Exception, match=f"(?s){error.__name__}.*{text}")


def die(batch: int, shard: int, phase: str) -> Callable[[int, int, str], None]:
    def on_phase(at_batch: int, at_shard: int, at_phase: str) -> None:
        if (at_batch, at_shard, at_phase) == (batch, shard, phase):
            raise RuntimeError(f"dies in {phase}")

    return on_phase


@pytest.mark.parametrize("phase", ["begin", "pre-commit", "commit"])
def test_half_written_batch_is_completed_by_the_next_run(lab: Lab, phase: str):
    lab.run(lab.sink().foreach_batch, batches=1)
    with pytest.raises(Exception, match=f"dies in {phase}"):
        lab.run(lab.sink(on_phase=die(1, 1, phase)).foreach_batch, batches=2)
    half = lab.counts()
    assert half - once(1)  # shard 0 has committed its part
    assert half != once(2)
    with refused(ShardCountError, "half written with 2 shards"):
        lab.run(lab.sink(shards=3).foreach_batch, batches=1)
    sink = lab.sink()
    lab.run(sink.foreach_batch, batches=1)
    assert sink.last_batch is not None
    assert sink.last_batch.skipped_shards == 1
    assert lab.counts() == once(2)


def test_replay_with_other_rows_is_refused_and_leaves_what_was_written(lab: Lab):
    with pytest.raises(Exception, match="dies in begin"):
        lab.run(lab.sink(on_phase=die(0, 1, "begin")).foreach_batch, batches=1)
    half = lab.counts()
    with refused(ReplayDiffersError, "Batch 0"):
        lab.run(
            lab.sink().foreach_batch,
            batches=1,
            shape=lambda rows: rows.selectExpr(
                "cast(value % 7 as string) key", "cast(value + 1000 as string) value"
            ),
        )
    assert lab.counts() == half
    lab.run(lab.sink().foreach_batch, batches=1)
    assert lab.counts() == once(1)


def test_older_state_of_the_same_lineage_is_refused_not_skipped(lab: Lab):
    lab.run(lab.sink().foreach_batch, batches=3)
    for batch in (2, 1):
        lab.forget_commit(batch)
    (lab.folder / "checkpoint/offsets/2").unlink()
    (lab.folder / "checkpoint/offsets/.2.crc").unlink()
    with refused(LineageError, "completed batch 2"):
        lab.run(lab.sink().foreach_batch, batches=1)
    with refused(ControlTopicError, "does not exist"):  # a lineage that cannot have written batch 0
        lab.run(lab.sink(lineage="another").foreach_batch, batches=1)


def test_lineage_belongs_to_one_query(lab: Lab):
    lab.run(lab.sink().foreach_batch, batches=1)
    with refused(LineageError, "expected to be written by query"):
        lab.run(lab.sink().foreach_batch, batches=1, checkpoint="another")
    assert lab.counts() == once(1)


def test_columns_of_sparks_own_sink_arrive(lab: Lab, old_broker: Broker):
    old_broker.create_topic(f"{lab.topic}-b", partitions=1)
    lab.run(
        lab.sink(topic=None).foreach_batch,
        batches=1,
        shape=lambda rows: rows.selectExpr(
            f"if(value = 3, '{lab.topic}-b', '{lab.topic}') as topic",
            "if(value % 2 = 0, null, cast(string(value) as binary)) as key",
            "if(value = 4, null, cast(value as string)) as value",
            "array(struct('h' as key, cast('x' as binary) as value)) as headers",
            "cast(0 as int) as partition",
            "timestamp_millis(1000 + value) as timestamp",
        ),
    )
    found = {record.offset(): record for record in lab.records()}
    assert {record.partition() for record in found.values()} == {0}
    assert len(found) == ROWS - 1  # one is in the other topic
    assert {record.timestamp()[1] for record in found.values()} == {1000 + n for n in range(ROWS) if n != 3}
    assert all(record.headers() == [("h", b"x")] for record in found.values())
    assert [record.timestamp()[1] for record in found.values() if record.value() is None] == [1004]


def test_partition_of_a_key_is_that_of_sparks_own_sink(lab: Lab, old_broker: Broker):
    native = f"{lab.topic}-native"
    old_broker.create_topic(native, partitions=3)

    def both(frame: DataFrame, batch_id: int) -> None:
        lab.sink().foreach_batch(frame, batch_id)
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", old_broker.bootstrap)
        writer.option("topic", native).save()

    lab.run(both, batches=1)
    ours = {record.key(): record.partition() for record in lab.records()}
    lab.topic = native
    assert ours == {record.key(): record.partition() for record in lab.records()}
    assert len(set(ours.values())) > 1


@pytest.mark.parametrize(
    ("options", "shape", "error", "match"),
    [
        ({}, "cast(value as string) as text", SinkInputError, "missed value"),
        ({}, "value", SinkInputError, "value bigint"),
        ({"topic": None}, "cast(value as string) as value", SinkInputError, "missed topic"),
        ({"topic": "nowhere"}, "cast(value as string) as value", RecordRefusedError, "failed delivery"),
        ({}, "repeat('x', 2000000) as value", RecordRefusedError, "too large|size"),
        (
            {"transaction_timeout_ms": 900_001},
            "cast(value as string) as value",
            TransactionTimeoutError,
            "900000",
        ),
    ],
    ids=["no-value", "type", "no-topic", "unknown-topic", "oversized", "timeout"],
)
def test_bad_input_is_refused_and_writes_nothing(
    spark: SparkSession,
    old_broker: Broker,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    options: dict[str, Any],
    shape: str,
    error: type[Exception],
    match: str,
):
    topic = re.sub(r"[^a-z0-9]+", "-", request.node.name)
    old_broker.create_topic(topic, partitions=1)
    lab = Lab(spark, old_broker, topic, tmp_path, {"topic.metadata.propagation.max.ms": "1000"})
    with refused(error, match):
        lab.run(lab.sink(**options).foreach_batch, batches=1, shape=lambda rows: rows.selectExpr(shape))
    assert not lab.counts()


def test_control_topic_that_is_gone_or_deletes_is_refused(lab: Lab, old_broker: Broker):
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    lab.run(lab.sink().foreach_batch, batches=1)
    control = f"flinkstyle-{lab.topic}-line.internal"
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, control, incremental_configs=[entry])
    old_broker.admin().incremental_alter_configs([resource])[resource].result(20)
    with refused(ControlTopicError, "compact only"):
        lab.run(lab.sink().foreach_batch, batches=1)
    old_broker.admin().delete_topics([control])[control].result(20)
    with refused(ControlTopicError, "does not exist"):
        lab.run(lab.sink().foreach_batch, batches=1)
    assert lab.counts() == once(1)
