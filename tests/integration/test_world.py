"""What the world does not tell, what comes and goes in it, what runs beside the job: real Spark and Kafka."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import SECURITY_DISABLED
from airflow_flinkstyle.kafka.fence.fences import AclFence
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.errors import SINK_LINEAGE
from airflow_flinkstyle.sinks.lineage import open_lineage
from airflow_flinkstyle.sinks.settings import SinkSettings
from testbed.kafka import Broker
from testbed.ports import free_port
from testbed.quiet_endpoint import QuietEndpoint
from testbed.refusals import refuses
from tests.integration.agent_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.protocol.records import Request
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]

PATTERN_JOB = """
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener
servers, pattern, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
class EndsSpark(StreamingQueryListener):
    def onQueryStarted(self, event): print("HEARD started", flush=True)
    def onQueryProgress(self, event): pass
    def onQueryIdle(self, event): pass
    def onQueryTerminated(self, event):
        print("HEARD terminated", flush=True)
        spark.stop()  # so that a scheduler restarts the application
spark.streams.addListener(EndsSpark())
compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()  # as a JAR brings one
compiler.cook('''
import org.apache.spark.sql.streaming.StreamingQueryListener;
public class EndsSparkToo extends StreamingQueryListener implements Runnable {
    public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {}
    public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {}
    public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {
        ended.countDown();
    }
    private final java.util.concurrent.CountDownLatch ended = new java.util.concurrent.CountDownLatch(1);
    public EndsSparkToo() {  // Spark is stopped by no thread that tells listeners, nor by one made there
        Thread stops = new Thread(this);
        stops.setDaemon(true);
        stops.start();
    }
    public void run() {
        try {
            ended.await();
        } catch (InterruptedException error) {
            return;
        }
        org.apache.spark.SparkContext.getOrCreate().stop();
    }
}''')
of_the_jvm = compiler.getClassLoader().loadClass("EndsSparkToo").newInstance()
spark.streams._jsqm.addListener(of_the_jvm)
def note(batch, batch_id):
    with open(out, "a") as f:
        f.write(json.dumps({"batch": batch_id, "n": batch.count()}) + "\\n")
rows = spark.readStream.format("kafka").options(**{
    "kafka.bootstrap.servers": servers, "subscribePattern": pattern, "startingOffsets": "earliest",
    "kafka.metadata.max.age.ms": "500", "failOnDataLoss": "false"}).load()
rows.writeStream.queryName("orders").foreachBatch(note).trigger(processingTime="500 milliseconds").start()
spark.streams.awaitAnyTermination()
"""


class PatternLab(Lab):
    """A job that reads every topic of a pattern."""

    def begin(self, generation: int, broker: Broker, pattern: str, **order: object) -> None:
        self.start(generation, self.script(PATTERN_JOB), broker.bootstrap, pattern, str(self.out), **order)
        self.until_state(generation, "running")

    def until_read(self, count: int) -> None:
        self.until(f"{count} rows read", lambda: sum(row["n"] for row in self.rows()) == count)

    def saved(self, generation: int, request: Request) -> KafkaPosition:
        end = self.end_of(generation, request)
        assert end.outcome == "done", end.detail
        return self.repository.read(request.savepoint_id).queries[0].kafka["0"]

    @property
    def heard(self) -> list[str]:
        """What the script's listener was told, of all drivers."""
        return [line for one in self.drivers for line in one.text.splitlines() if line.startswith("HEARD")]


def test_topics_of_a_pattern_come_and_go_and_no_listener_hears_of_savepoints(
    old_broker: Broker, tmp_path: Path, warm_jvms: WarmJvms | None
):
    name = f"day-{uuid.uuid4().hex[:8]}"
    eu, us = f"{name}-eu", f"{name}-us"
    old_broker.create_topic(eu, partitions=1)
    produce(old_broker, eu, 10)
    lab = PatternLab(tmp_path / "lab", warm=warm_jvms)
    try:
        lab.begin(1, old_broker, f"{name}-.*")
        lab.until_read(10)
        old_broker.create_topic(us, partitions=1)
        produce(old_broker, us, 5)
        lab.until_read(15)
        held = lab.saved(1, lab.ask(1, "savepoint", alignment="aligned"))
        assert held.topic_ids.keys() == held.offsets.topics == {eu, us}
        assert None not in held.topic_ids.values()
        recorded = lab.until(
            "the record follows",
            lambda: (beat := lab.heartbeat(1)) and len(beat.queries["orders"].sources["0"].topic_ids) == 2,
        )
        assert recorded
        old_broker.admin().delete_topics([us])[us].result(20)
        produce(old_broker, eu, 3)
        lab.until_read(18)
        lab.until("a batch without the topic", lambda: _topics(lab) == {eu})
        assert lab.saved(1, lab.ask(1, "savepoint")).offsets.topics == {eu}
        assert lab.heard == ["HEARD started"]

        stop = lab.ask(1, "stop_with_savepoint")
        assert lab.saved(1, stop).offsets.topics == {eu}
        assert lab.drivers[0].wait() == 0
        assert lab.heartbeat(1).savepoint_id == stop.savepoint_id
        assert lab.heard == ["HEARD started"]

        # An older savepoint holds a topic that is gone: its script accepts that, and it is said.
        old_broker.create_topic(f"{name}-asia", partitions=2)
        produce(old_broker, f"{name}-asia", 4)
        lab.begin(2, old_broker, f"{name}-.*", savepoint_id="sp-1", closed_at=lab.heartbeat(1).batches())
        lab.until_read(18 + 3 + 4)
        assert lab.heartbeat(2).queries["orders"].lost["0"].topics == (us,)
        assert lab.end_of(2, lab.ask(2, "stop")).outcome == "done"
        assert lab.heard == ["HEARD started"] * 2
    finally:
        lab.close()


