"""Which lineage a sink writes under after a savepoint: the same, a new one, the same on another cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks import lineage
from airflow_flinkstyle.sinks.errors import CONTROL_TOPIC, SINK_LINEAGE, ProducerFencedError
from airflow_flinkstyle.sinks.producer import initialised_producer, send_marker
from airflow_flinkstyle.sinks.resume import Resume, expect, states
from tests.integration.sink_lab import Lab, die, once, refused, topic_of

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Producer
    from pyspark.sql import SparkSession

    from airflow_flinkstyle.sinks.marker import Marker
    from airflow_flinkstyle.sinks.settings import SinkSettings
    from testbed.kafka import Broker
    from tests.conftest import KafkaPair

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture
def lab(two_tasks: SparkSession, old_broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Lab:
    topic = topic_of(request)
    old_broker.create_topic(topic, partitions=3)
    return Lab(two_tasks, old_broker, topic, tmp_path)


def start_from(lab: Lab, after_batch: int, **changed: Any) -> None:
    """Tell the sink of the lab's query what it starts from, as the agent does."""
    given = {"mode": "continue", "lineage": f"{lab.topic}-line", "cluster_id": cluster_id(lab.cluster)}
    expect(lab.query_id, Resume(**{"after_batch": after_batch, "suffix": "7", **given, **changed}))


def cluster_id(cluster: KafkaCluster) -> str:
    return describe(cluster, []).cluster_id


def rewound(lab: Lab, *, to: int, run: int) -> None:
    """Write so many batches, then let the checkpoint stand behind an earlier one."""
    lab.run(lab.sink().foreach_batch, batches=run)
    lab.rewind(to)


@pytest.mark.parametrize("mode", [pytest.param("fork", marks=pytest.mark.nightly), "re-emit"])
def test_chosen_rewind_writes_again_what_came_after_the_savepoint(lab: Lab, mode: str):
    rewound(lab, to=0, run=3)
    start_from(lab, 0)
    with refused(SINK_LINEAGE, "completed batch 2"):
        lab.run(lab.sink().foreach_batch, batches=1)
    start_from(lab, 0, mode=mode)
    with pytest.raises(Exception, match="dies in begin"):  # the lineage is begun, and half a batch written
        lab.run(lab.sink(on_phase=die(1, 1, "begin")).foreach_batch, batches=1)
    lab.run(lab.sink().foreach_batch, batches=1)  # the same generation, relaunched
    lab.run(lab.sink().foreach_batch, batches=1)  # and again, behind its first batch
    again = once(3) - once(1)
    assert lab.counts() == once(3) + again
    state = states(lab.query_id)[-1]
    assert (state.lineage, state.completed_batch) == (f"{lab.topic}-line.7", 2)
    assert state.markers == {0: 2, 1: 2}


@pytest.mark.nightly
def test_lineage_that_was_begun_before_a_kill_is_not_begun_twice(lab: Lab):
    rewound(lab, to=1, run=3)
    start_from(lab, 1, mode="fork")
    for _ in range(2):
        with pytest.raises(Exception, match="dies in init"):  # the lineage is begun, nothing written
            lab.run(lab.sink(on_phase=die(2, 0, "init")).foreach_batch, batches=1)
    lab.run(lab.sink().foreach_batch, batches=1)
    assert lab.counts() == once(3) + (once(3) - once(2))


def test_a_task_that_outlives_its_driver_does_not_end_the_next_one(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    late: list[Producer] = []

    def begin_late(settings: SinkSettings, producer: Producer, shard: int, marker: Marker) -> None:
        if shard == 1 and not late:
            late.append(initialised_producer(settings, settings.transactional_id(shard)))
        send_marker(settings, producer, shard, marker)

    lab.run(lab.sink().foreach_batch, batches=1)
    monkeypatch.setattr(lineage, "send_marker", begin_late)
    lab.run(lab.sink().foreach_batch, batches=1)
    assert late
    assert lab.counts() == once(2)


def test_late_tasks_without_end_are_named(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    late: list[Producer] = []

    def begin_late(settings: SinkSettings, producer: Producer, shard: int, marker: Marker) -> None:
        late.append(initialised_producer(settings, settings.transactional_id(shard)))
        send_marker(settings, producer, shard, marker)

    lab.run(lab.sink().foreach_batch, batches=1)
    monkeypatch.setattr(lineage, "send_marker", begin_late)
    with refused(ProducerFencedError, "another attempt of the shard began"):
        lab.run(lab.sink().foreach_batch, batches=1)
    assert len(late) > 2  # each try met one
    assert lab.counts() == once(1)


@pytest.mark.nightly
def test_continue_goes_on_with_a_lineage_that_a_fork_began(lab: Lab):
    rewound(lab, to=0, run=2)
    start_from(lab, 0, mode="fork")
    lab.run(lab.sink().foreach_batch, batches=1)
    start_from(lab, 1, lineage=f"{lab.topic}-line.7")
    lab.run(lab.sink().foreach_batch, batches=1)
    assert lab.counts() == once(3) + (once(2) - once(1))


def test_sink_that_moves_and_comes_back_writes_each_record_once(lab: Lab, kafka_pair: KafkaPair):
    kafka_pair.new.create_topic(lab.topic, partitions=3)
    old = lab.cluster
    new = KafkaCluster(name="new", config={"bootstrap.servers": kafka_pair.new.bootstrap})
    lab.run(lab.sink().foreach_batch, batches=2)
    lab.cluster = new
    with refused(CONTROL_TOPIC, "does not exist"):  # nobody says that it moved
        start_from(lab, 1, cluster_id=None)
        lab.run(lab.sink().foreach_batch, batches=1)
    start_from(lab, 1, cluster_id=cluster_id(old))
    with pytest.raises(Exception, match="dies in init"):
        lab.run(lab.sink(on_phase=die(2, 0, "init")).foreach_batch, batches=1)
    lab.run(lab.sink().foreach_batch, batches=2)  # relaunched
    there = lab.counts()
    lab.cluster = old
    start_from(lab, 3, cluster_id=cluster_id(new))
    lab.run(lab.sink().foreach_batch, batches=1)
    assert there == once(4) - once(2)
    assert there + lab.counts() == once(5)
