"""One shard of the transactional sink against a real broker, without Spark."""

from __future__ import annotations

from binascii import crc32
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.control_reading import read_markers, read_shard
from airflow_flinkstyle.sinks.errors import (
    CONTROL_TOPIC,
    PRODUCERS_POOL_EMPTY,
    REPLAY_DIFFERS,
    SINK_CONFIG,
    SINK_INPUT,
    SINK_LINEAGE,
    ProducerFencedError,
)
from airflow_flinkstyle.sinks.frame import HASH, SHARD, chunks_of
from airflow_flinkstyle.sinks.lineage import open_lineage
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.task import write_shards
from testbed.kafka import Broker
from testbed.refusals import refuses
from testbed.waiting import wait_until
from tests.integration.sink_lab import settled, topic_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from airflow_flinkstyle.kafka.reading import KafkaMessage

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,  # for pyarrow
    pytest.mark.kafka,
]


class Lab:
    """A lineage of its own, with a topic of one partition."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.cluster = KafkaCluster(name="out", config={"bootstrap.servers": broker.bootstrap})
        self.topic = name
        broker.create_topic(name, partitions=1)
        open_lineage(self.settings(), query_id="q", batch_id=0)

    def settings(self, config: dict[str, str] | None = None, **options: Any) -> SinkSettings:
        cluster = KafkaCluster(name="out", config={**self.cluster.config, **(config or {})})
        given = {"cluster": cluster, "topic": self.topic, "run": "run", "shards": 9}
        given |= {"lineage": f"{self.topic}-line"}
        return SinkSettings(**{**given, "control_topic": f"{self.topic}-control", **options})

    def records(self) -> list[KafkaMessage]:
        found: list[KafkaMessage] = []
        wait_until("the end of every transaction", lambda: settled(self.cluster, self.topic))
        view = describe(self.cluster, [self.topic])
        spans = {tp: span for tp in view.partitions if (span := view.log_range(tp))}
        ranges = {tp: ReadRange(low=span.start, high=span.end) for tp, span in spans.items()}
        scan(self.cluster, ranges, lambda _, record: found.append(record), "read_committed")
        return found

    def values(self) -> list[bytes | None]:
        return [record.value() for record in self.records()]


@pytest.fixture
def lab(old_broker: Broker, request: pytest.FixtureRequest) -> Lab:
    return Lab(old_broker, topic_of(request))


def rows(*values: bytes | None, shards: Sequence[int] = (), **columns: pa.Array) -> pa.RecordBatch:
    """Return rows of shard 0, or of a shard each."""
    hashes = pa.array([crc32(value or b"") for value in values], pa.int64())
    of_rows = pa.array(shards or [0] * len(values), pa.int32())
    return pa.RecordBatch.from_pydict(
        {"value": pa.array(values, pa.binary()), **columns, HASH: hashes, SHARD: of_rows}
    )


def write(settings: SinkSettings, batch_id: int, shards: list[int], batches: Iterator[pa.RecordBatch]) -> int:
    """Write a task's shards; returns how many of them were there."""
    chunks = chunks_of(batches, settings.topic, shards)
    return sum(one.skipped for one in write_shards(settings, batch_id, shards, "9-plan", chunks))


def nested(settings: SinkSettings, shards: list[int]) -> int:
    """Write the first shard, and while it is open the next, and so on."""

    def batches() -> Iterator[pa.RecordBatch]:
        if shards[1:]:
            nested(settings, shards[1:])
        yield rows(b"row", shards=shards[:1])

    return write(settings, 0, shards[:1], batches())


def test_process_has_no_more_open_producers_than_its_pool_has_places(lab: Lab) -> None:
    nested(lab.settings(), [0, 1, 2, 3, 4])
    assert lab.values() == [b"row"] * 5
    settings = lab.settings(lineage="another", control_topic=f"{lab.topic}-another", producer_pool_size=2)
    open_lineage(settings, query_id="q", batch_id=0)
    with refuses(PRODUCERS_POOL_EMPTY, match=r"may have 2 open \(producer_pool_size\)"):
        nested(settings, [0, 1, 2])
    assert len(lab.values()) == 5
    nested(settings, [0, 1])  # the places are free again
    assert len(lab.values()) == 7


def test_attempt_that_another_one_overtakes_is_fenced_and_nothing_of_it_is_seen(lab: Lab) -> None:
    def overtaken() -> Iterator[pa.RecordBatch]:
        yield rows(b"late")
        assert not write(lab.settings(), 0, [0], iter([rows(b"first")]))

    with pytest.raises(ProducerFencedError, match="another attempt of the shard began"):
        write(lab.settings(), 0, [0], overtaken())
    assert lab.values() == [b"first"]
    assert write(lab.settings(), 0, [0], iter([rows(b"first")]))  # the marker is that of the one that won


