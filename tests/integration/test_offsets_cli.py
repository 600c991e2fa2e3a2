"""``flinkstyle offsets`` on two real brokers, with records that were copied by hand."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.groups import set_group_offsets
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from tests.unit.cli.kafka_savepoints import take_on_kafka

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.kafka import Broker
    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

TOPIC, PARTITIONS, RECORDS = "cli-offsets", 3, 40
AT = {0: 10, 1: 25, 2: 39}
"""Next offset to read per partition."""
DATED_MS = int(time.time() * 1000) - 3_600_000
"""Timestamp of the first record, on both clusters; not an old one, retention would delete it."""


def write(broker: Broker, first: int, until: int, *, only: int | None = None) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, until):
        for partition in range(PARTITIONS) if only is None else [only]:
            value = f"{partition}/{number}".encode()
            producer.produce(TOPIC, key=b"k", value=value, partition=partition, timestamp=DATED_MS + number)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def topic(kafka_pair: KafkaPair) -> KafkaPair:
    """The same records on both clusters; on the new one five others stand before them."""
    for broker in kafka_pair:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
    write(kafka_pair.new, 1000, 1005)
    for broker in kafka_pair:
        write(broker, 0, RECORDS)
    return kafka_pair


class Shell:
    """A root with one savepoint on the old cluster, used through the command line."""

    def __init__(self, folder: Path, pair: KafkaPair) -> None:
        self.folder, self.pair = folder, pair
        for broker in pair:
            (folder / f"{broker.name}.properties").write_text(f"bootstrap.servers={broker.bootstrap}\n")
        view = describe(self.cluster(pair.old), [TOPIC])
        take_on_kafka(
            self.repository,
            folder / "checkpoint",
            "sp-1",
            {TOPIC: AT},
            cluster_id=view.cluster_id,
            topic_id=view.topics[TOPIC].topic_id,
        )

    @property
    def repository(self) -> SavepointRepository:
        return SavepointRepository(LocalStore(self.folder / "root"), "orders")

    def cluster(self, broker: Broker) -> KafkaCluster:
        return KafkaCluster(name=broker.name, config={"bootstrap.servers": broker.bootstrap})

    def config(self, name: str) -> str:
        return str(self.folder / f"{name}.properties")

    def run(self, *args: str, code: int = 0) -> str:
        env = {"FLINKSTYLE_ROOT": str(self.folder / "root"), "FLINKSTYLE_JOB": "orders", "COLUMNS": "200"}
        done = CliRunner().invoke(app, ["offsets", *args], env=env)
        assert done.exit_code == code, done.output
        return done.stdout if code != 1 else done.stderr

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        return json.loads(self.run(*args, "--json", code=code))

    def plan(self, *args: str, code: int = 0) -> dict[str, Any]:
        clusters = ("--source-config", self.config("old"), "--target-config", self.config("new"))
        return self.json("plan", "sp-1", *clusters, *args, code=code)


@pytest.fixture
def shell(tmp_path: Path, topic: KafkaPair) -> Shell:
    return Shell(tmp_path, topic)


def test_show_tells_how_far_each_partition_is_behind_and_what_is_deleted(shell: Shell):
    found = shell.json("show", "sp-1", "--kafka-config", shell.config("old"))
    assert {one["partition"]: one["behind"] for one in found["partitions"]} == {0: 30, 1: 15, 2: 1}
    assert "46 offsets behind" in shell.run("show", "sp-1", "--kafka-config", shell.config("old"))
    refused = shell.run("show", "sp-1", "--kafka-config", shell.config("new"), code=1)
    assert shell.pair.new.cluster_id in refused


def test_plan_shows_its_moves_and_apply_takes_its_json_and_writes_the_same_savepoint_twice(
    shell: Shell, tmp_path: Path
):
    planned = shell.plan()
    after = {move["partition"]: move["after"] for move in planned["moves"]}
    assert {number: (one["kind"], one["offset"]) for number, one in after.items()} == {
        number: ("exact", offset + 5) for number, offset in AT.items()
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(planned))
    target = ("--target-config", shell.config("new"))
    moved = shell.json("apply", str(file), *target)
    assert (moved["parent"], moved["cluster_id"]) == ("sp-1", shell.pair.new.cluster_id)
    assert shell.json("apply", str(file), *target) == moved
    shown = shell.json("show", moved["savepoint_id"], "--kafka-config", shell.config("new"))
    assert {one["partition"]: one["offset"] for one in shown["partitions"]} == {
        number: offset + 5 for number, offset in AT.items()
    }
    apart = shell.json("compare", "sp-1", "--savepoint", moved["savepoint_id"], code=3)
    assert [one["behind"] for one in apart["partitions"]] == [None] * PARTITIONS, "two clusters' offsets"


def test_plan_is_refused_on_another_cluster_than_it_was_made_for(shell: Shell, tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(shell.plan()))
    said = shell.run("apply", str(file), "--target-config", shell.config("old"), code=1)
    assert said.startswith(("PLAN_MISMATCH", "REWRITE_REFUSED"))
    assert list(shell.repository.ids()) == ["sp-1"]


def test_a_picked_position_needs_to_be_allowed_and_a_refusal_ends_with_3(shell: Shell, tmp_path: Path):
    picked = shell.plan("--way", "new_identity", "--start", "latest")
    assert {move["after"]["kind"] for move in picked["moves"]} == {"chosen"}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(picked))
    target = ("--target-config", shell.config("new"))
    assert shell.run("apply", str(file), *target, code=1).startswith("MOVES_REFUSED")
    assert shell.json("apply", str(file), *target, "--allow", "exact,chosen")["partitions"] == PARTITIONS
    start = json.dumps({"partitions": {TOPIC: {"0": "earliest"}}})
    refused = shell.plan("--way", "new_identity", "--start", start, code=3)
    kinds = {move["partition"]: move["after"]["kind"] for move in refused["moves"]}
    assert kinds == {0: "chosen", 1: "refused", 2: "refused"}


def test_compare_tells_the_distance_to_the_ends_and_to_a_group(shell: Shell):
    old = ("--kafka-config", shell.config("old"))
    assert shell.json("compare", "sp-1", "--ends", *old)["behind"] == 46
    set_group_offsets(
        shell.cluster(shell.pair.old), "cli-watchers", Offsets({(TOPIC, 0): 12, (TOPIC, 1): 20})
    )
    found = shell.json("compare", "sp-1", "--group", "cli-watchers", *old, code=3)
    assert {one["partition"]: one["behind"] for one in found["partitions"]} == {0: 2, 1: -5, 2: None}
    assert shell.run("compare", "sp-1", "--group", "nobody", *old, code=1).startswith("GROUP_MISSING")
