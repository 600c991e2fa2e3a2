"""``flinkstyle transactions`` on a real broker: what dead producers hold back, and ending it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer
from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.kafka.audit.open_transactions import open_transactions
from airflow_flinkstyle.kafka.audit.transactions import abort_transactions, matching
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.settings import KafkaCluster
from testbed.waiting import wait_until
from tests.unit.cli.conftest import Root

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.kafka import Broker

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


class Shell:
    """A topic on a broker, a savepoint root, and the command line."""

    def __init__(self, broker: Broker, topic: str, folder: Path) -> None:
        self.broker, self.topic = broker, topic
        self.cluster = KafkaCluster(name="old", config={"bootstrap.servers": broker.bootstrap})
        self.root = Root(folder)
        self._config = folder / "kafka.properties"
        self._config.write_text(f"bootstrap.servers={broker.bootstrap}\n")

    def run(self, command: str, *args: str, code: int = 0) -> str:
        line = ["transactions", command, *args, "--kafka-config", str(self._config)]
        done = CliRunner().invoke(app, line, env={"COLUMNS": "300"})
        assert done.exit_code == code, done.output
        return done.stderr if code else done.stdout

    def json(self, command: str, *args: str) -> dict[str, Any]:
        return json.loads(self.run(command, *args, "--json"))

    def open(self, transactional_id: str, records: int = 2, partition: int = 0) -> Producer:
        """Leave a transaction open, as a producer that died."""
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "transactional.id": transactional_id,
                "log_level": 0,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        for number in range(records):
            producer.produce(self.topic, f"{transactional_id} {number}", partition=partition)
        assert producer.flush(20) == 0
        return producer

    def wait_for(self, *, readable: int, end: int | None = None) -> None:
        """Wait for the ends of partition 0: a transaction's end follows its commit by a moment."""

        def is_there() -> bool:
            span = describe(self.cluster, [self.topic]).topics[self.topic].partitions[0]
            return (span.last_stable, span.end) == (readable, end or readable)

        wait_until(f"{readable} readable offsets", is_there)

    def ids(self, prefix: str) -> list[str]:
        return [one["transactional_id"] for one in self.json("list", "--prefix", prefix)["transactions"]]


@pytest.fixture
def shell(old_broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    name = f"txn-{request.node.name.split('[')[0].removeprefix('test_').replace('_', '-')}"
    old_broker.create_topic(name, partitions=2)
    return Shell(old_broker, name, tmp_path)


def test_what_a_dead_producer_holds_back_is_shown_and_readable_after_the_abort(shell: Shell):
    dead = shell.open("t1.line-0")
    later = shell.open("t1.other-0", records=3)
    later.commit_transaction(20)
    shell.wait_for(readable=0, end=6)
    (listed,) = shell.json("list", "--prefix", "t1.")["transactions"]
    assert (listed["transactional_id"], listed["state"]) == ("t1.line-0", "Ongoing")
    assert listed["partitions"] == [{"topic": shell.topic, "partition": 0}]
    (held,) = shell.json("describe", "--prefix", "t1.line-")["partitions"]
    assert (held["last_stable"], held["hidden"], held["by"]) == (0, 6, ["t1.line-0"])
    assert "t1.line-0" in shell.run("describe", "--topic", shell.topic)
    assert shell.json("abort", "--prefix", "t1.line-", "--min-age", "0", "--yes") == {
        "aborted": ["t1.line-0"]
    }
    shell.wait_for(readable=7)
    with pytest.raises(KafkaException, match=r"(?i)fenced"):
        dead.commit_transaction(20)
    assert "nothing was aborted" in shell.run("abort", "--prefix", "t1.line-", "--yes")
    assert "No such transaction" in shell.run("describe", "--prefix", "t1.line-")


def test_what_another_application_holds_is_shown_as_its_own_and_left_alone(shell: Shell):
    shell.open("t2.line-0")
    other = shell.open("t2.other-0", records=1, partition=1)
    shell.json("abort", "--prefix", "t2.line-", "--min-age", "0", "--yes")
    found = shell.json("describe", "--prefix", "t2.line-", "--topic", shell.topic)
    assert found["transactions"] == []
    assert [(held["partition"], held["by"]) for held in found["partitions"]] == [(1, ["t2.other-0"])]
    other.commit_transaction(20)
    assert shell.ids("t2.") == []


def test_transaction_younger_than_its_time_out_is_refused_unless_somebody_says_which_age_is_dead(
    shell: Shell,
):
    producer = shell.open("t3.line-0")
    for more in ((), ("--min-age", "30")):
        said = shell.run("abort", "--prefix", "t3.", "--yes", *more, code=1)
        assert said.startswith("TRANSACTION_IN_USE: 1 of 1 transactions")
        assert "t3.line-0" in said
    producer.commit_transaction(20)
    shell.wait_for(readable=3)


def test_transactions_of_a_running_job_are_refused_whatever_their_age(shell: Shell):
    producer = shell.open("t4-query-0")
    shell.root.seem_running(query_id="t4-query")
    root = ("--root", shell.root.uri, "--prefix", "t4-", "--yes")
    said = shell.run("abort", *root, "--min-age", "0", code=1)
    assert "TRANSACTION_IN_USE: Job orders, whose transaction t4-query-0 is" in said
    producer.commit_transaction(20)
    shell.wait_for(readable=3)


def test_transactions_of_a_job_that_has_ended_are_aborted_whatever_their_age_and_no_others(shell: Shell):
    shell.open("t5-query-0")
    shell.root.seem_running(state="closed", query_id="t5-query")
    root = ("--root", shell.root.uri, "--yes", "--prefix")
    other = shell.open("t5-query-more-0", records=0)
    other.produce(shell.topic, "of another lineage", partition=1)
    other.flush(20)
    assert "t5-query-more-0" in shell.run("abort", *root, "t5-query-", code=1)
    other.commit_transaction(20)
    assert shell.json("abort", *root, "t5-query-") == {"aborted": ["t5-query-0"]}
    shell.wait_for(readable=3)


def test_transaction_that_went_on_since_it_was_looked_at_is_left_alone(shell: Shell):
    producer = shell.open("t6.line-0")
    seen = matching(open_transactions(shell.cluster), "t6.")
    producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce(shell.topic, "of the next one", partition=0)
    producer.flush(20)
    assert abort_transactions(shell.cluster, seen) == []
    producer.commit_transaction(20)


def test_prefix_that_every_application_has_is_refused(shell: Shell):
    shell.run("abort", "--prefix", "", "--yes", code=2)
