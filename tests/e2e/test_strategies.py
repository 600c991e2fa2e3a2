"""Every way to another cluster and every position there, each judged order by order.

One job is stopped with one savepoint, with orders still unread on the old cluster; MirrorMaker copies them
under their own topic's name and under another. Each story moves that savepoint, lets Spark go on from it,
and compares the job's state with what stands in the logs, read by a consumer.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.request_slot import DRAINED
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.kafka.mirror.lag import CaughtUp, wait_caught_up
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.kafka.verdict import Exact
from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.storage.local import LocalStore
from testbed.judge import Total
from testbed.mirror import Mirror
from testbed.mirror import MirrorSettings as MirrorProcess
from testbed.producer import OrderBook
from testbed.scenario import PARTITIONS, QUERY, OrdersScenario
from testbed.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.judge import StateReader
    from testbed.kafka import Broker
    from testbed.ledger import Order
    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

TOPIC, GROUP = "orders-ways", "auditors"
RENAMED = f"main.{TOPIC}"
READ, UNREAD = 80, 60
SAME_NAME = MirrorSettings(source_alias="old", target_alias="new")
OTHER_NAME = MirrorSettings(source_alias="main", target_alias="next", replication_policy="default")


@dataclass(frozen=True, kw_only=True)
class Copied:
    """One order as it stands on the new cluster."""

    offset: int
    at_ms: int
    order: tuple[str, int, int]
    """Customer, number, amount."""


def totals(orders: Iterable[tuple[str, int, int]]) -> dict[str, Total]:
    """What the job's state must be after these orders, repeated ones counted as often as they come."""
    by_customer: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for customer, number, amount in orders:
        by_customer[customer].append((number, amount))
    return {
        customer: Total(
            orders=len(found),
            amount=sum(amount for _, amount in found),
            numbers=frozenset(number for number, _ in found),
        )
        for customer, found in by_customer.items()
    }


def as_tuple(order: Order) -> tuple[str, int, int]:
    return order.customer, order.number, order.amount


class Stop:
    """The job, stopped with orders unread, and both copies of its topic."""

    def __init__(self, scenario: OrdersScenario, reader: StateReader) -> None:
        self.scenario, self.reader = scenario, reader
        self._book = OrderBook(customers=20, partitions=PARTITIONS)
        self.read: list[Order] = []
        self.unread: list[Order] = []
        self.unread_since_ms = 0
        self.manifest: Manifest

    def write(self, orders: int) -> list[Order]:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.scenario.old.bootstrap})
        written = [self._book.next() for _ in range(orders)]
        for order in written:
            producer.produce(TOPIC, key=order.customer, value=order.to_json(), partition=order.partition)
        assert producer.flush(30) == 0
        return written

    def run_and_stop(self) -> None:
        """Let the job read the first orders, stop it, and write those that it leaves unread."""
        scenario = self.scenario
        scenario.start()
        scenario.wait_all_read(scenario.old)
        stopped = scenario.client.requests.stop("stop", savepoint=True, timeout_s=PATIENCE_S)
        assert isinstance(stopped, Stopped)
        assert stopped.savepoint_id is not None
        self.manifest = scenario.client.view.repository.read(stopped.savepoint_id)
        time.sleep(0.01)
        self.unread_since_ms = int(time.time() * 1000)
        self.unread = self.write(UNREAD)

    def wait_copied(self) -> None:
        """Wait until both copies are complete."""
        side = self.side()
        for mirror in (SAME_NAME, OTHER_NAME):
            found = wait_caught_up(side.old, side.new, mirror, [TOPIC], timeout_s=PATIENCE_S)
            assert isinstance(found, CaughtUp)

    def plan(self, side: LiveKafka) -> OffsetRewritePlan:
        plan = side.plan(self.manifest)
        assert not plan.refused, plan.as_markdown()
        return plan

    def moved(self, side: LiveKafka) -> Manifest:
        return side.apply(self.plan(side), self.manifest, self.scenario.client.view.repository)

    def counted(self, moved: Manifest, **options: str) -> dict[str, Total]:
        """Restore the savepoint, let Spark go on from it to the end, and return the job's state."""
        folder = self.scenario.folder / "onward" / moved.savepoint_id
        restore_savepoint(moved, self.scenario.client.view.repository, lambda name: LocalStore(folder / name))
        servers = {"kafka.bootstrap.servers": self.scenario.new.bootstrap}
        return self.reader.go_on(folder / QUERY, {**servers, **options})

    def side(self, mirror: MirrorSettings = SAME_NAME, start: object = None) -> LiveKafka:
        """Both clusters; with a start, the source gets a new identity there."""
        strategies = StrategyRules()
        if start is not None:
            strategies = StrategyRules(default=SourceRule(strategy="new_identity", start=parse_rules(start)))
        return replace(self.scenario.kafka_side(), mirror=mirror, strategies=strategies)

    def expected(self, copies: Mapping[int, list[Copied]], offsets: Mapping[int, int]) -> dict[str, Total]:
        """What was read before the stop, and what stands on the new cluster from these offsets on."""
        onward = [
            copy.order for number, found in copies.items() for copy in found if copy.offset >= offsets[number]
        ]
        return totals([*map(as_tuple, self.read), *onward])


