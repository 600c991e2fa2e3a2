"""The start guard against real brokers: what it refuses, it refuses before Spark writes anything."""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.guards import checks
from airflow_flinkstyle.agent.core.queries.registry import Queries
from airflow_flinkstyle.agent.core.run.taking import take_all
from airflow_flinkstyle.agent.spark.kafka import describe_source
from airflow_flinkstyle.agent.spark.sources import sources_of
from airflow_flinkstyle.agent.spark.starts import PySparkStart
from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH, KAFKA_REQUEST, ClusterUnreachableError
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.types import BatchId, Generation
from testbed.refusals import refuses
from testbed.session import local_session
from tests.declared import AS_BEFORE
from tests.integration.agent_lab import Lab, logs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.protocol.query_records import SourceIdentity
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.kafka import Broker
    from testbed.spark import SparkPaths
    from tests.conftest import KafkaPair
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    confs = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "600m",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    with local_session(spark_paths, confs) as session:
        yield session


def read(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in {"startingOffsets": "earliest", **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def produce(broker: Broker, topic: str, records: int, *, partitions: int = 2) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(20) == 0


def new_topic(broker: Broker, name: str, *, partitions: int = 2) -> str:
    from confluent_kafka.admin import NewTopic

    broker.admin().create_topics([NewTopic(name, partitions, 1)])[name].result(20)
    time.sleep(0.3)
    return name


class Checkpoint:
    """A query that ran over a topic and was stopped: its checkpoint and what it recorded."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.topic = new_topic(broker, f"guard-{uuid.uuid4().hex[:8]}")
        produce(broker, self.topic, 20)
        query = self.query(read(spark, broker, subscribe=self.topic))
        checks.guard(partial(describe_source, spark._jvm), query, {})
        self.identity = query.identities["0"]
        self.run(query)

    def query(self, df: DataFrame) -> JobQuery:
        start = PySparkStart(df.writeStream, lambda: None)
        queries = Queries(str(self.folder))
        queries.known_spark = start.session
        return queries.register("orders", start, start.sources(), AS_BEFORE)

    def run(self, query: JobQuery, df: DataFrame | None = None) -> int:
        """Run until all is read; returns the rows of the last batch."""
        df = df if df is not None else read(self.spark, self.broker, subscribe=self.topic)
        writer = df.writeStream.format("noop").queryName(f"orders-{uuid.uuid4().hex[:6]}")
        started = writer.option("checkpointLocation", query.location).trigger(availableNow=True).start()
        assert started.awaitTermination(60)
        return int(started.lastProgress["numInputRows"]) if started.lastProgress else 0

    def files(self) -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in sorted(self.folder.rglob("*")) if p.is_file()}

    def refusal(self, df: DataFrame, expected: list[SourceIdentity] | None = None) -> FlinkstyleError:
        """Guard a query; it must be refused, and the checkpoint must be as it was."""
        before = self.files()
        recorded = expected if expected is not None else [self.identity]
        with pytest.raises(FlinkstyleError) as refused:
            checks.guard(partial(describe_source, self.spark._jvm), self.query(df), {"0": recorded})
        assert self.files() == before
        assert "not started; its checkpoint is as it was" in refused.value.state_after
        return refused.value


@pytest.fixture(scope="module")
def checkpoint(
    spark: SparkSession, old_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoint:
    return Checkpoint(spark, old_broker, tmp_path_factory.mktemp("guard"))


def test_guard_accepts_the_same_log_however_it_is_subscribed(spark: SparkSession, checkpoint: Checkpoint):
    broker, topic = checkpoint.broker, checkpoint.topic
    for options in (
        {"subscribe": topic},
        {"subscribePattern": f"{topic[:-1]}."},
        {"assign": json.dumps({topic: [0, 1]})},
    ):
        query = checkpoint.query(read(spark, broker, **options))
        checks.guard(partial(describe_source, spark._jvm), query, {"0": [checkpoint.identity]})
        assert query.identities == {"0": checkpoint.identity}
    assert checkpoint.identity.cluster_id == broker.cluster_id


def test_guard_refuses_another_cluster_of_the_same_topic(
    spark: SparkSession, checkpoint: Checkpoint, new_broker: Broker
):
    new_topic(new_broker, checkpoint.topic)
    produce(new_broker, checkpoint.topic, 50)
    refused = checkpoint.refusal(read(spark, new_broker, subscribe=checkpoint.topic))
    assert refused.code == "CLUSTER_MISMATCH"
    assert checkpoint.identity.cluster_id in refused.problem
    assert new_broker.cluster_id in refused.problem


def test_guard_refuses_partitions_that_differ_and_topics_that_are_not_read(
    spark: SparkSession, checkpoint: Checkpoint
):
    broker, topic = checkpoint.broker, checkpoint.topic
    refused = checkpoint.refusal(read(spark, broker, assign=json.dumps({topic: [1]})))
    assert refused.code == "PARTITION_SET"
    assert f"{topic}-0" in refused.problem
    other = new_topic(broker, f"{topic}x")
    assert checkpoint.refusal(read(spark, broker, subscribe=other), []).code == "SOURCES_CHANGED"
    assert checkpoint.refusal(read(spark, broker, subscribe=f"{topic},{other}")).code == "PARTITION_SET"
    missing = checkpoint.refusal(read(spark, broker, subscribe=f"{topic},nowhere"))
    assert missing.code == "TOPIC_MISSING"
    assert "was expected to have topic nowhere, found that it does not exist there" in missing.problem
    union = read(spark, broker, subscribe=topic).union(read(spark, broker, subscribe=other))
    assert checkpoint.refusal(union).code == "SOURCES_CHANGED"


def test_guard_refuses_offsets_outside_the_log_and_a_recreated_topic(
    spark: SparkSession, old_broker: Broker, tmp_path: Path
):
    from confluent_kafka import TopicPartition

    own = Checkpoint(spark, old_broker, tmp_path)
    same = read(spark, old_broker, subscribe=own.topic)
    produce(old_broker, own.topic, 20)
    deleted = TopicPartition(own.topic, 1, 15)
    old_broker.admin().delete_records([deleted])[deleted].result(20)
    refused = own.refusal(same)
    assert refused.code == "OFFSET_BEFORE_START"
    assert f"{own.topic}-1" in refused.problem

    old_broker.admin().delete_topics([own.topic])[own.topic].result(20)
    time.sleep(1)
    new_topic(old_broker, own.topic)
    assert own.refusal(same).code == "TOPIC_RECREATED"
    assert own.refusal(same, []).code == "OFFSET_BEYOND_END"


def test_guard_refuses_offsets_that_spark_has_forgotten(
    spark: SparkSession, old_broker: Broker, tmp_path: Path
):
    """Spark before 3.4 wrote such a log when Kafka named no partition for a moment (SPARK-41375)."""
    checkpoint = Checkpoint(spark, old_broker, tmp_path)
    place = checkpoint.folder / "orders"
    logs = [(place / "offsets" / "0").read_text(), (place / "commits" / "0").read_text()]
    for folder, text in zip(("offsets", "commits"), logs, strict=True):
        (place / folder / "1").write_text("\n".join([*text.split("\n")[:2], *(["{}"] * ("conf" in text))]))
    error = checkpoint.refusal(read(spark, checkpoint.broker, subscribe=checkpoint.topic))
    assert error.code == "SOURCES_CHANGED"
    assert f'{{"{checkpoint.topic}": {{"0": 10, "1": 10}}}}' in error.remedy
    read_again = checkpoint.run(checkpoint.query(read(spark, checkpoint.broker, subscribe=checkpoint.topic)))
    assert read_again == 20, "which Spark alone does not refuse"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, ClusterUnreachableError, r"127\.0\.0\.1:1"),
        (
            {"kafka.bootstrap.servers": "nowhere.invalid:1"},
            ClusterUnreachableError,
            "No resolvable bootstrap",
        ),
        ({"kafka.retries": "many"}, KAFKA_REQUEST, "expected to be valid.*many"),
    ],
    ids=["silent", "unknown host", "invalid setting"],
)
def test_guard_refuses_a_cluster_that_cannot_be_asked(
    spark: SparkSession,
    checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    error: type[FlinkstyleError] | ErrorKind,
    text: str,
):
    """What a time may mend is told apart from what a person must: only the former is tried again."""
    monkeypatch.setattr("airflow_flinkstyle.agent.spark.kafka.REQUEST_TIMEOUT_S", 2)
    query = checkpoint.query(read(spark, checkpoint.broker, subscribe=checkpoint.topic, **options))
    with refuses(error, match=text):
        checks.guard(partial(describe_source, spark._jvm), query, {})


def test_open_transaction_ends_what_a_committed_reader_can_reach(spark: SparkSession, old_broker: Broker):
    from confluent_kafka import Producer

    topic = new_topic(old_broker, f"guard-{uuid.uuid4().hex[:8]}", partitions=1)
    produce(old_broker, topic, 5, partitions=1)
    producer = Producer({"bootstrap.servers": old_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(20)

    def ends(**options: str) -> tuple[int, int]:
        (source,) = sources_of(read(spark, old_broker, subscribe=topic, **options))
        log = describe_source(spark._jvm, source).log_range((topic, 0))
        return log.last_stable, log.end

    committed = {"kafka.isolation.level": "read_committed"}
    assert ends() == (6, 6)
    assert ends(**committed) == (5, 6)
    producer.commit_transaction(20)
    assert ends(**committed) == (7, 7)  # the commit's marker takes an offset


def noting(spark: SparkSession, asked: list[str]) -> Callable[..., Any]:
    """Return what sends a command to the JVM, and notes it unless Python lets an object go.

    The garbage of tests before, whenever it is collected, is told to the JVM object by object.
    """
    from py4j.protocol import MEMORY_COMMAND_NAME

    send = spark._jvm._gateway_client.send_command

    def note(command: str, *args: Any) -> Any:  # noqa: ANN401 - py4j's
        if not command.startswith(MEMORY_COMMAND_NAME):
            asked.append(command)
        return send(command, *args)

    return note


@pytest.mark.parametrize("prints", ["as it does", "otherwise"])
def test_guard_asks_the_jvm_as_often_for_many_partitions_as_for_few(
    spark: SparkSession, old_broker: Broker, monkeypatch: pytest.MonkeyPatch, prints: str
):
    topics = [f"guard.{size}-2-{uuid.uuid4().hex[:8]}" for size in (2, 40)]
    calls = []
    for topic, partitions in zip(topics, (2, 40), strict=True):
        new_topic(old_broker, topic, partitions=partitions)
        produce(old_broker, topic, 80, partitions=partitions)
        (source,) = sources_of(read(spark, old_broker, subscribe=topic))
        if prints == "otherwise":  # as a later client of Kafka might
            monkeypatch.setattr("airflow_flinkstyle.agent.spark.kafka._LISTED", re.compile("()()(never)"))
        asked: list[str] = []
        with monkeypatch.context() as patched:
            patched.setattr(spark._jvm._gateway_client, "send_command", noting(spark, asked))
            seen = describe_source(spark._jvm, source).topics[topic]
        assert {number: log.end for number, log in seen.partitions.items()} == dict.fromkeys(
            range(partitions), 80 // partitions
        )
        calls.append(len(asked))
    more = calls[1] - calls[0]
    assert more < 38 if prints == "as it does" else more >= 3 * 38, "a call for each partition"


def test_capture_refuses_a_source_whose_cluster_changed_since_its_start(
    spark: SparkSession, checkpoint: Checkpoint, tmp_path: Path
):
    query = checkpoint.query(read(spark, checkpoint.broker, subscribe=checkpoint.topic))
    lab = Lab(tmp_path / "lab")

    def save(identity: SourceIdentity) -> Manifest:
        query.identities = {"0": identity}
        return take_all(
            partial(describe_source, spark._jvm),
            lab.repository,
            [query],
            [],
            savepoint_id="sp-1",
            spark_version=spark.version,
            generation=Generation(1),
            stopped_at={"orders": BatchId(0)},
            previous=None,
            cancelled=lambda: False,
            progress=lambda _: None,
        )

    with refuses(CLUSTER_MISMATCH, match="started on Kafka cluster other"):
        save(replace(checkpoint.identity, cluster_id="other"))
    assert lab.repository.ids() == ()
    position = save(checkpoint.identity).queries[0].kafka["0"]
    assert position.offsets.by_topic == {checkpoint.topic: {0: 10, 1: 10}}
    assert position.log_range == {checkpoint.topic: {0: (0, 10), 1: (0, 10)}}


def test_union_is_listed_in_the_offset_log_in_the_order_of_the_plan(
    spark: SparkSession, old_broker: Broker, tmp_path: Path
):
    """Which line belongs to which source is what the guard and the rewrite build on."""
    own = Checkpoint(spark, old_broker, tmp_path / "unused")
    other = new_topic(old_broker, f"a{own.topic}")
    produce(old_broker, other, 6)
    first, second = (read(spark, old_broker, subscribe=topic) for topic in (own.topic, other))
    union = first.union(second).union(first)
    queries, start = Queries(str(tmp_path)), PySparkStart(union.writeStream, lambda: None)
    queries.known_spark = start.session
    query = queries.register("union", start, start.sources(), AS_BEFORE)
    own.run(query, union)
    checks.guard(partial(describe_source, spark._jvm), query, {})
    topics = [list(query.identities[key].topic_ids) for key in sorted(query.identities)]
    raw = (tmp_path / "union" / "offsets" / "0").read_text().splitlines()[2:]
    assert [list(json.loads(line)) for line in raw] == topics


KAFKA_JOB = """
import sys
from pyspark.sql import SparkSession
servers, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("kafka").options(**{
    "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}).load()
rows.writeStream.format("noop").queryName("orders").start().awaitTermination()
"""


def test_driver_is_refused_on_another_cluster_and_goes_on_with_an_override(
    kafka_pair: KafkaPair, tmp_path: Path, warm_jvms: WarmJvms | None
):
    topic = new_topic(kafka_pair.old, f"guard-{uuid.uuid4().hex[:8]}")
    new_topic(kafka_pair.new, topic)
    for broker in kafka_pair:
        produce(broker, topic, 20)
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    try:
        script = lab.script(KAFKA_JOB)
        first = lab.start(1, script, kafka_pair.old.bootstrap, topic)
        lab.until_batch(1, "orders")
        stop = lab.ask(1, "stop_with_savepoint")
        closed = dict(lab.end_of(1, stop).batches)
        assert first.wait() == 0
        assert lab.heartbeat(1).queries["orders"].sources["0"].cluster_id == kafka_pair.old.cluster_id

        # A bootstrap name that now points elsewhere: the same script and arguments otherwise.
        second = lab.start(
            2, script, kafka_pair.new.bootstrap, topic, savepoint_id=stop.savepoint_id, closed_at=closed
        )
        assert second.wait() == 1
        failed = lab.heartbeat(2)
        assert (failed.state, failed.error[0]) == ("failed", "CLUSTER_MISMATCH")
        assert lab.current().generation == 1
        offsets, commits = logs_of(str(lab.folder / "checkpoints-2"), "orders")
        assert max(offsets) == max(commits) == closed["orders"]

        rule = KafkaOverride(
            role="source",
            servers=kafka_pair.new.bootstrap,
            options={"kafka.bootstrap.servers": kafka_pair.old.bootstrap},
        )
        lab.claim(3, follows=1, overrides=(rule,))
        lab.order_takeover(3, savepoint_id=stop.savepoint_id, closed_at=closed)
        third = lab.launch(3, script, kafka_pair.new.bootstrap, topic)
        lab.until_state(3, "running")
        produce(kafka_pair.old, topic, 2)
        lab.until_batch(3, "orders", above=closed["orders"])
        assert lab.end_of(3, lab.ask(3, "stop")).outcome == "done"
        assert third.wait() == 0
    finally:
        lab.close()
