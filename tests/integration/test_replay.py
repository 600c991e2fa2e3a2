"""A range of a real broker's records run once more by real drivers, row by row; and a bisect."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.bisect import BisectAsked, bisect_versions
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.comparison import Version, compare_asked
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.replay import ReplayAsked, await_replay, replay_job
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed.differential.deployment import WarmDeployment
from testbed.drivers import spark_conf
from testbed.keys import SIGNER
from testbed.spark import spark_paths
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.types import Generation
    from testbed.kafka import Broker
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]
RECORDS, MORE, KEYS = 40, 960, 7
JOB = """
import json, sys
from pyspark.sql import SparkSession, functions as F
servers, topic, out_topic, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("kafka").options(**{
    "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}).load()
orders = rows.select(F.col("value").cast("string").cast("long").alias("id"))
totals = orders.groupBy((F.col("id") % 7).alias("k")).agg(F.count("*").alias("n"))
def note(batch, number):
    with open(out, "a") as file:
        for row in batch.collect():
            file.write(json.dumps([row.k, row.n]) + "\\n")
totals.writeStream.foreachBatch(note).queryName("totals").outputMode("update").start()
(orders.select(F.col("id").cast("string").alias("value")).writeStream.format("kafka").queryName("lines")
    .option("kafka.bootstrap.servers", servers).option("topic", out_topic).start())
spark.streams.awaitAnyTermination()
print("WENT ON", flush=True)
"""
RIGHT = 'F.col("id").cast("string")'
WRONG = JOB.replace(
    f'{RIGHT}.alias("value")',
    f'F.when(F.col("id") < 100, {RIGHT}).otherwise(F.concat({RIGHT}, F.lit("x"))).alias("value")',
)


class Orders:
    """A job that has stopped with a savepoint, and more records behind it."""

    def __init__(self, folder: Path, broker: Broker, warm: WarmJvms | None) -> None:
        self.folder, self.broker = folder, broker
        self.deployment = WarmDeployment(jvms=warm) if warm is not None else DetachedDeployment()
        self.store = open_store(str(folder / "root"))
        self.topic = f"replayed-{uuid.uuid4().hex[:8]}"
        self.create(self.topic, partitions=2)
        for out in ("out", "again", "killed"):
            self.create(f"{self.topic}-{out}", partitions=1)
        self.produce(range(RECORDS))
        self.job = self.client("orders")
        self.spec = self.version(JOB, "orders.py")
        handle = self.job.starts.start(self.spec, self.target(), claim_key="start")
        self.job.drivers.wait_running(handle.generation, timeout_s=300)
        wait_until("both queries have read all", lambda: self.written("out") and self.lines("out"))
        stopped = self.job.requests.stop("stop", savepoint=True, timeout_s=120)
        assert isinstance(stopped, Stopped)
        assert stopped.savepoint_id is not None
        self.savepoint_id = stopped.savepoint_id
        self.produce(range(RECORDS, RECORDS + MORE))

    def create(self, name: str, *, partitions: int) -> None:
        from confluent_kafka.admin import NewTopic

        self.broker.admin().create_topics([NewTopic(name, partitions, 1)])[name].result(20)

    def produce(self, numbers: range) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in numbers:
            producer.produce(self.topic, str(number).encode(), partition=number % 2)
        assert producer.flush(20) == 0

    def client(self, name: str) -> JobClient:
        return JobClient(
            view=JobView(
                board=JobBoard(self.store, name),
                repository=SavepointRepository(self.store, name),
                deployment=self.deployment,
                signer=SIGNER,
            )
        )

    def version(self, text: str, name: str, out: str = "out") -> JobSpec:
        (self.folder / name).write_text(text)
        return JobSpec(
            name="orders",
            script=str(self.folder / name),
            args=(self.broker.bootstrap, self.topic, f"{self.topic}-{out}", str(self.folder / out)),
            conf={"spark.sql.shuffle.partitions": "2", "spark.flinkstyle.commitOffsets": "true"},
            checkpoint_root=str(self.folder / "checkpoints"),
            lease_s=8,
        )

    def target(self) -> SubmitTarget:
        spark = spark_paths()
        return SubmitTarget(
            master="local[2]",
            python=str(spark.python),
            spark_home=str(spark.spark_home),
            conf=spark_conf(),
            working_dir=str(self.folder),
            log_dir=str(self.folder / "logs"),
        )

    def replay(self, name: str, out: str, behind: int, **asked: Any) -> Generation:
        """Begin to run all records up to one number once more, a record of each partition after the other."""
        until = {self.topic: {"0": (behind + 1) // 2, "1": behind // 2}}
        said = {"until": until, "records": 100, "own_outputs": ("totals",), **asked}
        return replay_job(
            self.job,
            self.client(name),
            self.version(JOB, "orders.py", out),
            self.target(),
            key=name,
            asked=ReplayAsked(savepoint_id=self.savepoint_id, **said),
        )

    def lines(self, out: str) -> Counter[int]:
        """Return what the query ``lines`` has written, and how often."""
        from confluent_kafka import Consumer, TopicPartition

        topic = f"{self.topic}-{out}"
        config = {
            "bootstrap.servers": self.broker.bootstrap,
            "group.id": "a test",
            "enable.auto.commit": False,
        }
        consumer = Consumer(config)
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
            consumer.assign([TopicPartition(topic, 0, 0)])
            found: Counter[int] = Counter()
            while sum(found.values()) < end:
                found.update(int(one.value()) for one in consumer.consume(end, 20) if one.error() is None)
            return found
        finally:
            consumer.close()

    def written(self, out: str) -> dict[int, int]:
        """Return what the query ``totals`` has written last of each key."""
        path = self.folder / out
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return dict(sorted(rows))


@pytest.fixture(scope="module")
def orders(
    old_broker: Broker, tmp_path_factory: pytest.TempPathFactory, warm_jvms: WarmJvms | None
) -> Iterator[Orders]:
    found = Orders(tmp_path_factory.mktemp("replay"), old_broker, warm_jvms)
    yield found
    if warm_jvms is not None:
        warm_jvms.end_drivers()


def counted(behind: int) -> dict[int, int]:
    """Return how many of the first records have each key."""
    return dict(sorted(Counter(number % KEYS for number in range(behind)).items()))


@pytest.mark.nightly
def test_range_goes_row_by_row_into_another_output_and_the_replay_closes(orders: Orders):
    """The state is that of the savepoint, each record of the range counts once, and none behind it."""
    behind, before = 437, (orders.lines("out"), orders.written("out"))
    generation = orders.replay("orders-replay", "again", behind)
    beside = orders.client("orders-replay")
    found = await_replay(beside, generation, timeout_s=240)
    assert {name: one["offsets"] for name, one in found["queries"].items()} == {
        "lines": behind - RECORDS,
        "totals": behind - RECORDS,
    }
    assert orders.lines("again") == Counter(range(RECORDS, behind))
    assert orders.written("again") == counted(behind)
    assert (orders.lines("out"), orders.written("out")) == before
    words = beside.view.board.current_heartbeat()
    assert words is not None
    assert (words.state, words.request_id, words.error) == ("closed", None, None)
    assert all(not query.groups for query in words.queries.values())
    assert not isinstance(orders.job.view.status(), Running)


@pytest.mark.nightly
def test_replay_into_the_jobs_own_topic_is_refused_by_its_driver(orders: Orders):
    before = orders.lines("out")
    generation = orders.replay("orders-twice", "out", 200)
    with pytest.raises(DriverFailedError, match=f"REPLAY_OUTPUT.*topic {orders.topic}-out"):
        await_replay(orders.client("orders-twice"), generation, timeout_s=240)
    assert orders.lines("out") == before


@pytest.mark.nightly
def test_replay_that_is_killed_goes_on_to_the_same_end(orders: Orders):
    """By a time: all records are older, so each partition's range ends where its log did then."""
    generation = orders.replay("orders-killed", "killed", 0, until="2100-01-01T00:00:00Z")
    beside = orders.client("orders-killed")
    wait_until("some are written", lambda: len(orders.lines("killed")) > 0)
    run = beside.view.run(generation)
    beside.view.deployment.end(next(iter(beside.view.native_ids(run))))
    behind = RECORDS + MORE
    orders.produce(range(behind, behind + 10))
    found = await_replay(beside, generation, timeout_s=240)
    assert found["queries"]["totals"]["offsets"] == MORE
    # Spark's own Kafka sink writes a batch again that it has not committed.
    assert set(orders.lines("killed")) == set(range(RECORDS, behind))
    assert orders.written("killed") == counted(behind)


@pytest.mark.matrix
def test_bisect_names_the_batch_its_offsets_and_its_rows(orders: Orders):
    """The new version is wrong from number 100 on, which is at offset 50."""
    compared = compare_asked(batches=2, records=400, state=False, timeout_s=600.0)
    assert compared is not None
    wrong = orders.version(WRONG, "wrong.py")
    found = bisect_versions(
        orders.job,
        *(Version(spec=spec, target=orders.target()) for spec in (orders.spec, wrong)),
        key="a person",
        savepoint_id=orders.savepoint_id,
        asked=BisectAsked(compare=compared, narrow=30),
    )
    first = found.first
    assert first is not None
    assert (found.query, found.passes, first.first_records) == ("lines", 2, 26)
    assert first.first_places() == [f"{orders.topic}-0 46 to 59", f"{orders.topic}-1 46 to 59"]
    rows = {json.loads(one.old)["value"] for one in first.samples if one.old}
    assert rows
    assert rows <= {str(number) for number in range(100, 118)}