def produce(broker: Broker, topic: str, records: int, *, servers: str | None = None) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers or broker.bootstrap})
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(20) == 0


def _topics(lab: PatternLab) -> set[str]:
    from airflow_flinkstyle.agent.core.guards.checks import read_positions
    from airflow_flinkstyle.storage.open import open_store

    newest = read_positions(open_store(str(lab.folder / "checkpoints-1" / "orders"))).committed
    return set(newest.kafka_offsets("0").topics) if newest is not None else set()


BESIDE_JOB = """
import sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
beside = (rows._jdf.writeStream().queryName("from_jar").format("noop")
    .option("checkpointLocation", sys.argv[1] + ".beside").start())
rows.writeStream.queryName("counts").format("noop").trigger(processingTime="500 milliseconds").start()
import os
while not os.path.exists(sys.argv[1] + ".end"):
    time.sleep(0.05)
beside.stop()
spark.streams.awaitAnyTermination()
"""


def test_query_that_was_started_in_the_jvm_is_named_and_keeps_savepoints_from_being_taken(
    tmp_path: Path, warm_jvms: WarmJvms | None
):
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    try:
        lab.start(1, lab.script(BESIDE_JOB))
        lab.until_batch(1)
        lab.until("it is named", lambda: lab.heartbeat(1).unregistered == ("from_jar",))
        for command in ("savepoint", "stop_with_savepoint"):
            refused = lab.end_of(1, lab.ask(1, command))
            assert refused.outcome == "refused"
            assert "from_jar" in refused.detail
            assert "stop it without a savepoint" in refused.detail
        assert lab.repository.ids() == ()
        (tmp_path / "lab" / "out.jsonl.end").touch()
        lab.until("it has ended", lambda: lab.heartbeat(1).unregistered == ())
        stop = lab.ask(1, "stop_with_savepoint")
        assert lab.end_of(1, stop).savepoint_id == stop.savepoint_id
        assert lab.drivers[0].wait() == 0
    finally:
        lab.close()


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[tuple[Broker, QuietEndpoint]]:
    """A broker that is reached through an endpoint without ids only."""
    port = free_port()
    endpoint = QuietEndpoint(port)
    told = f"PLAINTEXT://127.0.0.1:{endpoint.port}"
    broker = Broker("quiet", tmp_path / "broker", port=port, settings={"advertised.listeners": told})
    broker.start()
    yield broker, endpoint
    broker.stop()
    endpoint.close()


KAFKA_JOB = """
import sys
from pyspark.sql import SparkSession
servers, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("kafka").options(**{
    "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}).load()
rows.writeStream.format("noop").queryName("orders").start().awaitTermination()
"""


def test_endpoint_without_ids_is_read_and_the_ids_that_come_later_contradict_nothing(
    quiet: tuple[Broker, QuietEndpoint], tmp_path: Path, warm_jvms: WarmJvms | None
):
    broker, endpoint = quiet
    servers = f"127.0.0.1:{endpoint.port}"
    cluster = KafkaCluster(name="quiet", config={"bootstrap.servers": servers})
    broker.create_topic("orders", partitions=1)
    produce(broker, "orders", 10, servers=servers)
    seen = describe(cluster, ["orders"])
    assert (seen.cluster_id, seen.topics["orders"].topic_id) == (None, None)
    with refuses(SECURITY_DISABLED, match="An id was expected"):
        AclFence(cluster=cluster).plan(["orders"])
    settings = SinkSettings(
        cluster=cluster, topic="totals", lineage="l", shards=1, control_topic="control", run="run"
    )
    with refuses(SINK_LINEAGE, match="have an id, found none"):
        open_lineage(settings, query_id="q", batch_id=0)
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    try:
        lab.start(1, lab.script(KAFKA_JOB), servers, "orders")
        lab.until_batch(1, "orders")
        query = lab.heartbeat(1).queries["orders"]
        assert (query.sources["0"].cluster_id, query.sources["0"].topic_ids) == (None, {"orders": None})
        assert "it is not noticed that another cluster answers" in query.notes()[0]
        stop = lab.ask(1, "stop_with_savepoint")
        closed = dict(lab.end_of(1, stop).batches)
        assert lab.drivers[0].wait() == 0

        endpoint.tells_ids = True  # as after an upgrade of the brokers in place
        lab.start(
            2, lab.script(KAFKA_JOB), servers, "orders", savepoint_id=stop.savepoint_id, closed_at=closed
        )
        lab.until_state(2, "running")
        told = lab.heartbeat(2).queries["orders"].sources["0"]
        assert told.cluster_id == describe(cluster, ()).cluster_id is not None
        assert told.topic_ids["orders"] is not None
        assert lab.end_of(2, lab.ask(2, "stop")).outcome == "done"
    finally:
        lab.close()
