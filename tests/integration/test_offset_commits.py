"""Document 003 on real Kafka: a group's offsets follow the completed batches; nobody resumes from them."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pytest

from airflow_flinkstyle.agent.core.commits import batch_watch, group_committer
from airflow_flinkstyle.agent.core.commits.batch_watch import GROUP, ON, BatchWatch, CommitSetting
from airflow_flinkstyle.agent.core.queries.registry import Queries
from airflow_flinkstyle.agent.spark import groups as jvm_groups
from airflow_flinkstyle.agent.spark.session import PySparkSession
from airflow_flinkstyle.agent.spark.starts import PySparkQuery, PySparkStart
from airflow_flinkstyle.kafka.groups import group_offsets, set_group_offsets
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.offsets import Offsets
from testbed.faulty_link import Break, FaultyLink
from testbed.kafka import Broker
from testbed.ports import free_port
from testbed.session import local_session
from tests.declared import AS_BEFORE
from tests.integration.agent_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.protocol.query_records import CommittedGroup
    from testbed.faulty_link import LinkFault
    from testbed.spark import SparkPaths
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 2
JOB = """
import json, sys
from pyspark.sql import SparkSession
out, servers, topic, group = sys.argv[1:]
spark = SparkSession.builder.appName("orders").getOrCreate()
rows = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic).option("startingOffsets", "earliest")
        .option("kafka.group.id", group).option("maxOffsetsPerTrigger", 8).load())
def note(batch, batch_id):
    values = [int(row.value) for row in batch.selectExpr("cast(value as string) value").collect()]
    with open(out, "a") as f:
        f.write(json.dumps({"batch": batch_id, "values": values}) + "\\n")
rows.writeStream.queryName("orders").foreachBatch(note).trigger(processingTime="100 milliseconds").start()
spark.streams.awaitAnyTermination()
"""


def cluster_of(broker: Broker) -> KafkaCluster:
    return KafkaCluster(name="kafka", config={"bootstrap.servers": broker.bootstrap})


def new_topic(broker: Broker) -> str:
    topic = f"commits-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=PARTITIONS)
    return topic


def produce(broker: Broker, topic: str, numbers: range) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def until(what: str, check: Callable[[], object], timeout_s: float = 30) -> None:
    end_s = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end_s, f"Never: {what}"
        time.sleep(0.05)


@contextmanager
def breaking(link: FaultyLink, fault: LinkFault) -> Iterator[None]:
    """Break the link at the next byte that a client sends, and mend it at the end."""
    link.break_at(Break(fault=fault, direction="sent", after_bytes=1))
    try:
        yield
    finally:
        link.mend()


# --- a whole driver ------------------------------------------------------------------------------


def test_group_follows_the_job_and_wrong_offsets_in_it_change_nothing(
    tmp_path: Path, old_broker: Broker, warm_jvms: WarmJvms | None
):
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    topic, cluster = new_topic(old_broker), cluster_of(old_broker)
    group = f"watched-{topic}"
    script, args = lab.script(JOB), (str(lab.out), old_broker.bootstrap, topic, group)
    lab.conf[ON] = "true"
    produce(old_broker, topic, range(20))
    try:
        lab.start(1, script, *args)
        until_told(lab, 1, Offsets({(topic, 0): 10, (topic, 1): 10}))
        assert group_offsets(cluster, group, [topic]) == {(topic, 0): 10, (topic, 1): 10}
        produce(old_broker, topic, range(20, 40))
        stop = lab.ask(1, "stop_with_savepoint")
        assert lab.end_of(1, stop).outcome == "done"
        closed = lab.until_state(1, "closed").queries["orders"]
        told = closed.groups["0"]
        assert closed.pace is not None
        assert closed.pace.lag_records is not None, "Spark says where the topic ends"
        assert (told.group, told.batch_id, told.failure) == (group, closed.batch_id, None)
        assert (told.commits_failed, told.commits_superseded) == (0, 0)
        saved = lab.repository.read(stop.savepoint_id).query("orders").kafka["0"].offsets
        assert group_offsets(cluster, group, [topic]) == saved == told.offsets
        lag = sum(end - saved[topic, n] for n, (_, end) in old_broker.log_range(topic).items())
        assert lag == 40 - sum(len(row["values"]) for row in lab.rows())

        set_group_offsets(cluster, group, Offsets({(topic, 0): 0, (topic, 1): 999}))
        lab.start(2, script, *args, savepoint_id=stop.savepoint_id)
        produce(old_broker, topic, range(40, 50))
        until_told(lab, 2, Offsets({(topic, 0): 25, (topic, 1): 25}))
        assert group_offsets(cluster, group, [topic]) == {(topic, 0): 25, (topic, 1): 25}
        assert lab.end_of(2, lab.ask(2, "stop")).outcome == "done"
        assert sorted(value for row in lab.rows() for value in row["values"]) == list(range(50))
    finally:
        lab.close()


def until_told(lab: Lab, generation: int, offsets: Offsets) -> None:
    """Wait until the heartbeat says that these offsets are committed."""

    def told() -> bool:
        beat = lab.heartbeat(generation)
        group = beat.queries["orders"].groups.get("0") if beat and "orders" in beat.queries else None
        return group is not None and group.offsets == offsets

    lab.until(f"{offsets} are committed", told)


# --- queries of this process, whose offsets are committed over a link that breaks -------------------


@pytest.fixture(scope="module")
def link() -> Iterator[FaultyLink]:
    with FaultyLink(free_port()) as link:
        yield link


@pytest.fixture(scope="module")
def broker(link: FaultyLink, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that clients reach directly, or from their first to their last byte over the link."""
    port, behind = free_port(), link._port
    advertised = f"PLAINTEXT://127.0.0.1:{port},LINK://{link.address}"
    with Broker(
        "linked",
        tmp_path_factory.mktemp("linked"),
        port=port,
        listeners={"LINK": ("PLAINTEXT", behind)},
        settings={"advertised.listeners": advertised},
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    conf = {"spark.driver.memory": "600m", ON: "true", GROUP: "watched"}
    with local_session(spark_paths, conf) as session:
        yield session


class Orders:
    """A query over a topic of its own: its batches read directly, its offsets go over the link."""

    def __init__(self, spark: SparkSession, broker: Broker, link: FaultyLink, folder: Path) -> None:
        self.broker, self.topic = broker, new_topic(broker)
        self._spark, self._sent = spark, 0
        queries = Queries(str(folder))
        start = PySparkStart(self._read(link.address).writeStream, lambda: None)
        queries.known_spark = start.session
        self.query = queries.register("orders", start, start.sources(), AS_BEFORE)
        self.watch = BatchWatch(queries)

    def __enter__(self) -> Self:
        self.watch.begin(CommitSetting.of(PySparkSession.of(self._spark)))
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.finish()

    def _read(self, servers: str) -> DataFrame:
        reader = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        return reader.option("subscribe", self.topic).option("startingOffsets", "earliest").load()

    def batch(self, records: int = 10) -> int:
        """Run one more batch; returns its number."""
        produce(self.broker, self.topic, range(self._sent, self._sent + records))
        self._sent += records
        writer = self._read(self.broker.bootstrap).writeStream.format("noop")
        writer = writer.option("checkpointLocation", self.query.location).trigger(availableNow=True)
        self.query.query = PySparkQuery(writer.start(), self._spark._jvm)
        assert self.query.started.await_end(60_000)
        return self.query.read_committed()

    @property
    def group(self) -> CommittedGroup:
        return self.watch.with_groups({"orders": self.query.status()})["orders"].groups["0"]

    def until_committed(self, batch: int) -> None:
        until("a committer is there", lambda: self.watch._committers)
        until(f"batch {batch} is committed", lambda: self.group.batch_id == batch)
        half = self._sent // PARTITIONS
        found = group_offsets(cluster_of(self.broker), "watched", [self.topic])
        assert found == {(self.topic, 0): half, (self.topic, 1): half} == self.group.offsets


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm_groups, "TIMEOUT_S", 3)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm_groups, "TIMEOUT_S", 40)


