"""The walk-throughs of Flink's documents, on real Spark and a real broker.

First a snapshot of Kafka offsets and state, step by step: what a checkpoint counts, and from where a job goes
on after a crash. Then the starts of a transactional sink: what counts as committed, what is aborted. (Its
bounded pool of producers is ``test_sink_shard.py``'s.)
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.kafka.audit.record_ids import by_value
from airflow_flinkstyle.kafka.audit.verify_topic import TopicIds, verify_topic
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.sinks import TransactionalKafkaSink
from airflow_flinkstyle.storage.local import LocalStore
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from confluent_kafka import Producer
    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.kafka.audit.id_counts import TopicVerdict
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.kafka import Broker

    EachBatch = Callable[[DataFrame, int], None]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


class Job:
    """A query that reads a topic of two partitions; each start is a run of it up to the topic's end."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self.spark, self.broker, self.topic, self.folder = spark, broker, topic, folder
        self.cluster = KafkaCluster(name="old", config={"bootstrap.servers": broker.bootstrap})
        broker.create_topic(topic, partitions=2)

    def producer(self, **settings: str) -> Producer:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 0, **settings})

    def arrive(self, *partitions: str) -> None:
        """Write letters, each a record, to partition 0, 1, ..."""
        producer = self.producer()
        for number, letters in enumerate(partitions):
            for letter in letters:
                producer.produce(self.topic, letter, partition=number)
        assert producer.flush(20) == 0

    def run(
        self, shape: Callable[[DataFrame], DataFrame], each_batch: EachBatch, checkpoint: str = "checkpoint"
    ) -> Mapping[str, Any]:
        """Run until everything is read, or raise what the query died of; returns what the batch read."""
        source = self.spark.readStream.format("kafka").option("startingOffsets", "earliest")
        source = source.option("kafka.bootstrap.servers", self.broker.bootstrap)
        rows = shape(source.option("subscribe", self.topic).load())
        writer = rows.writeStream.outputMode("update").foreachBatch(each_batch).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder / checkpoint)).start()
        try:
            assert query.awaitTermination(180)
            (progress,) = [one for one in query.recentProgress if one["numInputRows"]]
            return progress
        finally:
            query.stop()


# ---- A snapshot of offsets and state, step by step ----