def test_task_writes_its_shards_side_by_side_and_those_that_are_there_are_only_compared(lab: Lab) -> None:
    assert write(lab.settings(), 0, [2], iter([rows(b"b", b"d", shards=[2, 2])])) == 0
    batches = [rows(b"a", b"b", shards=[0, 2]), rows(), rows(b"c", b"d", b"e", shards=[1, 2, 0])]
    assert write(lab.settings(), 0, [0, 1, 2, 3], iter(batches)) == 0 + 1
    assert sorted(lab.values()) == [b"a", b"b", b"c", b"d", b"e"]
    found = read_markers(lab.settings(), range(5))
    counts = {shard: marker.records for shard, marker in found.items() if marker.batch_id == 0}
    assert counts == {0: 2, 1: 1, 2: 2, 3: 0}  # a shard without rows has its marker, too


def test_no_shard_of_a_task_is_written_if_one_that_is_there_was_other_records(lab: Lab) -> None:
    write(lab.settings(), 0, [1], iter([rows(b"b", shards=[1])]))
    with refuses(REPLAY_DIFFERS, match="shards 1 committed"):
        write(lab.settings(), 0, [0, 1], iter([rows(b"a", b"b", b"c", shards=[0, 1, 1])]))
    assert lab.values() == [b"b"]
    with refuses(SINK_CONFIG, match=r"shards \[0, 1\], found rows of the shards \[0, 2\]"):
        write(lab.settings(), 1, [0, 1], iter([rows(b"a", b"x", shards=[0, 2])]))
    assert lab.values() == [b"b"]


def test_task_ends_for_good_if_one_of_its_shards_does_whatever_befalls_the_others(lab: Lab) -> None:
    def die(_batch: int, shard: int, phase: str) -> None:
        if (shard, phase) == (0, "init"):
            raise ConnectionError("mended by another attempt")

    write(lab.settings(), 5, [1], iter([rows(b"b", shards=[1])]))
    with refuses(SINK_LINEAGE, match="has written batch 5"):
        write(lab.settings(on_phase=die), 0, [0, 1], iter([]))


@pytest.mark.nightly
def test_batch_larger_than_the_clients_queue_is_written_whole_and_in_order(lab: Lab) -> None:
    values = [b"%04d" % number for number in range(3000)]
    settings = lab.settings({"queue.buffering.max.messages": "50"})
    write(settings, 0, [0], iter([rows(*values[:2500]), rows(), rows(*values[2500:])]))
    assert lab.values() == values
    marker = read_shard(settings, 0).marker
    assert marker is not None
    assert marker.records == 3000


@pytest.mark.nightly
def test_record_as_large_as_may_be_is_written_however_many_shards_share_the_queue(lab: Lab) -> None:
    large = b"x" * 990_000
    write(lab.settings(), 0, [0, 1, 2, 3, 4], iter([rows(large, b"small", shards=[0, 4])]))
    assert sorted(map(len, filter(None, lab.values()))) == [5, 990_000]


def test_nulls_are_what_the_client_takes_for_nothing(lab: Lab) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "topic": pa.array([None, lab.topic, None], pa.string()),
        "key": pa.array([b"k", None, None], pa.binary()),
        "headers": pa.array([[{"key": "h", "value": None}], [], None], kind),
        "partition": pa.array([0, None, None], pa.int32()),
        "timestamp": pa.array([1000, 2000, None], pa.int64()),
    }
    write(lab.settings(), 0, [0], iter([rows(b"a", b"b", None, **columns)]))
    found = lab.records()
    assert [(record.value(), record.key(), record.headers()) for record in found] == [
        (b"a", b"k", [("h", None)]),
        (b"b", None, None),
        (None, None, None),
    ]
    assert [record.timestamp()[1] for record in found[:2]] == [1000, 2000]
    assert found[2].timestamp()[1] > 1_600_000_000_000  # now
    with refuses(SINK_INPUT, match="found 2 without"):
        write(lab.settings(topic=None), 1, [0], iter([rows(b"a", b"b", None, **columns)]))
    assert len(lab.records()) == 3


@pytest.mark.nightly
def test_control_topic_that_is_gone_is_not_made_anew_by_a_broker_that_creates_topics(tmp_path: Path) -> None:
    with Broker("eager", tmp_path / "broker", settings={"auto.create.topics.enable": "true"}) as broker:
        lab = Lab(broker, "lost")
        settings = lab.settings(control_topic="gone")
        with refuses(CONTROL_TOPIC, match="control topic gone was expected to hold their markers"):
            write(settings, 1, [0], iter([rows(b"row")]))
        assert "gone" not in broker.admin().list_topics(timeout=20).topics
        assert not lab.values()