@pytest.fixture
def curious(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_committer, "LAG_EVERY_S", 0.1)


@pytest.fixture
def orders(
    spark: SparkSession, broker: Broker, link: FaultyLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Orders]:
    """A query whose first batch is committed."""
    monkeypatch.setattr(batch_watch, "POLL_S", 0.05)
    monkeypatch.setattr(batch_watch, "STOP_S", 1.0)
    with Orders(spark, broker, link, tmp_path) as orders:
        orders.batch()
        orders.until_committed(0)
        yield orders


@pytest.mark.matrix
@pytest.mark.usefixtures("patient")
def test_newer_batch_supersedes_the_one_that_waits_for_a_slow_broker(
    orders: Orders, link: FaultyLink, caplog: pytest.LogCaptureFixture
):
    with breaking(link, "stall"):
        orders.batch()
        assert link.broken.wait(10)
        assert [orders.batch(), orders.batch()] == [2, 3]
        until("a commit is superseded", lambda: orders.group.commits_superseded)
    orders.until_committed(3)
    assert (orders.group.commits_succeeded, orders.group.commits_failed) == (3, 0)
    assert "Those of batch 2 are left out, since those of batch 3 are there" in caplog.text


@pytest.mark.nightly
@pytest.mark.usefixtures("impatient")
def test_job_runs_on_and_stops_while_commits_find_no_broker_and_later_ones_succeed(
    orders: Orders, link: FaultyLink, caplog: pytest.LogCaptureFixture
):
    with breaking(link, "cut"):
        assert orders.batch() == 1
        until("the failure is counted", lambda: orders.group.commits_failed)
        assert orders.batch() == 2
        assert orders.group.failure.startswith(
            "CLUSTER_UNREACHABLE: Offsets should be committed for group wat"
        )
        assert "the next batch commits again" in caplog.text
    orders.batch()
    orders.until_committed(3)
    with breaking(link, "cut"):
        orders.batch()
        orders.watch.finish()
    assert "The offsets of the last batch were not committed within 1 s (group watched on" in caplog.text


@pytest.mark.nightly
def test_group_with_members_is_left_to_them_and_named(
    orders: Orders, broker: Broker, caplog: pytest.LogCaptureFixture
):
    from confluent_kafka import Consumer

    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watched"})
    member.subscribe([orders.topic])
    until("the member has joined", lambda: member.poll(0.1) is None and member.assignment())
    orders.batch()
    until("the failure is counted", lambda: orders.group.commits_failed)
    assert orders.group.failure.startswith("GROUP_IN_USE: Offsets should be committed for group watched")
    assert "Stop its members, or give the source a group of its own (kafka.group.id)" in caplog.text
    member.close()
    orders.batch()
    orders.until_committed(2)


@pytest.mark.nightly
@pytest.mark.usefixtures("curious")
def test_lag_grows_without_a_batch(orders: Orders, broker: Broker):
    produce(broker, orders.topic, range(7))
    until("the lag is seen", lambda: orders.group.lag == {orders.topic: 7})
