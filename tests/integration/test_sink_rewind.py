"""The transactional sink under the agent: kills, rewinds, and moves to another cluster and back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import pytest

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from tests.integration.agent_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_flinkstyle.protocol.query_records import SinkLineage
    from testbed.kafka import Broker
    from tests.conftest import KafkaPair
    from tests.integration.warm_lab import WarmJvms

T = TypeVar("T")
pytestmark = [pytest.mark.integration, pytest.mark.kafka]

ROWS = 20
"""Per batch: values 0 to 19 in batch 0, and so on; the same whenever a batch is run."""
SINK_JOB = """
import os, sys, time
from pyspark.sql import SparkSession
from airflow_flinkstyle.sinks import TransactionalKafkaSink

servers, topic, shards, gate = sys.argv[1:5]

def on_phase(batch, shard, phase):
    if shard == 1 and phase == "begin" and os.path.exists(f"{gate}-{batch}"):
        os.rename(f"{gate}-{batch}", f"{gate}-reached")
        while os.path.exists(f"{gate}-reached"):
            time.sleep(0.1)

spark = SparkSession.builder.appName("sink").getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
records = rows.selectExpr("cast(value % 7 as string) as key", "cast(value as string) as value")
sink = TransactionalKafkaSink(
    {"bootstrap.servers": servers}, topic=topic, shards=int(shards), on_phase=on_phase, small_batch_rows=0
)
writer = records.writeStream.queryName("counts").foreachBatch(sink.foreach_batch)
writer.trigger(processingTime="200 milliseconds").start().awaitTermination()
"""


class Outputs(Lab):
    """A job that numbers its rows, and its output on each of two clusters."""

    def __init__(self, folder: Path, pair: KafkaPair, warm: WarmJvms | None) -> None:
        super().__init__(folder, warm=warm)
        self.pair, self.topic = pair, f"rewind-{folder.parent.name.replace('_', '-')}"
        self.app, self.gate = self.script(SINK_JOB), folder / "gate"
        self.generation = 0
        for broker in pair:
            broker.create_topic(self.topic, partitions=2)

    def until(self, what: str, check: Callable[[], T], timeout_s: float = 200) -> T:
        return super().until(what, check, timeout_s)

    def args(self, broker: Broker, shards: int) -> tuple[str, ...]:
        return broker.bootstrap, self.topic, str(shards), str(self.gate)

    def stop(self, generation: int, *, incarnation: int = 1) -> str:
        end = self.end_of(generation, self.ask(generation, "stop_with_savepoint", incarnation=incarnation))
        assert end.outcome == "done", end.detail
        assert end.savepoint_id is not None
        self.drivers[-1].wait(120)
        return end.savepoint_id

    def batch_of(self, savepoint_id: str) -> int:
        return self.repository.read(savepoint_id).queries[0].batch_id

    def lineage_of(self, savepoint_id: str) -> SinkLineage:
        (query,) = self.repository.read(savepoint_id).queries
        assert query.sinks is not None
        (found,) = query.sinks.lineages
        return found

    def counts(self, broker: Broker) -> Counter[int]:
        """Return how often each value stands in the output on a cluster, for read_committed readers."""
        cluster, found = cluster_of(broker), Counter[int]()
        view = describe(cluster, [self.topic])
        ranges = {
            tp: ReadRange(low=span.start, high=span.last_stable)
            for tp in view.partitions
            if (span := view.log_range(tp))
        }
        scan(
            cluster,
            ranges,
            lambda _, record: found.update([int(record.value() or b"")]),
            "read_committed",
        )
        return found


def cluster_of(broker: Broker) -> KafkaCluster:
    return KafkaCluster(name="out", config={"bootstrap.servers": broker.bootstrap})


def values(first_batch: int, last_batch: int) -> Counter[int]:
    return Counter(range(first_batch * ROWS, (last_batch + 1) * ROWS))


@pytest.fixture
def lab(tmp_path: Path, kafka_pair: KafkaPair, warm_jvms: WarmJvms | None) -> Iterator[Outputs]:
    lab = Outputs(tmp_path / "lab", kafka_pair, warm_jvms)
    yield lab
    lab.close()


@pytest.mark.nightly
def test_sink_moves_away_and_back_and_each_record_is_there_once(lab: Outputs, kafka_pair: KafkaPair):
    old, new = kafka_pair
    lab.start(1, lab.app, *lab.args(old, 2))
    lab.until_batch(1, above=1)
    first = lab.stop(1)
    at = lab.batch_of(first)
    found = lab.lineage_of(first)
    assert (found.shards, found.completed_batch, found.markers) == (2, at, {0: at, 1: at})
    assert found.cluster_id == describe(cluster_of(old), ()).cluster_id
    assert lab.counts(old) == values(0, at)

    lab.start(2, lab.app, *lab.args(new, 3), savepoint_id=first)  # and another number of shards
    lab.until_batch(2, above=at + 1)
    second = lab.stop(2)
    moved_at = lab.batch_of(second)
    assert lab.lineage_of(second).cluster_id == describe(cluster_of(new), ()).cluster_id
    assert lab.lineage_of(second).lineage == found.lineage
    assert lab.counts(new) == values(at + 1, moved_at)

    lab.start(3, lab.app, *lab.args(old, 3), savepoint_id=second)
    lab.until_batch(3, above=moved_at + 1)
    third = lab.stop(3)
    assert lab.counts(old) == values(0, at) + values(moved_at + 1, lab.batch_of(third))
    assert lab.counts(old) + lab.counts(new) == values(0, lab.batch_of(third))


@pytest.mark.nightly
def test_savepoint_before_a_half_written_batch_is_refused_to_continue_and_free_to_emit_again(
    lab: Outputs, kafka_pair: KafkaPair
):
    old = kafka_pair.old
    half = 2
    (lab.folder / f"gate-{half}").touch()
    args = lab.args(old, 2)
    killed = lab.start(1, lab.app, *args)
    lab.until("a half-written batch", lambda: (lab.folder / "gate-reached").exists())
    lab.until("shard 0 of it", lambda: lab.counts(old) - values(0, half - 1))
    hot = lab.end_of(1, lab.ask(1, "savepoint")).savepoint_id
    assert hot is not None
    assert lab.batch_of(hot) == half - 1
    killed.kill()

    lab.launch(1, lab.app, *args)  # as a supervisor does
    lab.until_state(1, "running", incarnation=2)
    lab.until_batch(1, above=half + 1)
    went_on_to = lab.batch_of(lab.stop(1, incarnation=2))
    (lab.folder / "gate-reached").unlink()  # the worker of the killed driver wakes, and is fenced
    assert lab.counts(old) == values(0, went_on_to)

    refused = lab.start(2, lab.app, *args, savepoint_id=hot)
    beat = lab.until_state(2, "failed")
    assert refused.wait(120) == 1
    assert beat.error is not None
    assert beat.error[0] == "SINK_LINEAGE"
    assert f"has completed batch {went_on_to}" in beat.error[1]
    assert "start with rewind='fork' (a new lineage) or 're-emit'" in beat.error[1]
    assert lab.counts(old) == values(0, went_on_to)

    again = lab.start(3, lab.app, *args, savepoint_id=hot, rewind="re-emit")
    lab.until_batch(3, above=half)
    again.kill()
    lab.launch(3, lab.app, *args)
    lab.until_state(3, "running", incarnation=2)
    lab.until_batch(3, above=went_on_to)
    last = lab.stop(3, incarnation=2)
    assert lab.lineage_of(last).lineage.endswith(".3")
    assert lab.counts(old) == values(0, went_on_to) + values(half, lab.batch_of(last))