def read_copies(broker: Broker, topic: str) -> dict[int, list[Copied]]:
    """Read a topic's orders with a consumer of Kafka's own, no code of ours between."""
    import json

    from confluent_kafka import Consumer, TopicPartition

    ends = broker.log_range(topic)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads-copies",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, start) for number, (start, _) in ends.items()])
    copies: dict[int, list[Copied]] = {number: [] for number in ends}
    at_end: set[int] = set()
    while len(at_end) < len(ends):
        message = consumer.poll(10)
        assert message is not None
        if message.error():  # the end of a partition
            at_end.add(message.partition())
            continue
        fields = json.loads(message.value())
        order = (fields["customer"], fields["number"], fields["amount"])
        copy = Copied(offset=message.offset(), at_ms=message.timestamp()[1], order=order)
        copies[message.partition()].append(copy)
    consumer.close()
    return copies


@pytest.fixture(scope="module")
def stop(
    kafka_pair: KafkaPair, mirror: Mirror, reader: StateReader, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stop]:
    folder = tmp_path_factory.mktemp("strategies")
    second = MirrorProcess(
        source_bootstrap=kafka_pair.old.bootstrap,
        target_bootstrap=kafka_pair.new.bootstrap,
        topics=TOPIC,
        source_alias="main",
        target_alias="next",
        policy="default",
        more={
            "main->next.sync.group.offsets.enabled": "true",
            "main->next.sync.group.offsets.interval.seconds": "2",
        },
    )
    with (
        closing_mirror(Mirror(folder / "mirror", second)) as other,
        OrdersScenario(folder=folder, old=kafka_pair.old, new=kafka_pair.new, topic=TOPIC) as scenario,
    ):
        reader.start()
        scenario.create_topic(deleted={0: 100, 1: 40, 2: 250})
        stop = Stop(scenario, reader)
        stop.read = stop.write(READ)
        commit_group(kafka_pair.old)
        stop.run_and_stop()
        other.wait_ready()
        stop.wait_copied()
        yield stop


@contextmanager
def closing_mirror(mirror: Mirror) -> Iterator[Mirror]:
    """Let a mirror come up beside the job, and stop it in the end."""
    mirror.launch()
    try:
        yield mirror
    finally:
        mirror.stop()


def commit_group(old: Broker) -> None:
    """Commit a group in the middle of what the job reads, for MirrorMaker to translate."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": old.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    offsets = [TopicPartition(TOPIC, number, end - 5) for number, (_, end) in old.log_range(TOPIC).items()]

    def committed() -> bool:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:  # the cluster's first group: its coordinator loads an empty topic
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return False
        return True

    wait_until("the group's coordinator to commit", committed)
    consumer.close()


def synced(new: Broker) -> dict[int, int]:
    """Return the group's offsets on the new cluster; those that MirrorMaker has translated."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    wanted = [TopicPartition(RENAMED, number) for number in range(PARTITIONS)]
    asked = [ConsumerGroupTopicPartitions(GROUP, wanted)]
    answer = new.admin().list_consumer_group_offsets(asked)[GROUP].result(20)
    return {found.partition: found.offset for found in answer.topic_partitions if found.offset >= 0}


# --- a new identity, at each position ---------------------------------------------------------------


@pytest.mark.matrix
def test_earliest_repeats_exactly_what_was_read_before(stop: Stop):
    moved = stop.moved(stop.side(start="earliest"))
    copies = read_copies(stop.scenario.new, TOPIC)
    assert stop.counted(moved, subscribe=TOPIC) == stop.expected(copies, dict.fromkeys(copies, 0))
    assert sum(map(len, copies.values())) == READ + UNREAD


@pytest.mark.matrix
def test_latest_leaves_out_exactly_what_was_unread(stop: Stop):
    moved = stop.moved(stop.side(start="latest"))
    assert stop.counted(moved, subscribe=TOPIC) == totals(map(as_tuple, stop.read))


