"""Kinds of topics and mirrors, given to two real clusters by hand: the tests write what a mirror would write.

Mirrors that keep offsets (Cluster Linking and the like) are simulated by a copier whose copies have the
same offsets.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.mirror.lag import CaughtUp, MirrorBehind, wait_caught_up
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.translation.translator import translate_positions
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, Refused, Verdict
from airflow_flinkstyle.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

NOW_MS = int(time.time() * 1000)
BY_HAND = MirrorSettings(source_alias="hand", target_alias="there")
KEEPER = MirrorSettings(source_alias="source", target_alias="target", keeps_offsets=True)


@dataclass(frozen=True, kw_only=True)
class Rec:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = NOW_MS


def records(name: str, count: int) -> list[Rec]:
    return [Rec(value=f"{name}-{i}".encode(), timestamp_ms=NOW_MS + i) for i in range(count)]


class Pair:
    """Both clusters, and topics that exist on both."""

    def __init__(self, brokers: Any) -> None:  # noqa: ANN401
        self._brokers = brokers
        self.old = KafkaCluster(name="old", config={"bootstrap.servers": brokers.old.bootstrap})
        self.new = KafkaCluster(name="new", config={"bootstrap.servers": brokers.new.bootstrap})

    def create(self, topic: str, target_config: Mapping[str, str] | None = None) -> None:
        self._brokers.old.create_topic(topic, partitions=1)
        self._brokers.new.create_topic(topic, partitions=1, config=target_config)

    def write(self, cluster: KafkaCluster, topic: str, written: Iterable[Rec]) -> None:
        from confluent_kafka import Producer

        producer = Producer(dict(cluster.config))
        for rec in written:
            producer.produce(
                topic,
                key=rec.key,
                value=rec.value,
                headers=list(rec.headers),
                timestamp=rec.timestamp_ms,
                partition=0,
            )
        assert producer.flush(30) == 0

    def note(self, topic: str, offset: int) -> None:
        """Write what MirrorMaker writes when it has replicated up to an offset."""
        from confluent_kafka import Producer

        if BY_HAND.positions_topic not in self._brokers.new.admin().list_topics(timeout=20).topics:
            self._brokers.new.create_topic(BY_HAND.positions_topic, partitions=1)
        place = {"cluster": BY_HAND.source_alias, "partition": 0, "topic": topic}
        producer = Producer(dict(self.new.config))
        key = json.dumps([BY_HAND.connector_name, place])
        producer.produce(BY_HAND.positions_topic, key=key, value=json.dumps({"offset": offset}))
        assert producer.flush(30) == 0

    def verdict(self, topic: str, at: int, mirror: MirrorSettings | None = BY_HAND) -> Verdict:
        request = ProofRequest(positions=Offsets({(topic, 0): at}), mirror=mirror)
        return translate_positions(self.old, self.new, request).verdicts[topic, 0]


@pytest.fixture(scope="module")
def pair(kafka_pair: Any) -> Pair:  # noqa: ANN401
    return Pair(kafka_pair)


def test_mirror_that_keeps_offsets_is_verified_record_by_record(pair: Pair):
    pair.create("k.kept")
    same = [Rec(value=b"equal")] * 40
    pair.write(pair.old, "k.kept", same)
    pair.write(pair.new, "k.kept", same)
    assert pair.verdict("k.kept", 30, KEEPER) == Exact(30)
    assert pair.verdict("k.kept", 40, KEEPER) == Exact(40)
    assert isinstance(wait_caught_up(pair.old, pair.new, KEEPER, ["k.kept"], timeout_s=5), CaughtUp)
    pair.write(pair.old, "k.kept", same[:3])
    behind = pair.verdict("k.kept", 30, KEEPER)
    assert isinstance(behind, Refused)
    assert "3 records behind" in behind.reason
    assert isinstance(wait_caught_up(pair.old, pair.new, KEEPER, ["k.kept"], timeout_s=0), MirrorBehind)


def test_mirror_that_only_seems_to_keep_offsets_is_refused(pair: Pair):
    pair.create("k.shifted")
    log = records("s", 40)
    pair.write(pair.old, "k.shifted", log)
    pair.write(pair.new, "k.shifted", [*log[1:], Rec(value=b"another")])
    refused = pair.verdict("k.shifted", 30, KEEPER)
    assert isinstance(refused, Refused)
    assert "are others on the target" in refused.reason


def test_records_of_the_targets_own_producers_are_new_and_none_is_lost(pair: Pair):
    pair.create("k.own")
    log = records("m", 60)
    own = records("own", 3)
    pair.write(pair.old, "k.own", log)
    pair.write(pair.new, "k.own", [*log[:50], own[0], *log[50:], *own[1:]])
    pair.note("k.own", 59)
    assert pair.verdict("k.own", 50) == Bounded(50, {"new": 3})
    assert pair.verdict("k.own", 60) == Bounded(61, {"new": 2, "passed_over": 1})
    assert pair.verdict("k.own", 40) == Bounded(40, {"new": 3})


def test_new_records_before_second_copies_that_fill_the_window_are_read(pair: Pair):
    pair.create("k.repeated")
    log, own = records("r", 300), records("own", 3)
    pair.write(pair.old, "k.repeated", log)
    pair.write(pair.new, "k.repeated", [*log, *own, *log])
    pair.note("k.repeated", 299)
    assert pair.verdict("k.repeated", 300) == Bounded(300, {"new": 3, "copy_before": 300})
    sole = MirrorSettings(source_alias="hand", target_alias="there", sole_writer=True)
    assert pair.verdict("k.repeated", 300, sole) == Exact(603)


def test_headers_that_the_mirror_adds_are_ignored_by_name_only(pair: Pair):
    pair.create("k.headers")
    log = [Rec(value=b"%d" % i, headers=(("trace", b"%d" % i),)) for i in range(40)]
    added = [
        Rec(value=rec.value, headers=(*rec.headers, ("origin", b"old")), timestamp_ms=rec.timestamp_ms)
        for rec in log
    ]
    pair.write(pair.old, "k.headers", log)
    pair.write(pair.new, "k.headers", added)
    pair.note("k.headers", 39)
    assert isinstance(pair.verdict("k.headers", 30), Refused)
    naming = MirrorSettings(source_alias="hand", target_alias="there", ignored_headers=("origin",))
    assert pair.verdict("k.headers", 30, naming) == Exact(30)
    wrong = MirrorSettings(source_alias="hand", target_alias="there", ignored_headers=("origin", "trace"))
    assert pair.verdict("k.headers", 30, wrong) == Exact(30)


def test_null_keys_and_values_survive_a_target_that_dates_records_itself(pair: Pair):
    pair.create("k.append", {"message.timestamp.type": "LogAppendTime"})
    log = [
        Rec(
            value=None if i % 3 == 0 else b"v%d" % i,
            key=None if i % 2 else b"k%d" % i,
            timestamp_ms=NOW_MS + i,
        )
        for i in range(30)
    ]
    pair.write(pair.old, "k.append", log)
    pair.write(pair.new, "k.append", log)
    pair.note("k.append", 29)
    assert pair.verdict("k.append", 20) == Exact(20)
    pair.write(pair.new, "k.append", log[25:])  # a second copy, or somebody's own: nothing tells
    assert pair.verdict("k.append", 27) == Bounded(27, {"duplicate": 3, "copy_before": 2})
    sole = MirrorSettings(source_alias="hand", target_alias="there", sole_writer=True)
    assert pair.verdict("k.append", 27, sole) == Exact(32)


def test_content_alone_is_enough_only_where_older_records_are_older(pair: Pair):
    for topic in ("k.dated", "k.periodic"):
        pair.create(topic)
    dated = records("d", 400)
    pair.write(pair.old, "k.dated", dated)
    pair.write(pair.new, "k.dated", dated[100:])
    assert pair.verdict("k.dated", 380, None) == Exact(280)
    periodic = [Rec(value=b"%d" % (i % 60)) for i in range(360)]
    pair.write(pair.old, "k.periodic", periodic)
    pair.write(pair.new, "k.periodic", periodic[:300])
    refused = pair.verdict("k.periodic", 350, None)
    assert isinstance(refused, Refused)
    assert "repeat" in refused.reason


def test_evidence_names_clusters_logs_and_what_was_compared(pair: Pair):
    pair.create("k.evidence")
    log = records("e", 50)
    pair.write(pair.old, "k.evidence", log)
    pair.write(pair.new, "k.evidence", log[10:])
    pair.note("k.evidence", 49)
    request = ProofRequest(positions=Offsets({("k.evidence", 0): 45}), mirror=BY_HAND)
    evidence = json.loads(
        translate_positions(pair.old, pair.new, request).evidence["k.evidence", 0].to_json()
    )
    ids = [describe(cluster, ()).cluster_id for cluster in (pair.old, pair.new)]
    assert [evidence["source_cluster_id"], evidence["target_cluster_id"]] == ids
    assert (evidence["source_log"], evidence["target_log"]) == ([0, 50], [0, 40])
    assert (evidence["unread_records"], evidence["matched_records"], evidence["mirrored_to"]) == (5, 5, 50)
    assert len(evidence["digest"]) == 64
