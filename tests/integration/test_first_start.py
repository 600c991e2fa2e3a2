"""A job that has run in plain Spark is started for the first time: nothing is left behind without a word."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.adoption.outside import LiveClusters
from airflow_flinkstyle.jobs.adoption.stopped import adopt_stopped
from airflow_flinkstyle.jobs.adoption.taking import WatchedCheckpoint
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.start.origins import Fresh
from airflow_flinkstyle.jobs.status import Failed
from airflow_flinkstyle.kafka.settings import KafkaCluster
from tests.integration.agent_lab import plain_submit
from tests.integration.detached_lab import TIMEOUT_S, Lab
from tests.nightly import matrix_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.spec import JobSpec
    from testbed.kafka import Broker
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
out, servers, topic, checkpoint, begin, trigger = sys.argv[1:]
spark = SparkSession.builder.appName("orders").getOrCreate()
rows = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic).option("startingOffsets", begin).load())
def note(batch, batch_id):
    with open(out, "a") as f:
        values = [int(row.value) for row in batch.collect()]
        f.write(json.dumps({"batch": batch_id, "values": values}) + "\\n")
writer = rows.writeStream.queryName("orders").foreachBatch(note).option("checkpointLocation", checkpoint)
often = {"availableNow": True} if trigger == "now" else {"processingTime": "100 milliseconds"}
writer.trigger(**often).start().awaitTermination()
"""


@dataclass(kw_only=True)
class Moving:
    """A job that has read 0 to 99 in plain Spark, after which 100 to 119 came."""

    lab: Lab
    broker: Broker
    topic: str
    checkpoint: Path

    produced: list[int] = field(default_factory=list)
    """All numbers so far, of every test of this topic."""

    def produce(self, count: int) -> int:
        """Produce so many numbers more; returns the last one."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(len(self.produced), len(self.produced) + count):
            producer.produce(self.topic, str(number).encode())
            self.produced.append(number)
        assert producer.flush(20) == 0
        return self.produced[-1]

    def args(self, begin: str, trigger: str) -> tuple[str, ...]:
        return (str(self.lab.out), self.broker.bootstrap, self.topic, str(self.checkpoint), begin, trigger)

    def spec(self, begin: str, **changes: object) -> JobSpec:
        return replace(self.lab.spec(SCRIPT), args=self.args(begin, "runs on"), **changes)

    def read(self) -> list[int]:
        lines = self.lab.out.read_text().splitlines() if self.lab.out.exists() else []
        return [value for line in lines for value in json.loads(line)["values"]]

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.checkpoint.rglob("*") if path.is_file())
        return {str(path.relative_to(self.checkpoint)): path.read_bytes() for path in found}

    def until(self, what: str, check: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not check():
            assert time.monotonic() < deadline, f"Never: {what}\n{self.lab.logs()}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def in_plain_spark(tmp_path_factory: pytest.TempPathFactory, old_broker: Broker) -> Moving:
    """Run the script as its author would."""
    folder = tmp_path_factory.mktemp("plain")
    topic = f"moving-{uuid.uuid4().hex[:8]}"
    old_broker.create_topic(topic, partitions=1)
    moving = Moving(lab=Lab(folder), broker=old_broker, topic=topic, checkpoint=folder / "own checkpoint")
    moving.produce(100)
    script = folder / "orders.py"
    script.write_text(SCRIPT)
    plain_submit(script, *moving.args("earliest", "now"))
    assert moving.read() == list(range(100))
    moving.produce(20)
    return moving


@pytest.fixture
def moving(in_plain_spark: Moving, tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Moving]:
    moving = replace(in_plain_spark, lab=Lab(tmp_path, warm=warm_jvms))
    yield moving
    moving.lab.close()


@pytest.mark.parametrize("begin", matrix_but("latest".__eq__, ["latest", "earliest"]))
def test_first_start_of_a_job_that_ran_in_plain_spark_is_refused_until_its_checkpoint_is_named(
    moving: Moving, begin: str
):
    client, location = moving.lab.client, str(moving.checkpoint)
    before = moving.files()

    def started(spec: JobSpec, key: str) -> int:
        handle = client.starts.start(spec, moving.lab.target(), claim_key=key, origin=Fresh())
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        return handle.generation

    with pytest.raises(DriverFailedError) as refused:
        started(moving.spec(begin), "first")
    assert refused.value.code == "CHECKPOINT_FOUND"
    assert not refused.value.retryable
    assert (
        f"found a checkpoint at {location}, which its script names: batch 0 committed"
        in refused.value.problem
    )
    assert "No record was read" in refused.value.state_after
    assert f"flinkstyle job adopt --job counts --checkpoint 'orders={location}'" in refused.value.remedy
    assert f"--leave-checkpoint '{location}'" in refused.value.remedy
    assert moving.read() == []
    assert moving.files() == before
    assert client.view.board.current() is None

    status = client.view.status()
    assert isinstance(status, Failed)
    assert status.code == "CHECKPOINT_FOUND"
    with pytest.raises(DriverFailedError, match="which its script names"):  # nobody starts it again
        client.drivers.ensure_running(status)
    with pytest.raises(DriverFailedError, match="which its script names"):  # another one is no blanket yes
        started(moving.spec(begin, leave_checkpoints=("/another",)), "first")

    assert started(moving.spec(begin, leave_checkpoints=(location,)), "first") == 3
    moving.until("its first batch says where it begins", moving.lab.out.exists)
    newest = moving.produce(1)
    moving.until("it reads on", lambda: newest in moving.read())
    assert moving.read()[:-1] == ([] if begin == "latest" else list(range(newest)))
    assert moving.files() == before

    client.requests.stop("stop", savepoint=True, timeout_s=TIMEOUT_S)
    again = client.starts.start(moving.spec(begin), moving.lab.target(), claim_key="again")
    client.drivers.wait_running(again.generation, timeout_s=TIMEOUT_S)  # it has a history of its own now
    newest = moving.produce(1)
    moving.until("it reads on", lambda: newest in moving.read())


def test_job_that_was_refused_is_adopted_and_continues_at_its_batch(moving: Moving):
    client = moving.lab.client
    first = client.starts.start(moving.spec("latest"), moving.lab.target(), claim_key="first")
    with pytest.raises(DriverFailedError, match="which its script names"):
        client.drivers.wait_running(first.generation, timeout_s=TIMEOUT_S)

    cluster = KafkaCluster(name="kafka", config={"bootstrap.servers": moving.broker.bootstrap})
    watched = WatchedCheckpoint(
        checkpoints={"orders": str(moving.checkpoint)}, clusters=LiveClusters([cluster])
    )
    adopt_stopped(client.view, watched, key="adopt", by="test", still_s=0.1, mark=False)
    again = client.starts.start(moving.spec("latest"), moving.lab.target(), claim_key="first")
    client.drivers.wait_running(again.generation, timeout_s=TIMEOUT_S)
    newest = moving.produce(1)
    moving.until("it reads on", lambda: newest in moving.read())
    assert moving.read() == list(range(100, newest + 1))
    batches = [json.loads(line)["batch"] for line in moving.lab.out.read_text().splitlines()]
    assert batches == list(range(1, len(batches) + 1))
