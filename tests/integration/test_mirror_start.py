"""Where a mirror back is to begin, noted on a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.jobs.errors import LATE_WRITES
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.migration.fail_back import begin_fail_back
from airflow_flinkstyle.jobs.migration.form import MigrationForm
from airflow_flinkstyle.kafka.cluster import ClusterView, describe
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
from airflow_flinkstyle.typed_json import encode
from airflow_flinkstyle.types import NextOffset
from testbed.keys import SIGNER
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_flinkstyle.jobs.migration.fail_back import FailBack
    from testbed.kafka import Broker
    from tests.conftest import KafkaPair


pytestmark = [pytest.mark.integration, pytest.mark.kafka]
ONE_COPIED = Offsets({("left", 0): NextOffset(1)})


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
def test_records_of_a_forgotten_producer_that_no_job_has_read_are_in_the_way_back(
    tmp_path: Path, kafka_pair: KafkaPair, monkeypatch: pytest.MonkeyPatch
):
    """They stand before what the mirror back copies: nobody would ever read them."""
    old, new = kafka_pair.old, kafka_pair.new
    for broker in (old, new):
        broker.create_topic("left", partitions=2)
    produce(old, "left", 5)
    begin = way_back(
        tmp_path, monkeypatch, kafka_pair, topic="left", ended=Offsets.of({"left": {0: 5, 1: 0}})
    )
    begin()
    produce(old, "left", 3)
    with refuses(LATE_WRITES, match=r"left-0 \(5 to 8\)") as refused:
        begin()
    assert "passed_over<=3" in refused.value.remedy
    with refuses(LATE_WRITES):
        begin(allow=("exact", "passed_over<=2"))
    begin(allow=("exact", "passed_over<=3"))
    set_mirror_start(a_cluster(old), MirrorSettings(source_alias="other", target_alias="there"), ONE_COPIED)
    begin()  # the mirror back has copied to this partition by now


@pytest.mark.airflow
def test_way_back_between_other_clusters_is_refused(
    tmp_path: Path, kafka_pair: KafkaPair, monkeypatch: pytest.MonkeyPatch
):
    another = ClusterView(cluster_id="another", topics={})
    begin = way_back(tmp_path, monkeypatch, kafka_pair, topic="t", target=another)
    with refuses(CLUSTER_MISMATCH, match=f"another.*{kafka_pair.new.cluster_id}"):
        begin()


def produce(broker: Broker, topic: str, records: int) -> None:
    """Write records to partition 0."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(records):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0


def way_back(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    pair: KafkaPair,
    *,
    topic: str,
    target: ClusterView | None = None,
    ended: Offsets | None = None,
) -> Callable[..., FailBack]:
    """Leave a finished migration from the old cluster; return what begins its reversal.

    Args:
        folder: Of the savepoint root.
        monkeypatch: Sets the connections.
        pair: The clusters.
        topic: What the job reads.
        target: The cluster that it was migrated to; None: the new one.
        ended: Where the old topics ended then.
    """
    store = LocalStore(folder / "root")
    journal = CutoverJournal(store, "orders", "m1", PHASES, signer=SIGNER)
    journal.begin(lambda: 1)
    move = PartitionMove(
        query="totals",
        source="0",
        topic=topic,
        target_topic=topic,
        partition=0,
        before=NextOffset(1),
        after=Exact(NextOffset(1)),
    )
    plan = OffsetRewritePlan(
        savepoint_id="sp-1",
        job="orders",
        batches={},
        target=target or describe(a_cluster(pair.new), [topic]),
        moves=(move,),
        source_cluster_id=pair.old.cluster_id,
    )
    results = {
        **({"ends": {"ends": encode(ended)}} if ended is not None else {}),
        "translate": {"plan": plan.to_json()},
        "takeover": {"generation": 2},
        "running": {},
    }
    for phase, result in results.items():
        journal.close(journal.open(phase, {}), result)
    for name, broker in (("now", pair.new), ("then", pair.old)):
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": broker.bootstrap}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
    root = {"conn_type": "flinkstyle", "extra": {"savepoint_root": str(folder / "root")}}
    monkeypatch.setenv("AIRFLOW_CONN_FLINKSTYLE_DEFAULT", json.dumps(root))
    hook = StreamingJobHook()

    def begin(**answers: Any) -> FailBack:
        form = MigrationForm(
            job="orders",
            source_kafka_conn_id="now",
            target_kafka_conn_id="then",
            mirror={"source_alias": "other", "target_alias": "there"},
            back=True,
            **answers,
        )
        return begin_fail_back(
            hook.store,
            form,
            now=hook.kafka("now"),
            then=hook.kafka("then"),
            migration_id=None,
            topics="original",
            mirror_timeout_s=0,
            signer=SIGNER,
        )

    return begin
