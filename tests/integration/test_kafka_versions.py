"""Positions translated between brokers of different ages; ``make test-kafka-versions`` runs this."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.mirror.lag import CaughtUp, wait_caught_up
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.translation.translator import translate_positions
from airflow_flinkstyle.kafka.verdict import Exact
from airflow_flinkstyle.offsets import Offsets
from testbed.kafka import Broker
from testbed.mirror import Mirror
from testbed.mirror import MirrorSettings as MirrorProcessSettings
from testbed.waiting import PATIENCE_S
from testbed.zookeeper_kafka import ZooKeeperBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.versions, pytest.mark.kafka]

TOPIC = "ages.plain"
MIRROR = MirrorSettings(source_alias="left", target_alias="right")
RECORDS = 300
DELETED = 40
PAIRS = (
    ("2.8", "2.8", "3.9"),
    ("2.8", "3.9", "3.9"),
    ("2.8", "4.3", "4.3"),
    ("3.9", "2.8", "4.3"),
    ("3.9", "3.9", "4.3"),
    ("3.9", "4.3", "3.9"),
    ("4.3", "2.8", "3.9"),
    ("4.3", "3.9", "4.3"),
)
"""Version of the source, of the target, of MirrorMaker. From 4.3 to 4.3 is what every other test does."""


def a_broker(name: str, folder: Path, version: str) -> Broker:
    if version == "2.8":
        return ZooKeeperBroker(name, folder / name)
    return Broker(name, folder / name, version="" if version == "4.3" else version)


@contextmanager
def running(*brokers: Broker) -> Iterator[None]:
    """Start brokers side by side."""
    with ExitStack() as started:
        for broker in brokers:
            started.callback(broker.stop)
            broker.launch()
        for broker in brokers:
            broker.wait_ready()
        yield


def produce(cluster: KafkaCluster) -> None:
    """Plain records, and transactions of which every second one is aborted."""
    from confluent_kafka import Producer

    plain = Producer(dict(cluster.config))
    for number in range(RECORDS):
        plain.produce(TOPIC, value=f"plain-{number}", partition=0, headers=[("h", b"x")])
    assert plain.flush(PATIENCE_S) == 0
    transactional = Producer({**cluster.config, "transactional.id": "ages", "log_level": 2})
    transactional.init_transactions(PATIENCE_S)
    for number in range(8):
        transactional.begin_transaction()
        for part in range(5):
            transactional.produce(TOPIC, value=f"{number}-{part}", partition=1)
        transactional.flush(PATIENCE_S)
        (transactional.abort_transaction if number % 2 else transactional.commit_transaction)(PATIENCE_S)


def values_from(cluster: KafkaCluster, partition: int, offset: int) -> list[bytes | None]:
    end = describe(cluster, [TOPIC]).topics[TOPIC].partitions[partition].end
    values: list[bytes | None] = []
    wanted = {(TOPIC, partition): ReadRange(low=offset, high=end)}
    scan(cluster, wanted, lambda _, record: values.append(record.value()), "read_committed")
    return values


@pytest.mark.parametrize(("source", "target", "mirror"), PAIRS)
def test_positions_between_brokers_of_different_ages_are_exact(
    source: str, target: str, mirror: str, tmp_path: Path
):
    left, right = a_broker("old", tmp_path, source), a_broker("new", tmp_path, target)
    with running(left, right):
        old = KafkaCluster(name="old", config={"bootstrap.servers": left.bootstrap})
        new = KafkaCluster(name="new", config={"bootstrap.servers": right.bootstrap})
        left.create_topic(TOPIC, partitions=2)
        produce(old)
        left.delete_records(TOPIC, {0: DELETED})
        settings = MirrorProcessSettings(
            source_bootstrap=left.bootstrap,
            target_bootstrap=right.bootstrap,
            topics=r"ages\..*",
            source_alias="left",
            target_alias="right",
        )
        with Mirror(tmp_path / "mirror", settings, version="" if mirror == "4.3" else mirror):
            right.wait_for_topic(TOPIC, timeout_s=PATIENCE_S)
            caught_up = wait_caught_up(old, new, MIRROR, [TOPIC], timeout_s=PATIENCE_S)
            assert isinstance(caught_up, CaughtUp), caught_up
        ends = describe(old, [TOPIC]).topics[TOPIC].partitions
        for part in (0.0, 0.6, 1.0):
            positions = {
                (TOPIC, number): log.start + int(part * (log.end - log.start)) for number, log in ends.items()
            }
            translation = translate_positions(
                old, new, ProofRequest(positions=Offsets(positions), mirror=MIRROR)
            )
            for (topic, number), verdict in translation.verdicts.items():
                assert isinstance(verdict, Exact), (topic, number, part, verdict)
                left_values = values_from(old, number, positions[topic, number])
                assert values_from(new, number, verdict.offset) == left_values