class Letters(Job):
    """The query keeps the letters that it has read from each partition, as its state."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        super().__init__(spark, broker, topic, folder)
        self.repository = SavepointRepository(LocalStore(folder / "root"), "letters")

    def go_on(self, checkpoint: str = "checkpoint", *, crash: bool = False) -> tuple[dict[int, str], Any]:
        """Run; returns what the state holds of each partition, and what was read."""
        state: dict[int, str] = {}

        def each_batch(frame: DataFrame, _: int) -> None:
            state.update({row.partition: row.letters for row in frame.collect()})
            if crash:
                raise RuntimeError("the driver crashes")

        return state, self.run(letters_by_partition, each_batch, checkpoint)

    def snapshot(self, savepoint_id: str) -> Manifest:
        view = describe(self.cluster, [self.topic])
        log = KafkaLog(
            cluster_id=view.cluster_id,
            topic_ids={self.topic: view.topics[self.topic].topic_id},
            log_range={},
        )
        source = QuerySource(name="q", checkpoint=LocalStore(self.folder / "checkpoint"), kafka={"0": log})
        label = SavepointLabel(
            savepoint_id=savepoint_id,
            taken_at_ms=1,
            spark_version=self.spark.version,
            taken_from_generation=1,
        )
        return take_savepoint(self.repository, [source], label)

    def restore(self, savepoint: Manifest, checkpoint: str) -> None:
        restore_savepoint(savepoint, self.repository, lambda _: LocalStore(self.folder / checkpoint))


def letters_by_partition(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    letters = F.sort_array(F.collect_list(F.col("value").cast("string")))
    return rows.groupBy("partition").agg(F.concat_ws("", letters).alias("letters"))


def positions(savepoint: Manifest) -> tuple[int, int]:
    """Return the next offset to read of partition 0 and 1."""
    (offsets,) = savepoint.queries[0].kafka["0"].offsets.by_topic.values()
    return offsets[0], offsets[1]


def test_a_job_goes_on_from_exactly_the_offsets_and_the_state_of_its_snapshot(
    two_tasks: SparkSession, old_broker: Broker, tmp_path: Path
):
    job = Letters(two_tasks, old_broker, "documents-letters", tmp_path)

    # The source has read A and B from partition 0 and A from partition 1: the positions are (2, 1), and they
    # are kept together with what the operator made of these letters.
    job.arrive("AB", "A")
    state, _ = job.go_on()
    assert state == {0: "AB", 1: "A"}
    savepoint = job.snapshot("sp-1")
    assert (savepoint.queries[0].batch_id, positions(savepoint)) == (0, (2, 1))

    # The rest arrives and is read; the state has it all. But the job crashes before all have acknowledged the
    # batch: it does not count, and the newest snapshot is the same as before.
    job.arrive("CDE", "BCDE")
    with pytest.raises(Exception, match="the driver crashes"):
        job.go_on(crash=True)
    after_the_crash = job.snapshot("sp-2")
    assert (after_the_crash.queries[0].batch_id, positions(after_the_crash)) == (0, (2, 1))
    assert after_the_crash.queries[0].planned_offsets is not None  # it was planned, and only that

    # From the snapshot, elsewhere: C to E and B to E are read again, nothing before, and the state continues
    # as if nothing had happened.
    job.restore(savepoint, "resumed")
    state, read = job.go_on("resumed")
    (source,) = read["sources"]
    assert json.loads(source["startOffset"]) == {job.topic: {"0": 2, "1": 1}}
    assert json.loads(source["endOffset"]) == {job.topic: {"0": 5, "1": 5}}
    assert (read["batchId"], read["numInputRows"]) == (1, 7)
    assert state == {0: "ABCDE", 1: "ABCDE"}

    # Where the crash was, Spark itself goes on to the same.
    assert job.go_on()[0] == state


# ---- How a transactional sink starts ----


class Copy(Job):
    """The query copies the topic through the sink; the letters are different ones in each partition."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        super().__init__(spark, broker, topic, folder)
        self.out = f"{topic}-out"
        broker.create_topic(self.out, partitions=1)

    def sink(self, **options: Any) -> TransactionalKafkaSink:
        given = {"topic": self.out, "shards": 2, "lineage": f"{self.topic}-line", **options}
        return TransactionalKafkaSink(self.cluster.config, **given)

    def go_on(self, **options: Any) -> TransactionalKafkaSink:
        sink = self.sink(**options)
        self.run(letters_as_records, sink.foreach_batch)
        return sink

    def verdict(self, *, held_back: int | None = 0) -> TopicVerdict:
        """Compare what readers with read_committed get with what the job has read.

        Args:
            held_back: Offsets behind open transactions to wait for: a commit's end follows it by a moment.
                None: any, but not all.
        """

        def is_there() -> bool:
            span = describe(self.cluster, [self.out]).topics[self.out].partitions[0]
            return span.end - span.last_stable == held_back or (held_back is None and span.last_stable > 0)

        wait_until("the end of what was committed", is_there)
        expected = TopicIds(cluster=self.cluster, topic=self.topic, ident=by_value)
        return verify_topic(self.cluster, self.out, expected, by_value, count_hidden=True)

    def left_open(self, shard: int, letter: str) -> Producer:
        """Leave a transaction of a shard open, as a worker that was cut off and will wake."""
        producer = self.producer(**{"transactional.id": f"{self.topic}-line-{shard}"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(self.out, letter)
        assert producer.flush(20) == 0
        return producer


def letters_as_records(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("cast(value as string) as key", "cast(value as string) as value")


@pytest.fixture
def copy(two_tasks: SparkSession, old_broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Copy:
    topic = f"documents-{request.node.name.removeprefix('test_').replace('_', '-')[:60]}"
    job = Copy(two_tasks, old_broker, topic, tmp_path)
    job.arrive("ABCDE", "FGHIJ")
    return job


def test_what_has_its_marker_counts_as_committed(copy: Copy):
    sink = copy.sink()

    def crash_behind_the_commit(frame: DataFrame, batch_id: int) -> None:
        sink.foreach_batch(frame, batch_id)
        raise RuntimeError("the driver crashes")  # before Spark has noted that the batch is done

    with pytest.raises(Exception, match="the driver crashes"):
        copy.run(letters_as_records, crash_behind_the_commit)
    assert copy.verdict().exactly_once
    again = copy.go_on()
    assert again.last_batch is not None
    assert again.last_batch.skipped_shards == 2
    found = copy.verdict()
    assert found.exactly_once, found
    assert found.hidden == 0


def test_what_was_pre_committed_only_is_aborted_and_written_anew(copy: Copy):
    def kill_shard_1(_: int, shard: int, phase: str) -> None:
        if (shard, phase) == (1, "commit"):  # everything is flushed, the marker too
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        copy.go_on(on_phase=kill_shard_1)
    half = copy.verdict(held_back=None)
    assert half.held_back, "the transaction was expected to be open"
    assert 0 < half.missing.count < 10
    again = copy.go_on()
    assert again.last_batch is not None
    assert again.last_batch.skipped_shards == 1
    found = copy.verdict()
    assert found.exactly_once, found
    assert found.hidden == half.missing.count


def test_what_was_left_open_beyond_the_new_number_of_shards_is_aborted_too(copy: Copy):
    from confluent_kafka import KafkaException

    copy.go_on(shards=4)
    zombies = [copy.left_open(shard, "X") for shard in range(4)]
    copy.arrive("KLM", "NOP")
    assert copy.verdict(held_back=4).missing.count == 6
    copy.go_on(shards=2)
    for zombie in zombies:
        with pytest.raises(KafkaException, match=r"(?i)fenced"):
            zombie.commit_transaction(20)
    found = copy.verdict()
    assert found.exactly_once, found
    assert found.hidden == 4


def test_a_time_out_above_the_brokers_limit_is_refused_with_both_numbers(copy: Copy):
    with pytest.raises(Exception, match=r"(?s)is 900001, but .* allows 900000 ms.*TRANSACTION_TIMEOUT"):
        copy.go_on(transaction_timeout_ms=900_001)
    assert copy.verdict().missing.count == 10
