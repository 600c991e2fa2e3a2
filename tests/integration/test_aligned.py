"""All queries of a job cut at the same offsets, on real Spark and Kafka; what they counted is the judge."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.agent_lab import Driver, Lab, logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.protocol.records import Request
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.kafka import Broker

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(180)]

QUERIES = ("fast", "slow")
JOB = """
import json, os, sys, time
from pyspark.sql import SparkSession, functions as F
servers, topic, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
def count(name, seconds, **options):
    rows = spark.readStream.format("kafka").options(**{
        "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
        **options}).load()
    def note(batch, batch_id):
        n = batch.agg(F.sum("count")).first()[0]
        with open(out, "a") as f:
            f.write(json.dumps({"query": name, "batch": batch_id, "n": n}) + "\\n")
        while name == "slow" and os.path.exists(out + ".block"):
            time.sleep(0.05)
    counts = rows.groupBy((F.expr("cast(cast(value as string) as int)") % 5).alias("k")).count()
    return (counts.writeStream.queryName(name).outputMode("complete").foreachBatch(note)
        .trigger(processingTime=f"{seconds} seconds").start())
fast = count("fast", 0.3)
slow = count("slow", 1, maxOffsetsPerTrigger="100")
while fast.isActive and slow.isActive:
    spark.streams.awaitAnyTermination(1)
print("A QUERY ENDED")
"""
"""Two queries on one topic; the slow one stays in its batch while a file says so."""


class Topic:
    """A topic with two partitions, and a producer that can be held."""

    def __init__(self, broker: Broker) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import NewTopic

        self.broker, self.name = broker, f"aligned-{uuid.uuid4().hex[:8]}"
        broker.admin().create_topics([NewTopic(self.name, 2, 1)])[self.name].result(20)
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        self._ended, self._held = threading.Event(), threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        while not self._ended.wait(0.05):
            if self._held.is_set():
                continue
            for _ in range(3):
                self._producer.produce(self.name, str(self.sent).encode(), partition=self.sent % 3 // 2)
                self.sent += 1
            self._producer.flush(10)

    def hold(self) -> None:
        self._held.set()
        time.sleep(0.2)
        self._producer.flush(10)

    def release(self) -> None:
        self._held.clear()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(20)


@pytest.fixture
def topic(old_broker: Broker) -> Iterator[Topic]:
    topic = Topic(old_broker)
    yield topic
    topic.end()


class AlignedLab(Lab):
    """A job of two queries."""

    def begin(self, topic: Topic, generation: int = 1, **go: Any) -> Driver:
        driver = self.start(generation, self.script(JOB), *self.arguments(topic), **go)
        self.until_batches(generation, above=0)
        return driver

    def arguments(self, topic: Topic) -> tuple[str, str, str]:
        return topic.broker.bootstrap, topic.name, str(self.out)

    def until_batches(self, generation: int = 1, *, above: int) -> None:
        for query in QUERIES:
            self.until_batch(generation, query, above=above)

    @contextlib.contextmanager
    def slow_is_blocked(self) -> Iterator[None]:
        """Keep the slow query in its batch."""
        block = Path(f"{self.out}.block")
        block.touch()
        try:
            self.until("slow has a batch that is not committed", self.slow_is_behind)
            yield
        finally:
            block.unlink(missing_ok=True)

    def slow_is_behind(self) -> bool:
        offsets, commits = logs_of(str(self.folder / "checkpoints-1"), "slow")
        return max(offsets) > max(commits)

    def goes_on(self, generation: int = 1, queries: tuple[str, ...] = QUERIES) -> None:
        """Require that queries commit batches."""
        for query in queries:
            at = max(logs_of(str(self.folder / f"checkpoints-{generation}"), query)[1])
            self.until(
                f"{query} goes on",
                lambda at=at, query=query: (
                    max(logs_of(str(self.folder / f"checkpoints-{generation}"), query)[1]) > at
                ),
            )

    def counted(self, query: str, batch: int) -> int:
        return next(
            row["n"] for row in reversed(self.rows()) if (row["query"], row["batch"]) == (query, batch)
        )

    def last_count(self, query: str) -> int:
        return next(row["n"] for row in reversed(self.rows()) if row["query"] == query)

    def savepoint(self, request: Request, generation: int = 1) -> Manifest:
        end = self.end_of(generation, request)
        assert (end.outcome, end.detail) == ("done", end.detail)
        return self.repository.read(request.savepoint_id)


def positions(manifest: Manifest) -> dict[str, dict[int, int]]:
    return {query.name: dict(*query.kafka["0"].offsets.values()) for query in manifest.queries}


def assert_counts_are_true(lab: AlignedLab, manifest: Manifest) -> None:
    """What a query had counted at its batch is what it had read."""
    for query in manifest.queries:
        (offsets,) = query.kafka["0"].offsets.values()
        assert lab.counted(query.name, query.batch_id) == sum(offsets.values())


def test_job_is_cut_hot_at_one_offset_and_drained(topic: Topic, tmp_path: Path):
    lab = AlignedLab(tmp_path / "lab")
    try:
        driver = lab.begin(topic)
        with lab.slow_is_blocked():
            lab.goes_on(queries=("fast",))
            apart = lab.savepoint(lab.ask(1, "savepoint"))
        assert apart.alignment == "none"
        at = positions(apart)
        assert at["fast"] != at["slow"]
        assert_counts_are_true(lab, apart)

        hot = lab.savepoint(lab.ask(1, "savepoint", alignment="aligned"))
        assert hot.alignment == "aligned"
        at = positions(hot)
        assert at["fast"] == at["slow"]
        assert_counts_are_true(lab, hot)
        lab.goes_on()

        topic.hold()
        stop = lab.ask(1, "stop_with_savepoint", alignment="aligned", drain=True)
        drained = lab.savepoint(stop)
        assert driver.wait() == 0
        assert "A QUERY ENDED" in driver.text
        assert sum(positions(drained)["slow"].values()) == topic.sent
        assert positions(drained)["fast"] == positions(drained)["slow"]
        assert lab.last_count("fast") == lab.last_count("slow") == topic.sent
        assert lab.heartbeat(1).batches() == {query.name: query.batch_id for query in drained.queries}

        topic.release()
        again = lab.begin(topic, 2, savepoint_id=hot.savepoint_id)
        topic.hold()
        lab.until("all is counted", lambda: {lab.last_count(name) for name in QUERIES} == {topic.sent})
        assert lab.end_of(2, lab.ask(2, "stop")).outcome == "done"
        assert again.wait() == 0
    finally:
        lab.close()
