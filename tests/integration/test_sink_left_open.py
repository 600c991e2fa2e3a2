"""Transactions that a broker of Kafka 4.3 forgets to end, because a partition had no leader: real brokers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import NewTopic

from airflow_flinkstyle.kafka.audit.verify_topic import readable
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.reading import scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.control_reading import read_completion, unreadable
from airflow_flinkstyle.sinks.errors import OUTPUT_UNKNOWN, TransactionLeftOpenError
from airflow_flinkstyle.sinks.left_open import output_ends
from airflow_flinkstyle.sinks.lineage import Opened, open_lineage
from airflow_flinkstyle.sinks.marker import Completion
from airflow_flinkstyle.sinks.producer import open_producer
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.shard import Chunk, ShardTransaction
from airflow_flinkstyle.sinks.task import write_shards
from testbed.kafka import Broker, new_cluster_id
from testbed.ports import free_port
from testbed.refusals import refuses
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.types import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.kafka]
VALUES = [str(number).encode() for number in range(20)]


class Pair:
    """Two brokers: the first keeps transactions and partition 0 of the output, the second all the rest."""

    def __init__(self, folder: Path) -> None:
        cluster_id, controller, port = new_cluster_id(), free_port(), free_port()
        common = {"broker.session.timeout.ms": "5000", "broker.heartbeat.interval.ms": "500"}
        second = {
            "node.id": "2",
            "process.roles": "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        }
        self.first = Broker(
            "first",
            folder / "1",
            settings={**common, "transaction.state.log.num.partitions": "1"},
            cluster_id=cluster_id,
            controller_port=controller,
        )
        self.second = Broker(
            "second", folder / "2", settings={**common, **second}, cluster_id=cluster_id, port=port
        )

    def start(self) -> None:
        """Let the first broker have the log of transactions before there is a second."""
        self.first.start()
        with open_producer(self.settings("begin"), "begin"):
            self.second.start()
        wait_until("both brokers", lambda: len(self.first.admin().list_topics(timeout=60).brokers) == 2)

    def settings(self, topic: str, run: str = "run") -> SinkSettings:
        """Return a sink of one shard."""
        return SinkSettings(
            cluster=KafkaCluster(name="pair", config={"bootstrap.servers": self.first.bootstrap}),
            topic=topic,
            lineage=topic,
            shards=1,
            control_topic=f"{topic}-control",
            run=run,
        )

    def a_sink(self, topic: str) -> SinkSettings:
        """Return a sink with a new topic and lineage."""
        output = NewTopic(topic, 2, replica_assignment=[[1], [2]])
        control = NewTopic(
            f"{topic}-control", 2, replica_assignment=[[2], [2]], config={"cleanup.policy": "compact"}
        )
        for made in self.first.admin().create_topics([output, control]).values():
            made.result(20)
        settings = self.settings(topic)
        wait_until("leaders", lambda: self._leaders(topic) == {2})
        open_lineage(settings, query_id="q", batch_id=0)
        return settings

    def lose_second(self, topic: str) -> None:
        """Kill the second broker and wait until the first one knows that its partitions have no leader."""
        self.second.kill()
        wait_until("no leader", lambda: self._leaders(topic) == {-1})

    def bring_back_second(self, topic: str) -> None:
        """Start the second broker again and wait until it leads: a client waits for that for seconds only."""
        self.second.start()
        wait_until("leaders", lambda: self._leaders(topic) == {2})

    def _leaders(self, topic: str) -> set[int]:
        """Return who leads the partitions of a sink that the second broker has; -1 for nobody."""
        topics = self.first.admin().list_topics(timeout=60).topics
        kept = [(topic, 1), (f"{topic}-control", 0), (f"{topic}-control", 1)]
        parts = [topics[name].partitions.get(number) if name in topics else None for name, number in kept]
        return {part.leader if part is not None else -1 for part in parts}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"))
    try:
        made.start()
        yield made
    finally:
        made.second.kill()
        made.first.kill()


def in_topic(settings: SinkSettings) -> Iterator[Chunk]:
    """Yield one batch, of which both partitions get records."""
    records = [(settings.topic, value, value, number % 2) for number, value in enumerate(VALUES)]
    yield Chunk(shard=0, records=records, count=len(records), digest=7)


def values(settings: SinkSettings) -> list[bytes]:
    """Return what readers of the output get."""
    assert settings.topic is not None
    view = describe(settings.cluster, [settings.topic])
    ranges = {tp: readable(span, "read_committed") for tp in view.partitions if (span := view.log_range(tp))}
    found: Counter[bytes] = Counter()

    def add(_: TopicPartition, record: KafkaMessage) -> None:
        found[record.value() or b""] += 1

    scan(settings.cluster, ranges, add, "read_committed")
    return sorted(found.elements())


def attempt(settings: SinkSettings, at: str, then: Callable[[], None]) -> ShardTransaction:
    """Return an attempt that has sent all records, and that is interrupted where a phase begins.

    By then the brokers have answered for all: what a broker has and the client does not know of would be sent
    to the dead broker again.
    """

    def tell(_batch: int, _shard: int, phase: str) -> None:
        if phase == at:
            if one._producer is not None:  # an abort has let go of it
                assert one._producer.flush(60) == 0
            then()

    one = ShardTransaction(replace(settings, on_phase=tell), 0, 0, "1-plan")
    one.open(1024)
    for chunk in in_topic(settings):
        one.add(chunk)
    one.pre_commit()
    return one


def open_next(settings: SinkSettings, run: str, batch_id: int = 0) -> tuple[SinkSettings, Opened]:
    """Begin another run, as a driver does that is started again, or that finds something left open."""
    begun = replace(settings, run=run)
    return begun, open_lineage(begun, query_id="q", batch_id=batch_id)


def complete(settings: SinkSettings, opened: Opened, batch_id: int) -> Completion:
    done = Completion(batch_id=batch_id, records=1, shards=1, query_id="q", ends=output_ends(settings))
    opened.completer.complete(done)
    return done


def test_commit_that_a_broker_forgets_is_found_and_only_what_nobody_reads_is_written_again(pair: Pair):
    settings = pair.a_sink("forgotten-commit")
    written = attempt(settings, "commit", lambda: pair.lose_second("forgotten-commit")).commit()
    assert (written.records, written.skipped) == (len(VALUES), False)
    pair.bring_back_second("forgotten-commit")
    assert unreadable(settings, [0], 0) == [0], "this Kafka has ended the transaction: is it mended there?"
    assert values(settings) == sorted(VALUES[::2])
    with pytest.raises(TransactionLeftOpenError, match="shards 0 open in forgotten-com"):
        write_shards(settings, 0, [0], "1-plan", in_topic(settings))

    _, died = open_next(settings, "dies before it writes")
    again, opened = open_next(settings, "next")
    assert died.readable is not None
    assert opened.readable is not None
    assert len(died.readable) == len(opened.readable) == len(VALUES) / 2
    write_shards(again, 0, [0], "1-plan", in_topic(again), opened.readable)
    assert unreadable(settings, [0], 0) == []
    complete(again, opened, 0)
    wait_until("every record once", lambda: values(settings) == sorted(VALUES))
    assert open_next(settings, "the batch after it", batch_id=1)[1].readable is None


@pytest.mark.nightly
def test_abort_that_a_broker_forgets_brings_no_record_of_the_attempt_back(pair: Pair):
    settings = pair.a_sink("forgotten-abort")
    attempt(settings, "abort", lambda: pair.lose_second("forgotten-abort")).abort()
    pair.bring_back_second("forgotten-abort")
    again, opened = open_next(settings, "next")
    assert opened.readable is not None, "this Kafka has ended the transaction: is it mended there?"
    assert len(opened.readable) == 0
    write_shards(again, 0, [0], "1-plan", in_topic(again), opened.readable)
    wait_until("every record once", lambda: values(settings) == sorted(VALUES))


@pytest.mark.nightly
def test_batch_of_a_lineage_in_an_old_topic_is_not_taken_for_what_was_there_before(pair: Pair):
    settings = pair.a_sink("older-records")
    write_shards(settings, 0, [0], "1-plan", in_topic(settings))
    other = replace(settings, lineage="fork", control_topic="forgotten-commit-fork")
    control = NewTopic(
        other.control_topic, 2, replica_assignment=[[2], [2]], config={"cleanup.policy": "compact"}
    )
    pair.first.admin().create_topics([control])[other.control_topic].result(20)
    open_lineage(other, query_id="q", batch_id=0)
    attempt(other, "abort", lambda: pair.lose_second("older-records")).abort()
    pair.bring_back_second("older-records")
    again, opened = open_next(other, "next")
    assert opened.readable is not None
    assert len(opened.readable) == 0
    write_shards(again, 0, [0], "1-plan", in_topic(again), opened.readable)
    wait_until("every record twice", lambda: values(settings) == sorted([*VALUES, *VALUES]))


@pytest.mark.nightly
def test_completion_that_a_broker_forgets_is_written_again(pair: Pair):
    settings = pair.a_sink("forgotten-end")
    again, opened = open_next(settings, "next")
    write_shards(again, 0, [0], "1-plan", in_topic(again))
    assert unreadable(again, [0], 0) == []
    producer = opened.completer._producer  # what it does, with a broker's death in the middle
    done = Completion(batch_id=0, records=1, shards=1, query_id="q", ends=output_ends(again))
    producer.begin_transaction()
    producer.produce(again.control_topic, done.to_bytes(), again.completion_id, partition=0)
    producer.flush()
    pair.lose_second("forgotten-end")
    producer.commit_transaction()
    pair.bring_back_second("forgotten-end")
    assert read_completion(again) != done, "this Kafka has ended the transaction: is it mended there?"
    assert open_next(settings, "the batch after it", batch_id=1)[1].completed == done
    assert values(settings) == sorted(VALUES)


@pytest.mark.parametrize("unknown", [{"topic": None}, {"topics_vary": True}])
def test_what_is_left_open_of_topics_that_are_not_known_is_an_error(pair: Pair, unknown: dict[str, Any]):
    settings = pair.a_sink(f"forgotten-{next(iter(unknown)).replace('_', '-')}")
    assert settings.topic is not None
    attempt(settings, "abort", lambda: pair.lose_second(str(settings.topic))).abort()
    pair.bring_back_second(settings.topic)
    for _ in range(2):  # it is not forgotten
        with refuses(OUTPUT_UNKNOWN, match=r"its rows name their topics.*rewind='fork'"):
            open_next(replace(settings, **unknown), "next")
