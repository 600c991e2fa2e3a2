"""Rehearsals over a Kafka topic to which nobody writes any more, with real drivers and a real broker."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.types import Generation
from tests.integration.agent_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal
    from testbed.kafka import Broker
    from tests.integration.agent_lab import Driver
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]
RECORDS = 20
JOB = """
import sys
from pyspark.sql import SparkSession, functions as F
servers, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
def read(value):
    return int(value)
rows = spark.readStream.format("kafka").options(**{
    "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}).load()
read = F.udf(read, "long")
keys = rows.select((read(F.col("value").cast("string")) % 7).alias("k"))
(keys.groupBy("k").count().writeStream.format("noop").queryName("counts").outputMode("update")
    .option("checkpointLocation", "/nonexistent/ignored").start().awaitTermination())
"""
BROKEN = JOB.replace("return int(value)", "raise ValueError('broken on a row')")


class Quiet:
    """A job that has read all of its topic and runs on, with a hot savepoint ``sp-1``."""

    def __init__(self, lab: Lab, broker: Broker) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import NewTopic

        self.lab, self.broker = lab, broker
        self.topic = f"quiet-{uuid.uuid4().hex[:8]}"
        broker.admin().create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(20)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce(self.topic, str(number).encode(), partition=number % 2)
        assert producer.flush(20) == 0
        lab.start(1, lab.script(JOB), broker.bootstrap, self.topic)
        lab.until_batch(1, "counts")
        assert lab.end_of(1, lab.ask(1, "savepoint")).outcome == "done"

    def rehearse(self, generation: int, text: str) -> Driver:
        self.lab.claim(generation, follows=1, prepare_savepoint_id="sp-1", rehearse=Rehearse(batches=2))
        script = self.lab.script(text, f"v{generation}.py")
        return self.lab.launch(generation, script, self.broker.bootstrap, self.topic)

    def told(self, generation: int) -> Rehearsal:
        found = self.lab.board.rehearsal(Generation(generation))
        assert found is not None
        return found


@pytest.fixture(scope="module")
def quiet(
    old_broker: Broker, tmp_path_factory: pytest.TempPathFactory, warm_jvms: WarmJvms | None
) -> Iterator[Quiet]:
    lab = Lab(tmp_path_factory.mktemp("quiet") / "lab", warm=warm_jvms)
    yield Quiet(lab, old_broker)
    lab.close()


@pytest.mark.nightly
def test_quiet_topic_is_rehearsed_on_the_last_records_before_the_savepoint(quiet: Quiet):
    quiet.rehearse(2, BROKEN)
    said = quiet.lab.until_state(2, "failed").error[1].splitlines()[0]
    assert "ValueError: broken on a row (v2.py:" in said, "what it failed of, and where, in the first line"
    driver = quiet.rehearse(3, JOB)
    quiet.lab.until_state(3, "standby")
    found = quiet.told(3)
    assert (found.failure, found.not_tested) == (None, ())
    assert (found.queries["counts"].input_rows, found.queries["counts"].replayed) == (RECORDS, True)
    assert found.summary().endswith("state schema unchanged, on records that the state has already")
    driver.kill()


@pytest.mark.nightly
def test_query_without_any_record_is_not_tested(quiet: Quiet):
    from confluent_kafka import OFFSET_END, TopicPartition

    ends = [TopicPartition(quiet.topic, partition, OFFSET_END) for partition in (0, 1)]
    for done in quiet.broker.admin().delete_records(ends).values():
        done.result(20)
    driver = quiet.rehearse(4, BROKEN)
    quiet.lab.until_state(4, "standby")
    found = quiet.told(4)
    assert found.not_tested == ("counts",)
    assert found.summary().startswith("NOT TESTED, no rows read: counts; rehearsed: 1 batch, 0 rows")
    driver.kill()
