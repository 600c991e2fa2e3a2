"""Where a mirror back is to begin, noted on a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.migration.fail_back import begin_fail_back
from airflow_flinkstyle.jobs.migration.form import MigrationForm
from airflow_flinkstyle.kafka.cluster import ClusterView
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH, MIRROR_START
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.start import set_mirror_start
from airflow_flinkstyle.kafka.mirror.topics import read_positions
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.verdict import Exact
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.rewrite.rows import PartitionMove
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import NextOffset
from testbed.keys import SIGNER
from testbed.refusals import refuses

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.kafka import Broker
    from tests.conftest import KafkaPair


pytestmark = [pytest.mark.integration, pytest.mark.kafka]


def a_cluster(broker: Broker) -> KafkaCluster:
    return KafkaCluster(name=broker.name, config={"bootstrap.servers": broker.bootstrap})


def test_positions_are_noted_once_and_those_that_mirrormaker_has_stay(kafka_pair: KafkaPair):
    target, mirror = a_cluster(kafka_pair.old), MirrorSettings(source_alias="noted", target_alias="there")
    first = Offsets({("a", 0): 10, ("a", 1): 0, ("b", 0): 7})
    assert set_mirror_start(target, mirror, first) == {("a", 0): 10, ("b", 0): 7}, (
        "nothing to leave out of a-1"
    )
    assert read_positions(target, mirror) == {("a", 0): 10, ("b", 0): 7}
    assert set_mirror_start(target, mirror, Offsets({("a", 0): 99, ("c", 0): 5})) == {("c", 0): 5}
    assert read_positions(target, mirror) == {("a", 0): 10, ("b", 0): 7, ("c", 0): 5}


def test_newest_note_of_a_position_counts(kafka_pair: KafkaPair):
    from confluent_kafka import Producer

    broker, mirror = kafka_pair.old, MirrorSettings(source_alias="often", target_alias="there")
    broker.create_topic(mirror.positions_topic, partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for topic, offset in (("a", 4), ("b", 1), ("c", 2), ("b", None), ("a", 9), ("c", None), ("c", 6)):
        place = {"cluster": mirror.source_alias, "partition": 0, "topic": topic}
        key = json.dumps([mirror.connector_name, place])
        value = json.dumps({"offset": offset}) if offset is not None else None
        producer.produce(mirror.positions_topic, key=key, value=value)
    assert producer.flush(30) == 0
    assert read_positions(a_cluster(broker), mirror) == {("a", 0): 10, ("c", 0): 7}


def test_note_that_the_cluster_does_not_take_is_an_error_that_names_the_partition(kafka_pair: KafkaPair):
    target, mirror = a_cluster(kafka_pair.old), MirrorSettings(source_alias="tiny", target_alias="there")
    kafka_pair.old.create_topic(mirror.positions_topic, partitions=1, config={"max.message.bytes": "20"})
    with refuses(MIRROR_START, match="a-3"):
        set_mirror_start(target, mirror, Offsets({("a", 3): 10}))


@pytest.mark.airflow
def test_way_back_between_other_clusters_is_refused(
    tmp_path: Path, kafka_pair: KafkaPair, monkeypatch: pytest.MonkeyPatch
):
    store = LocalStore(tmp_path / "root")
    journal = CutoverJournal(store, "orders", "m1", PHASES, signer=SIGNER)
    journal.begin(lambda: 1)
    move = PartitionMove(
        query="totals",
        source="0",
        topic="t",
        target_topic="t",
        partition=0,
        before=NextOffset(1),
        after=Exact(NextOffset(1)),
    )
    plan = OffsetRewritePlan(
        savepoint_id="sp-1",
        job="orders",
        batches={},
        target=ClusterView(cluster_id="another", topics={}),
        moves=(move,),
        source_cluster_id=kafka_pair.old.cluster_id,
    )
    results = {"translate": {"plan": plan.to_json()}, "takeover": {"generation": 2}, "running": {}}
    for phase, result in results.items():
        journal.close(journal.open(phase, {}), result)
    for name, broker in (("now", kafka_pair.new), ("then", kafka_pair.old)):
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": broker.bootstrap}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
    root = {"conn_type": "flinkstyle", "extra": {"savepoint_root": str(tmp_path / "root")}}
    monkeypatch.setenv("AIRFLOW_CONN_FLINKSTYLE_DEFAULT", json.dumps(root))
    mirror = {"source_alias": "other", "target_alias": "there"}
    form = MigrationForm(
        job="orders", source_kafka_conn_id="now", target_kafka_conn_id="then", mirror=mirror, back=True
    )
    hook = StreamingJobHook()
    sides = {"now": hook.kafka("now"), "then": hook.kafka("then")}
    with refuses(CLUSTER_MISMATCH, match=f"another.*{kafka_pair.new.cluster_id}"):
        begin_fail_back(
            hook.store, form, **sides, migration_id=None, topics="original", mirror_timeout_s=0, signer=SIGNER
        )
