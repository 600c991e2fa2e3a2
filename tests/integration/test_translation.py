"""Positions translated between two real clusters, mirrored by a real MirrorMaker 2."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.errors import MIRROR_BEHIND
from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import (
    ClusterMismatchError,
    ClusterUnreachableError,
    MirrorPositionMissingError,
)
from airflow_flinkstyle.kafka.mirror.lag import CaughtUp, MirrorBehind, mirror_lag, wait_caught_up
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.translation.translator import translate_positions
from airflow_flinkstyle.kafka.verdict import Exact, Refused
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.route import ClusterPair
from airflow_flinkstyle.rewrite.strategies import plan_migration
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.mirror import Mirror
from testbed.mirror import MirrorSettings as MirrorProcessSettings
from testbed.refusals import refuses
from testbed.waiting import PATIENCE_S, wait_until
from tests.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.kafka.translation.translator import Translation
    from testbed.kafka import Broker

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

TOPICS = ["c.plain", "c.same", "c.txn"]
MIRROR = MirrorSettings(source_alias="left", target_alias="right")
DATED_MS = int(time.time() * 1000)
"""One timestamp for records that must be identical; not an old one, retention would delete them."""


@dataclass(frozen=True, kw_only=True)
class Bed:
    old: KafkaCluster
    new: KafkaCluster
    mirror: Mirror
    pair: Any


def produce(cluster: KafkaCluster, topic: str, partition: int, values: list[str], **record: Any) -> None:
    from confluent_kafka import Producer

    producer = Producer(dict(cluster.config))
    for value in values:
        producer.produce(topic, value=value, partition=partition, **record)
    assert producer.flush(30) == 0


def produce_transactions(cluster: KafkaCluster, topic: str, outcomes: str) -> None:
    """One transaction of five records per letter: c commits, a aborts."""
    from confluent_kafka import Producer

    producer = Producer({**cluster.config, "transactional.id": f"tx-{topic}", "log_level": 2})
    producer.init_transactions(30)
    for number, outcome in enumerate(outcomes):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, value=f"{number}-{i}-{outcome}", partition=0)
        producer.flush(30)
        (producer.commit_transaction if outcome == "c" else producer.abort_transaction)(30)


def values_from(cluster: KafkaCluster, topic: str, partition: int, offset: int) -> list[bytes | None]:
    """What a read-committed reader gets from an offset on."""
    log_range = describe(cluster, [topic]).topics[topic].partitions[partition]
    values: list[bytes | None] = []
    wanted = {(topic, partition): ReadRange(low=offset, high=log_range.end)}
    scan(cluster, wanted, lambda _, record: values.append(record.value()), "read_committed")
    return values


@pytest.fixture(scope="module")
def bed(kafka_pair: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:  # noqa: ANN401
    """Both clusters, level: everything produced is mirrored."""
    old = KafkaCluster(name="old", config={"bootstrap.servers": kafka_pair.old.bootstrap})
    new = KafkaCluster(name="new", config={"bootstrap.servers": kafka_pair.new.bootstrap})
    kafka_pair.old.create_topic("c.plain", partitions=3)
    for topic in ("c.same", "c.txn", "c.live"):
        kafka_pair.old.create_topic(topic, partitions=1)
    produce(old, "c.plain", 0, [f"zero-{i}" for i in range(400)], key="k", headers=[("h", b"x")])
    produce(old, "c.plain", 1, [f"one-{i}" for i in range(50)])
    produce(old, "c.same", 0, ["equal"] * 300, timestamp=DATED_MS)
    produce_transactions(old, "c.txn", "cacacacacaca")
    produce(old, "c.live", 0, [f"live-{i}" for i in range(100)])
    kafka_pair.old.delete_records("c.plain", {0: 100})
    settings = MirrorProcessSettings(
        source_bootstrap=kafka_pair.old.bootstrap,
        target_bootstrap=kafka_pair.new.bootstrap,
        topics=r"c\..*",
        source_alias="left",
        target_alias="right",
    )
    with Mirror(tmp_path_factory.mktemp("mirror"), settings) as mirror:
        assert isinstance(
            wait_caught_up(old, new, MIRROR, [*TOPICS, "c.live"], timeout_s=PATIENCE_S), CaughtUp
        )
        yield Bed(old=old, new=new, mirror=mirror, pair=kafka_pair)


@pytest.fixture(scope="module")
def behind(bed: Bed) -> Bed:
    """The mirror is stopped, seven records short on each topic."""
    bed.mirror.stop()
    produce(bed.old, "c.same", 0, ["equal"] * 7, timestamp=DATED_MS)
    produce(bed.old, "c.plain", 0, [f"late-{i}" for i in range(7)])
    return bed


@pytest.fixture(scope="module")
def caught_up(behind: Bed) -> Bed:
    """The mirror came back behind what the tests of ``behind`` asked, and has caught up."""
    behind.mirror.start()
    assert isinstance(wait_caught_up(behind.old, behind.new, MIRROR, TOPICS, timeout_s=PATIENCE_S), CaughtUp)
    return behind


def translated(bed: Bed, positions: dict[tuple[str, int], int], **rules: Any) -> Translation:
    rules.setdefault("mirror", MIRROR)
    return translate_positions(bed.old, bed.new, ProofRequest(positions=Offsets(positions), **rules))


def refusal(bed: Bed, tp: tuple[str, int], position: int, **rules: Any) -> str:
    verdict = translated(bed, {tp: position}, **rules).verdicts[tp]
    assert isinstance(verdict, Refused)
    return verdict.reason


def test_every_exact_position_continues_with_the_same_records(bed: Bed):
    old_log = describe(bed.old, TOPICS)
    for fraction in (0.0, 0.6, 1.0):
        positions = {}
        for tp in old_log.partitions:
            log_range = old_log.log_range(tp)
            assert log_range is not None
            positions[tp] = log_range.start + int(fraction * (log_range.end - log_range.start))
        translation = translated(bed, positions)
        for (topic, partition), verdict in translation.verdicts.items():
            assert isinstance(verdict, Exact), (topic, partition, fraction, verdict)
            before = values_from(bed.old, topic, partition, positions[topic, partition])
            after = values_from(bed.new, topic, partition, verdict.offset)
            assert after == before


def test_deleted_head_shifts_by_exactly_what_was_deleted(bed: Bed):
    assert translated(bed, {("c.plain", 0): 150}).verdicts["c.plain", 0] == Exact(50)


def test_empty_partition_and_log_end_are_exact(bed: Bed):
    end = describe(bed.new, ["c.plain"]).topics["c.plain"].partitions[1].end
    verdicts = translated(bed, {("c.plain", 1): 50, ("c.plain", 2): 0}).verdicts
    assert verdicts == {("c.plain", 1): Exact(end), ("c.plain", 2): Exact(0)}


def test_evidence_names_both_logs_and_counts(bed: Bed):
    translation = translated(bed, {("c.plain", 0): 150})
    evidence = translation.evidence["c.plain", 0]
    assert (evidence.unread_records, evidence.matched_records, evidence.context_records) == (250, 250, 32)
    assert evidence.mirrored_to == 400
    assert evidence.source_topic_id == describe(bed.old, ["c.plain"]).topics["c.plain"].topic_id
    assert evidence.target_topic_id == translation.target.topics["c.plain"].topic_id


def test_positions_outside_the_source_log_are_refused(bed: Bed):
    assert "beyond the source's end 400" in refusal(bed, ("c.plain", 0), 401)
    assert "before the source's start 100" in refusal(bed, ("c.plain", 0), 99)
    assert "no partition c.plain-7" in refusal(bed, ("c.plain", 7), 0)


def test_repeating_records_are_refused_where_no_mirror_vouches(bed: Bed):
    assert "repeat" in refusal(bed, ("c.same", 0), 290, mirror=None)
    assert "in sync" in refusal(bed, ("c.plain", 1), 50, mirror=None)
    assert translated(bed, {("c.plain", 1): 40}, mirror=None).verdicts["c.plain", 1] == Exact(40)


def a_savepoint(cluster_id: str, offsets: dict[int, int], topic_id: str) -> Manifest:
    position = KafkaPosition(
        cluster_id=cluster_id,
        topic_ids={"c.plain": topic_id},
        offsets=Offsets.of({"c.plain": {number: NextOffset(offset) for number, offset in offsets.items()}}),
        log_range={},
    )
    query = QuerySnapshot(
        name="totals",
        query_id="q",
        batch_id=BatchId(7),
        checkpoint_location="file:///c",
        planned_offsets='v1\n{}\n{"c.plain":{"0":160,"1":50,"2":0}}',
        pinned_confs={},
        kafka={"0": position},
        files=(),
    )
    return a_manifest(query)


def test_a_savepoint_is_planned_from_both_live_clusters_with_its_planned_batch(bed: Bed):
    live = describe(bed.old, ["c.plain"])
    clusters = ClusterPair(source=bed.old, target=bed.new)
    savepoint = a_savepoint(live.cluster_id, {0: 150, 1: 40, 2: 0}, live.topics["c.plain"].topic_id)
    plan = plan_migration(savepoint, clusters, ProofRequest(mirror=MIRROR))
    assert [(move.partition, move.before, move.after) for move in plan.moves] == [
        (0, 150, Exact(50)),
        (1, 40, Exact(40)),
        (2, 0, Exact(0)),
    ]
    assert [type(move.after) for move in plan.planned] == [Exact] * 3
    assert plan.target == describe(bed.new, ["c.plain"])
    foreign = a_savepoint("elsewhere", {0: 150}, "id")
    with pytest.raises(ClusterMismatchError, match="elsewhere"):
        plan_migration(foreign, clusters, ProofRequest(mirror=MIRROR))


@contextmanager
def producing(cluster: KafkaCluster, topic: str) -> Iterator[None]:
    over = threading.Event()

    def work() -> None:
        from confluent_kafka import Producer

        producer = Producer(dict(cluster.config))
        number = 0
        while not over.wait(0.02):
            producer.produce(topic, value=f"running-{number}", partition=0)
            producer.flush(10)
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def test_a_running_producer_allows_a_preview_and_nothing_more(bed: Bed):
    with producing(bed.old, "c.live"):
        preview = translated(bed, {("c.live", 0): 60}, preview=True)
        reason = refusal(bed, ("c.live", 0), 60, attempts=2)
    assert not preview.settled
    assert preview.verdicts["c.live", 0] == Exact(60)
    assert "producer is still at work" in reason or "behind" in reason


def test_mirror_with_another_alias_or_connector_is_refused_by_name(bed: Bed):
    wrong = MirrorSettings(source_alias="elsewhere", target_alias="right")
    with pytest.raises(MirrorPositionMissingError, match=r"mm2-offsets\.elsewhere\.internal"):
        mirror_lag(bed.old, bed.new, wrong, describe(bed.old, ["c.plain"]))
    other = MirrorSettings(source_alias="left", target_alias="right", connector_name="Other")
    assert "Connector Other" in refusal(bed, ("c.plain", 0), 150, mirror=other)
    with pytest.raises(MirrorPositionMissingError, match="Connector Other"):
        mirror_lag(bed.old, bed.new, other, describe(bed.old, ["c.plain"]))


def test_seven_identical_records_short_is_refused(behind: Bed):
    """The attack that content alone takes for exact: the newest records repeat."""
    assert "7 records behind" in refusal(behind, ("c.same", 0), 290)
    assert "repeat" in refusal(behind, ("c.same", 0), 290, mirror=None)


def test_seven_unique_records_short_is_refused_even_without_the_mirrors_word(behind: Bed):
    assert "7 records behind" in refusal(behind, ("c.plain", 0), 150)
    verdict = translated(behind, {("c.plain", 0): 150}, mirror=None).verdicts["c.plain", 0]
    assert verdict == Refused("7 unread records are not on the target", (400, 407))


def test_waiting_for_a_stopped_mirror_ends_with_the_lag(behind: Bed):
    outcome = wait_caught_up(behind.old, behind.new, MIRROR, TOPICS, timeout_s=1.5)
    assert isinstance(outcome, MirrorBehind)
    assert outcome.lag == {("c.same", 0): 7, ("c.plain", 0): 7}
    assert "c.plain-0: 7" in outcome.describe()


def test_window_behind_a_stopped_mirror_says_how_far_and_that_nothing_was_stopped(behind: Bed):
    kafka = LiveKafka(old=behind.old, new=behind.new, mirror=MIRROR)
    with refuses(MIRROR_BEHIND) as late:
        kafka.await_mirrored({"orders/0": TOPICS}, timeout_s=1.5)
    assert "expected to mirror everything within 1.5 s" in late.value.problem
    assert "c.plain-0: 7" in late.value.problem
    assert late.value.state_after == "Nothing was stopped; the job still reads the old cluster."
    assert "Check that MirrorMaker runs" in late.value.remedy


def test_partition_that_the_mirror_never_saw_is_refused(behind: Bed):
    for broker, cluster in ((behind.pair.old, behind.old), (behind.pair.new, behind.new)):
        broker.create_topic("c.unseen", partitions=1)
        produce(cluster, "c.unseen", 0, ["a", "b"], timestamp=DATED_MS)
    assert "has none" in refusal(behind, ("c.unseen", 0), 0)


def test_mirror_that_comes_back_makes_the_same_positions_exact(caught_up: Bed):
    verdicts = translated(caught_up, {("c.same", 0): 290, ("c.plain", 0): 150}).verdicts
    for (topic, partition), position in {("c.same", 0): 290, ("c.plain", 0): 150}.items():
        verdict = verdicts[topic, partition]
        assert isinstance(verdict, Exact)
        assert values_from(caught_up.new, topic, partition, verdict.offset) == values_from(
            caught_up.old, topic, partition, position
        )


@contextmanager
def gone_until_asked_in_vain(broker: Broker, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Kill a broker; start it again once a question had no answer and is asked again."""
    asked = caplog.text.count("Trying again")
    broker.kill()

    def come_back() -> None:
        wait_until("a question is asked again", lambda: caplog.text.count("Trying again") > asked)
        broker.start()

    back = threading.Thread(target=come_back)
    back.start()
    yield
    back.join()


@pytest.mark.matrix
def test_brokers_that_restart_during_proof_and_watch_are_waited_for(
    caught_up: Bed, caplog: pytest.LogCaptureFixture
):
    """Without patience the first question fails."""
    hasty = replace(caught_up.old, request_timeout_s=2)
    old, new = (replace(one, request_timeout_s=2, patience_s=PATIENCE_S) for one in (hasty, caught_up.new))
    kafka = LiveKafka(old=old, new=new, mirror=MIRROR)
    ends = kafka.watch.ends(["c.plain"])
    request = ProofRequest(positions=Offsets({("c.plain", 0): NextOffset(150)}), mirror=MIRROR)
    with gone_until_asked_in_vain(caught_up.pair.old, caplog):
        with pytest.raises(ClusterUnreachableError):
            describe(hasty, ["c.plain"])
        assert kafka.watch.late_writes(ends) is None
    for broker in (caught_up.pair.old, caught_up.pair.new):
        with gone_until_asked_in_vain(broker, caplog):
            verdict = translate_positions(old, new, request).verdicts["c.plain", 0]
            assert isinstance(verdict, Exact), verdict
