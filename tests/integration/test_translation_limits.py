"""What two real clusters answer when something is wrong: no mirror is needed for these."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.kafka.cluster import describe, topic_settings
from airflow_flinkstyle.kafka.errors import (
    CLUSTER_MISMATCH,
    OFFSET_BEFORE_START,
    ClusterUnreachableError,
    TopicMissingError,
)
from airflow_flinkstyle.kafka.fence.fencing import Moving, Steady, steady_ends
from airflow_flinkstyle.kafka.mirror.lag import CaughtUp, MirrorBehind, wait_caught_up
from airflow_flinkstyle.kafka.mirror.retention import retention_findings
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.start import position_record
from airflow_flinkstyle.kafka.mirror.status import mirror_status
from airflow_flinkstyle.kafka.reading import ReadRange, count_records, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.translation.cluster_snapshot import moved_between, take_snapshot
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.translation.translator import Round, prove_round, translate_positions
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, Refused
from airflow_flinkstyle.offsets import Offsets
from testbed.ports import free_port
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

HOUR_MS = 3_600_000


def reached(broker: Any, name: str) -> KafkaCluster:  # noqa: ANN401
    return KafkaCluster(name=name, config={"bootstrap.servers": broker.bootstrap})


def produce(cluster: KafkaCluster, topic: str, values: Sequence[str], *, timestamp: int = 0) -> None:
    from confluent_kafka import Producer

    producer = Producer(dict(cluster.config))
    for value in values:
        producer.produce(topic, value=value, partition=0, timestamp=timestamp)
    assert producer.flush(30) == 0


def test_unreachable_cluster_is_a_retryable_error_with_its_address():
    address = f"127.0.0.1:{free_port()}"
    gone = KafkaCluster(name="gone", config={"bootstrap.servers": address}, request_timeout_s=1.5)
    with pytest.raises(ClusterUnreachableError, match=address) as caught:
        describe(gone, ["any"])
    assert caught.value.retryable


def test_secrets_show_in_no_representation():
    cluster = KafkaCluster(name="x", config={"bootstrap.servers": "h:1", "sasl.password": "hidden"})
    assert "hidden" not in f"{cluster!r} {cluster}"


def test_missing_topic_is_named_and_not_created(kafka_pair: Any):  # noqa: ANN401
    old = reached(kafka_pair.old, "old")
    for _ in range(2):
        with pytest.raises(TopicMissingError, match=r"l\.absent"):
            describe(old, ["l.absent"])
    kafka_pair.old.create_topic("l.alone", partitions=1)
    new = reached(kafka_pair.new, "new")
    with pytest.raises(TopicMissingError, match=r"new .* l\.alone"):
        translate_positions(old, new, ProofRequest(positions=Offsets({("l.alone", 0): 0})))


def test_topic_created_again_is_refused(kafka_pair: Any):  # noqa: ANN401
    old, new = reached(kafka_pair.old, "old"), reached(kafka_pair.new, "new")
    for broker in (kafka_pair.old, kafka_pair.new):
        broker.create_topic("l.again", partitions=1)
    before = describe(old, ["l.again"])
    kafka_pair.old.admin().delete_topics(["l.again"])["l.again"].result(20)
    for _ in range(50):  # deletion is asynchronous
        if "l.again" not in kafka_pair.old.admin().list_topics(timeout=10).topics:
            break
        time.sleep(0.1)
    kafka_pair.old.create_topic("l.again", partitions=1)
    request = ProofRequest(
        positions=Offsets({("l.again", 0): 0}),
        cluster_id=before.cluster_id,
        topic_ids={"l.again": before.topics["l.again"].topic_id},
    )
    verdict = translate_positions(old, new, request).verdicts["l.again", 0]
    assert isinstance(verdict, Refused)
    assert "created again" in verdict.reason


def test_source_that_is_another_cluster_is_an_error(kafka_pair: Any):  # noqa: ANN401
    old, new = reached(kafka_pair.old, "old"), reached(kafka_pair.new, "new")
    for broker in (kafka_pair.old, kafka_pair.new):
        broker.create_topic("l.identity", partitions=1)
    request = ProofRequest(positions=Offsets({("l.identity", 0): 0}), cluster_id=kafka_pair.new.cluster_id)
    with refuses(CLUSTER_MISMATCH, match=kafka_pair.old.cluster_id):
        translate_positions(old, new, request)


def test_retention_that_deletes_unread_mirrored_records_is_found(kafka_pair: Any):  # noqa: ANN401
    old, new = reached(kafka_pair.old, "old"), reached(kafka_pair.new, "new")
    kafka_pair.old.create_topic("l.kept", partitions=1)
    kafka_pair.new.create_topic("l.kept", partitions=1, config={"retention.ms": str(2 * HOUR_MS)})
    now_ms = int(time.time() * 1000)
    produce(old, "l.kept", ["a", "b", "c"], timestamp=now_ms - 5 * HOUR_MS)
    produce(old, "l.kept", ["d", "e"], timestamp=now_ms)
    (finding,) = retention_findings(old, new, Offsets({("l.kept", 0): 1}), {})
    assert (finding.setting, finding.target_value, finding.endangered) == (
        "retention.ms",
        2 * HOUR_MS,
        {0: 2},
    )
    assert "Raise retention.ms" in finding.describe()
    assert retention_findings(old, new, Offsets({("l.kept", 0): 3}), {}) == ()


def test_steady_ends_names_the_partition_of_a_producer_that_ignores_the_switch(kafka_pair: Any):  # noqa: ANN401
    old = reached(kafka_pair.old, "old")
    kafka_pair.old.create_topic("l.switch", partitions=2)
    assert isinstance(steady_ends(old, ["l.switch"], window_s=0.3), Steady)
    late = threading.Timer(0.3, produce, (old, "l.switch", ["x"]))
    late.start()
    outcome = steady_ends(old, ["l.switch"], window_s=2.0)
    late.join(10)
    assert isinstance(outcome, Moving)
    assert outcome.moved == {("l.switch", 0): (0, 1)}
    assert "l.switch-0" in outcome.describe()


def test_open_transaction_is_not_steady_and_refuses_a_proof(kafka_pair: Any):  # noqa: ANN401
    from confluent_kafka import Producer

    old, new = reached(kafka_pair.old, "old"), reached(kafka_pair.new, "new")
    for broker in (kafka_pair.old, kafka_pair.new):
        broker.create_topic("l.open", partitions=1)
    producer = Producer({**old.config, "transactional.id": "open", "log_level": 2})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("l.open", value="undecided", partition=0)
    producer.flush(30)
    outcome = steady_ends(old, ["l.open"], window_s=0.2)
    verdict = translate_positions(old, new, ProofRequest(positions=Offsets({("l.open", 0): 0}))).verdicts[
        "l.open", 0
    ]
    producer.abort_transaction(30)
    assert isinstance(outcome, Moving)
    assert outcome.open_transactions == {("l.open", 0): (0, 1)}
    assert isinstance(verdict, Refused)
    assert "transaction is open" in verdict.reason


def test_reading_ends_on_a_tail_of_markers_and_finds_deleted_starts(kafka_pair: Any):  # noqa: ANN401
    from confluent_kafka import Producer

    old = reached(kafka_pair.old, "old")
    kafka_pair.old.create_topic("l.tail", partitions=1)
    produce(old, "l.tail", ["a", "b"])
    producer = Producer({**old.config, "transactional.id": "tail", "log_level": 2})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("l.tail", value="aborted", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    end = describe(old, ["l.tail"]).topics["l.tail"].partitions[0].end
    assert end == 4
    whole = {("l.tail", 0): ReadRange(low=0, high=end)}
    assert count_records(old, whole, "read_committed") == {("l.tail", 0): 2}
    assert count_records(old, whole, "read_uncommitted") == {("l.tail", 0): 3}
    kafka_pair.old.delete_records("l.tail", {0: 1})
    with refuses(OFFSET_BEFORE_START, match="deleted"):
        scan(old, whole, lambda *_: None, "read_committed")


def test_aborted_records_that_a_careless_mirror_copied_are_named(kafka_pair: Any):  # noqa: ANN401
    """A read-uncommitted mirror makes aborted records ordinary ones; copied by hand here."""
    from confluent_kafka import Producer

    old, new = reached(kafka_pair.old, "old"), reached(kafka_pair.new, "new")
    for broker in (kafka_pair.old, kafka_pair.new):
        broker.create_topic("l.phantom", partitions=1)
    stamp = int(time.time() * 1000)
    first, last = [f"a{i}" for i in range(12)], [f"z{i}" for i in range(12)]
    produce(old, "l.phantom", first, timestamp=stamp)
    producer = Producer({**old.config, "transactional.id": "phantom", "log_level": 2})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("l.phantom", value="never", partition=0, timestamp=stamp)
    producer.flush(30)
    producer.abort_transaction(30)
    produce(old, "l.phantom", last, timestamp=stamp)
    produce(new, "l.phantom", [*first, "never", *last], timestamp=stamp)
    verdicts = [
        translate_positions(old, new, ProofRequest(positions=Offsets({("l.phantom", 0): at}))).verdicts[
            "l.phantom", 0
        ]
        for at in (10, 14)
    ]
    assert verdicts[0] == Bounded(10, {"phantom_aborted": 1})
    assert isinstance(verdicts[1], Refused | Exact)


@pytest.mark.parametrize("side", ["source", "target"])
def test_records_deleted_while_they_are_compared_refuse_their_partition_only(kafka_pair: Any, side: str):  # noqa: ANN401
    old, new = reached(kafka_pair.old, "old"), reached(kafka_pair.new, "new")
    topics = [f"l.{name}-{side}" for name in ("deleted", "stays")]
    stamp = int(time.time() * 1000)
    for topic in topics:
        for broker, cluster in ((kafka_pair.old, old), (kafka_pair.new, new)):
            broker.create_topic(topic, partitions=1)
            for later, numbers in enumerate((range(80), range(80, 100))):
                produce(cluster, topic, [f"r{i}" for i in numbers], timestamp=stamp + later)
    request = ProofRequest(positions=Offsets({(topic, 0): 60 for topic in topics}))
    snapshot = take_snapshot(old, new, request, topics)
    (kafka_pair.old if side == "source" else kafka_pair.new).delete_records(topics[0], {0: 50})
    found = prove_round(
        Round(
            source=old,
            target=new,
            request=request,
            snapshot=snapshot,
            settings=topic_settings(old, topics),
            target_settings=topic_settings(new, topics),
        )
    )
    refused = found[topics[0], 0].verdict
    assert isinstance(refused, Refused)
    assert f"{topics[0]}-0 on the {side}" in refused.reason
    assert "position 60" in refused.reason
    assert found[topics[1], 0].verdict == Exact(60)
    again = moved_between(
        request,
        snapshot,
        take_snapshot(old, new, request, topics),
        {tp: one.verdict for tp, one in found.items()},
    )
    assert again == {(topics[0], 0): refused}
    assert set(translate_positions(old, new, request).verdicts.values()) == {Exact(60)}, (
        "enough stands before the position"
    )


def note_position(cluster: KafkaCluster, mirror: MirrorSettings, offset: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(dict(cluster.config))
    key, value = position_record(mirror, ("l.lag", 0), offset + 1)
    producer.produce(mirror.positions_topic, key=key, value=value)
    assert producer.flush(30) == 0


def test_lag_of_a_topic_created_again_counts_all_its_records(kafka_pair: Any):  # noqa: ANN401
    """MirrorMaker's position is one in the log that was deleted."""
    old, new = reached(kafka_pair.old, "old"), reached(kafka_pair.new, "new")
    mirror = MirrorSettings(source_alias="limits", target_alias="new", sole_writer=True)
    for broker in (kafka_pair.old, kafka_pair.new):
        broker.create_topic("l.lag", partitions=1)
    kafka_pair.new.create_topic(mirror.positions_topic, partitions=1, config={"cleanup.policy": "compact"})
    produce(old, "l.lag", [f"r{i}" for i in range(40)])
    for offset, lag in ((99, 40), (40, 40), (39, 0), (29, 10)):
        note_position(new, mirror, offset)
        status = mirror_status(old, new, mirror, ["l.lag"])
        assert [one.lag_records for one in status.partitions] == [lag]
        assert status.in_sync == (lag == 0)
        outcome = wait_caught_up(old, new, mirror, ["l.lag"], timeout_s=0)
        assert isinstance(outcome, CaughtUp if lag == 0 else MirrorBehind)
    note_position(new, mirror, 99)
    request = ProofRequest(positions=Offsets({("l.lag", 0): 30}), mirror=mirror)
    verdict = translate_positions(old, new, request).verdicts["l.lag", 0]
    assert isinstance(verdict, Refused)
    assert "it mirrored another log" in verdict.reason
