"""A job that counts the numbers of a Kafka topic, with detached drivers, and other versions of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from testbed import paths
from testbed.waiting import wait_until
from tests.integration.detached_lab import COUNTS, TIMEOUT_S, Lab

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.spec import JobSpec
    from testbed.kafka import Broker

JOB: Final = COUNTS.replace(
    'rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()',
    """servers, topic = sys.argv[2:]
numbers = spark.readStream.format("kafka").options(**{"kafka.bootstrap.servers": servers, "subscribe": topic,
    "startingOffsets": "earliest"}).load()
rows = numbers.select(F.col("value").cast("string").cast("long").alias("value"))""",
)
REFACTORED: Final = JOB.replace('F.col("value") % 7', 'F.pmod("value", F.lit(7))')
HANGS: Final = JOB.replace(
    "keyed =",
    """def hang(value):
    import os, time
    open(out + ".hangs", "w").close()
    while os.path.exists(out + ".hangs"):
        time.sleep(0.1)
    return value
rows = rows.select(F.udf(hang, "long")("value").alias("value"))
keyed =""",
)
"""Stands in its first batch for as long as a file is there that it writes."""


class NumbersJob:
    """One job and its numbers: of one partition, so that each count is the highest number plus one."""

    def __init__(self, lab: Lab, broker: Broker, topic: str, minor: str = paths.SPARK) -> None:
        """Make the topic, with some numbers; ``minor`` is the Spark on which it starts."""
        self.lab, self._broker, self._topic, self._minor = lab, broker, topic, minor
        self.produced, self.savepoint_id = 0, ""
        broker.create_topic(topic, partitions=1)
        self.produce(50)

    def spec(self, text: str = JOB, name: str = "counts.py") -> JobSpec:
        """Return a version of it."""
        args = (str(self.lab.out), self._broker.bootstrap, self._topic)
        return replace(self.lab.spec(text, name), args=args)

    def start(self) -> None:
        """Start it; returns once it has read all."""
        handle = self.lab.client.starts.start(self.spec(), self.lab.target(self._minor), claim_key="start")
        self.lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        self.until_read()

    def save(self) -> None:
        """Take a hot savepoint."""
        requests = self.lab.client.requests
        _, ended = requests.wait(requests.request_savepoint("save"), timeout_s=TIMEOUT_S)
        assert ended.savepoint_id is not None, ended
        self.savepoint_id = ended.savepoint_id

    def produce(self, count: int) -> None:
        """Write the next numbers."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for number in range(self.produced, self.produced + count):
            producer.produce(self._topic, str(number).encode())
        assert producer.flush(20) == 0
        self.produced += count

    def read(self) -> int:
        """Return how many numbers it has counted."""
        lines = self.lab.out.read_text().split("\n")[:-1] if self.lab.out.exists() else []
        return json.loads(lines[-1])["n"] or 0 if lines else 0

    def until_read(self) -> None:
        """Wait until it has counted all."""
        wait_until("all is read", lambda: self.read() == self.produced, timeout_s=TIMEOUT_S)