@pytest.mark.matrix
def test_timestamp_of_the_stop_neither_loses_nor_repeats(stop: Stop):
    moved = stop.moved(stop.side(start=f"timestamp:{stop.unread_since_ms}"))
    expected = totals(map(as_tuple, [*stop.read, *stop.unread]))
    assert stop.counted(moved, subscribe=TOPIC) == expected


@pytest.mark.matrix
def test_group_offsets_that_mirrormaker_translated_are_labelled_and_counted_from(stop: Stop):
    """MirrorMaker's translation lies before the group's own place: what was read is read again."""
    new = stop.scenario.new
    wait_until("MirrorMaker has translated the group", lambda: len(synced(new)) == PARTITIONS)
    side = stop.side(OTHER_NAME, {"group": GROUP})
    plan = stop.plan(side)
    assert "unproved" in plan.as_markdown()
    offsets = synced(new)
    moved = side.apply(plan, stop.manifest, stop.scenario.client.view.repository)
    expected = stop.expected(read_copies(new, RENAMED), offsets)
    assert stop.counted(moved, subscribe=RENAMED) == expected


def test_specific_offsets_count_from_exactly_there_and_others_by_their_own_rule(stop: Stop):
    new = stop.scenario.new
    copies = read_copies(new, TOPIC)
    offsets = {number: found[len(found) // 2].offset for number, found in copies.items()}
    table: dict[str, Any] = {TOPIC: {str(number): offsets[number] for number in (0, 1, 2)}}
    rules = {"default": {"offsets": table}, "partitions": {TOPIC: {"3": "latest"}}}
    moved = stop.moved(stop.side(start=rules))
    expected = stop.expected(copies, {**offsets, 3: new.log_range(TOPIC)[3][1]})
    assert stop.counted(moved, subscribe=TOPIC) == expected


# --- a renamed topic --------------------------------------------------------------------------------


@pytest.mark.matrix
def test_topic_that_mirrormaker_renamed_goes_on_exactly_for_a_pattern_too(stop: Stop):
    side = stop.side(OTHER_NAME)
    plan = stop.plan(side)
    assert all(isinstance(move.after, Exact) for move in plan.moves), plan.as_markdown()
    moved = side.apply(plan, stop.manifest, stop.scenario.client.view.repository)
    everything = totals(map(as_tuple, [*stop.read, *stop.unread]))
    assert stop.counted(moved, subscribePattern=rf".*\.{TOPIC}") == everything


def test_unmodified_script_reads_the_renamed_topic_from_the_moved_savepoint(stop: Stop):
    scenario = stop.scenario
    moved = stop.moved(stop.side(OTHER_NAME))
    overrides = tuple(replace(rule, rename={TOPIC: RENAMED}) for rule in scenario.on_new)
    spec = replace(scenario.spec, overrides=overrides)
    scenario.start(key="renamed", spec=spec, origin=FromSavepoint(savepoint_id=moved.savepoint_id))
    everything = totals(map(as_tuple, [*stop.read, *stop.unread]))
    wait_until("everything is counted", lambda: stop.reader.read(scenario.checkpoint()) == everything)
    scenario.client.requests.stop("renamed/stop", savepoint=False, timeout_s=PATIENCE_S)
    assert stop.reader.read(scenario.checkpoint()) == everything


# --- producers first --------------------------------------------------------------------------------


def test_producers_first_drains_the_old_cluster_and_reads_the_new_one_from_its_start(
    kafka_pair: KafkaPair, reader: StateReader, tmp_path: Path
):
    topic = "direct-orders"
    with OrdersScenario(folder=tmp_path, old=kafka_pair.old, new=kafka_pair.new, topic=topic) as scenario:
        scenario.create_topic(deleted={0: 100})
        scenario.new.create_topic(topic, partitions=PARTITIONS)
        scenario.start_producer()
        scenario.start()
        rules = StrategyRules(default=SourceRule(strategy="producers_first"))
        side = replace(scenario.kafka_side(), mirror=None, strategies=rules)
        report = scenario.cutover(kafka=side, stop_mode=DRAINED).run()
        assert not report.plan.refused
        wait_until("orders go to new", lambda: scenario.producer_is_at() == "new")
        scenario.wait_commits(2)
        judgement = scenario.judge(reader, scenario.new)
        assert judgement.right, judgement
        assert any(start < end for start, end in scenario.new.log_range(topic).values())
