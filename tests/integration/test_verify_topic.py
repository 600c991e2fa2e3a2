"""``verify_topic`` and ``flinkstyle topic verify`` on real brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.kafka.audit.id_counts import FoundId
from airflow_flinkstyle.kafka.audit.record_ids import by_header, by_key, by_value
from airflow_flinkstyle.kafka.audit.verify_topic import TopicIds, verify_topic
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import TopicMissingError
from airflow_flinkstyle.kafka.settings import KafkaCluster
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from testbed.kafka import Broker
    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


def cluster_of(broker: Broker) -> KafkaCluster:
    return KafkaCluster(name=broker.name, config={"bootstrap.servers": broker.bootstrap})


def write(broker: Broker, topic: str, ids: Iterable[int], *, end: str = "commit") -> Producer:
    """Write records in one transaction: the id is the value; partition 1 has those above 50."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-writer"}
    producer = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    for one in ids:
        headers = [("id", b"%d" % one)]
        producer.produce(topic, b"%d" % one, key=b"same", partition=int(one > 50), headers=headers)
    assert producer.flush(20) == 0
    if end == "commit":
        producer.commit_transaction(20)
    if end == "abort":
        producer.abort_transaction(20)
    if end != "open":
        wait_until("the end of the transaction", lambda: is_settled(broker, topic))
    return producer


def is_settled(broker: Broker, topic: str) -> bool:
    spans = describe(cluster_of(broker), [topic]).topics[topic].partitions.values()
    return all(span.last_stable == span.end for span in spans)


def test_aborted_copies_do_not_count_and_open_ones_are_held_back(old_broker: Broker):
    old_broker.create_topic("verify-hidden", partitions=2)
    cluster = cluster_of(old_broker)
    write(old_broker, "verify-hidden", range(100), end="abort")
    write(old_broker, "verify-hidden", range(100))
    found = verify_topic(cluster, "verify-hidden", range(100), by_value, count_hidden=True)
    assert found.exactly_once, found
    assert (found.read, found.hidden, found.held_back) == (100, 100, 0)
    producer = write(old_broker, "verify-hidden", range(100, 104), end="open")
    found = verify_topic(cluster, "verify-hidden", range(101), by_header("id"))
    assert [one.id for one in found.missing.first] == ["100"]
    assert found.held_back == 4
    producer.abort_transaction(20)


def test_what_is_wrong_is_named_with_its_place(old_broker: Broker):
    old_broker.create_topic("verify-wrong", partitions=2)
    write(old_broker, "verify-wrong", [1, 60, 1, 7])
    found = verify_topic(cluster_of(old_broker), "verify-wrong", range(3), by_value)
    assert found.missing.first == (FoundId(id="0", at=()), FoundId(id="2", at=()))
    assert found.doubled.first == (FoundId(id="1", at=((0, 0), (0, 1))),)
    assert found.unexpected.first == (FoundId(id="7", at=((0, 2),)), FoundId(id="60", at=((1, 0),)))
    assert verify_topic(cluster_of(old_broker), "verify-wrong", range(3), by_key).doubled.count == 1
    with pytest.raises(TopicMissingError):
        verify_topic(cluster_of(old_broker), "verify-nowhere", range(3), by_value)


def test_copy_on_another_cluster_is_compared_with_its_original_on_the_command_line(
    kafka_pair: KafkaPair, tmp_path: Path
):
    for broker in kafka_pair:
        broker.create_topic("verify-copy", partitions=2)
        (tmp_path / broker.name).write_text(f"bootstrap.servers={broker.bootstrap}\n")
    write(kafka_pair.old, "verify-copy", range(80))
    write(kafka_pair.new, "verify-copy", range(70))

    def run(*args: str, code: int) -> dict[str, Any]:
        line = ["topic", "verify", "verify-copy", "--kafka-config", str(tmp_path / "new"), *args]
        done = CliRunner().invoke(app, [*line, "--json"])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if code != 2 else {}

    original = ("--expect-topic", "verify-copy", "--expect-config", str(tmp_path / "old"))
    short = run(*original, code=3)
    assert (short["exactly_once"], short["missing"]["count"]) == (False, 10)
    assert short["missing"]["first"][0] == {"id": "70", "at": [[1, 19]]}
    write(kafka_pair.new, "verify-copy", range(70, 80))
    assert run(*original, code=0)["exactly_once"]
    assert run("--expect-range", "0:80", "--id", "header:id", "--hidden", code=0)["hidden"] == 0
    for bad in ((), ("--expect-range", "80"), (*original, "--expect-range", "0:80")):
        run(*bad, code=2)
    done = CliRunner().invoke(
        app,
        ["topic", "verify", "verify-copy", "--kafka-config", str(tmp_path / "new"), "--expect-range", "0:9"],
    )
    assert done.exit_code == 3
    assert "not exactly once" in done.stdout


def test_expected_topic_may_hold_an_id_more_than_once(old_broker: Broker):
    for topic in ("verify-in", "verify-out"):
        old_broker.create_topic(topic, partitions=2)
    write(old_broker, "verify-in", [1, 2, 2, 3])
    write(old_broker, "verify-out", [1, 2, 3])
    cluster = cluster_of(old_broker)
    expected = TopicIds(cluster=cluster, topic="verify-in", ident=by_value)
    assert verify_topic(cluster, "verify-out", expected, by_value).exactly_once
