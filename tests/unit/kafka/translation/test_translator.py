"""What is refused before any record is compared, and what holds for a partition; without brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicSettings, TopicView
from airflow_flinkstyle.kafka.fingerprints import Fingerprints
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.reading import Identity
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.translation.alignment import Rules
from airflow_flinkstyle.kafka.translation.cluster_snapshot import ClusterSnapshot
from airflow_flinkstyle.kafka.translation.pairs import Pair
from airflow_flinkstyle.kafka.translation.proof import Proof
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.translation.translator import Evidence, Round, _evidence, prove_round
from airflow_flinkstyle.kafka.verdict import Bounded, Refused, describe, offset_of
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset

NOWHERE = KafkaCluster(name="nowhere", config={"bootstrap.servers": "127.0.0.1:1"}, request_timeout_s=0.2)
TP, COPY = ("orders", 1), ("sales", 1)


def a_view(cluster_id: str, topic: str, ranges: dict[int, tuple[int, int, int]]) -> ClusterView:
    partitions = {
        number: LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(stable))
        for number, (start, end, stable) in ranges.items()
    }
    view = TopicView(topic_id=f"{topic} of {cluster_id}", partitions=partitions)
    return ClusterView(cluster_id=cluster_id, topics={topic: view})


def some_settings(**changed: Any) -> TopicSettings:
    given = {"compacted": False, "deletes": True, "retention_ms": -1, "retention_bytes": -1}
    return TopicSettings(**{**given, "log_append_time": False, **changed})


def a_round(
    source: dict[int, tuple[int, int, int]],
    target: dict[int, tuple[int, int, int]],
    *,
    mirrored: int | None = None,
    settings: TopicSettings | None = None,
    target_settings: TopicSettings | None = None,
    **request: Any,
) -> Round:
    given = {"positions": Offsets({TP: 40}), "rename": {"orders": "sales"}, **request}
    return Round(
        source=NOWHERE,
        target=NOWHERE,
        request=ProofRequest(**given),
        snapshot=ClusterSnapshot(
            source=a_view("old", "orders", source),
            target=a_view("new", "sales", target),
            mirrored=Offsets() if mirrored is None else Offsets({TP: mirrored}),
        ),
        settings={"orders": settings or some_settings()},
        target_settings={"sales": target_settings or some_settings()},
    )


def a_mirror(**changed: Any) -> MirrorSettings:
    return MirrorSettings(**{"source_alias": "old", "target_alias": "new", **changed})


def reason(state: Round) -> str:
    (evidence,) = prove_round(state).values()
    assert isinstance(evidence.verdict, Refused)
    return evidence.verdict.reason


FULL = {1: (0, 50, 50)}


@pytest.mark.parametrize(
    ("source", "target", "request_", "expected"),
    [
        (
            FULL,
            FULL,
            {"topic_ids": {"orders": "another"}},
            "topic orders was created again (id orders of old, the savepoint has another)",
        ),
        ({0: (0, 50, 50)}, FULL, {}, "the source has no partition orders-1"),
        (FULL, {0: (0, 50, 50)}, {}, "the target has no partition sales-1"),
        ({1: (0, 39, 39)}, FULL, {}, "the position 40 is beyond the source's end 39"),
        ({1: (41, 50, 50)}, FULL, {}, "the position 40 is before the source's start 41: records are deleted"),
        (FULL, FULL, {"most_unread": 9}, "10 unread offsets are more than the limit of 9"),
        ({1: (0, 50, 49)}, FULL, {}, "a transaction is open on the source from offset 49 on"),
        (FULL, {1: (0, 50, 48)}, {}, "a transaction is open on the target from offset 48 on"),
        # The position may be either end of the log, and as far back as the limit.
        ({1: (0, 40, 39)}, FULL, {}, "a transaction is open on the source from offset 39 on"),
        ({1: (40, 50, 49)}, FULL, {}, "a transaction is open on the source from offset 49 on"),
        (
            {1: (0, 50, 49)},
            FULL,
            {"most_unread": 10},
            "a transaction is open on the source from offset 49 on",
        ),
    ],
)
def test_position_that_no_record_can_prove_is_refused_before_any_is_read(
    source: dict[int, tuple[int, int, int]],
    target: dict[int, tuple[int, int, int]],
    request_: dict[str, Any],
    expected: str,
):
    assert reason(a_round(source, target, **request_)) == expected


def test_refused_partition_keeps_what_was_known_of_both_logs():
    state = a_round(FULL, {1: (3, 60, 55)}, mirrored=7)
    (evidence,) = prove_round(state).values()
    assert (evidence.topic, evidence.partition, evidence.target_topic) == ("orders", 1, "sales")
    assert (evidence.position, offset_of(evidence.verdict), evidence.mirrored_to) == (40, None, 7)
    assert (evidence.source_cluster_id, evidence.target_cluster_id) == ("old", "new")
    assert (evidence.source_topic_id, evidence.target_topic_id) == ("orders of old", "sales of new")
    assert (evidence.source_log, evidence.target_log) == ((0, 50), (3, 60))
    assert (evidence.unread_records, evidence.matched_records, evidence.digest) == (None, None, None)
    assert (evidence.context_records, evidence.extras, evidence.absent) == (None, {}, {})
    assert (evidence.source_range, evidence.target_range) == (None, None)
    (evidence,) = prove_round(a_round({}, {})).values()
    assert (evidence.source_log, evidence.target_log) == (None, None)


def test_proved_partition_keeps_what_its_proof_rests_on():
    proof = Proof(
        verdict=Bounded(NextOffset(37), {"duplicate": 2}, {"superseded": 1}), unread=10, matched=9,
        context=32, digest="d1", extras={"duplicate": 2}, absent={"superseded": 1},
    )  # fmt: skip
    pair = Pair(
        tp=TP, target_tp=COPY, position=40, identity=Identity(),
        source=Fingerprints(low=8, high=50, log_start=0),
        target=Fingerprints(low=5, high=60, log_start=3), longest=100,
    )  # fmt: skip
    state = a_round(FULL, {1: (3, 60, 60)})
    evidence = _evidence(state, TP, proof.verdict, proof=proof, pair=pair)
    assert (evidence.verdict, offset_of(evidence.verdict)) == (proof.verdict, 37)
    assert (evidence.unread_records, evidence.matched_records, evidence.context_records) == (10, 9, 32)
    assert (evidence.digest, evidence.extras, evidence.absent) == ("d1", proof.extras, proof.absent)
    assert (evidence.source_range, evidence.target_range) == ((8, 50), (5, 60))
    text = evidence.to_json()
    told = json.loads(text)
    assert text == json.dumps(told, sort_keys=True, separators=(",", ":")), "manifests are compared as text"
    assert told.keys() == {*Evidence.__slots__, "target_offset"}
    assert (told["verdict"], told["target_offset"]) == (describe(proof.verdict), 37)
    assert (told["topic"], told["target_topic"], told["digest"]) == ("orders", "sales", "d1")


def test_partition_that_is_refused_for_good_is_not_asked_of_the_mirror():
    ends = {0: (41, 5_000_000, 5_000_000), 1: (0, 5_000_000, 5_000_000)}
    state = a_round(
        ends, ends, mirrored=7, positions=Offsets({("orders", 0): 40, TP: 4_999_990}), mirror=a_mirror()
    )
    found = {tp: str(entry.verdict) for tp, entry in prove_round(state).items()}
    assert "records are deleted" in found["orders", 0]
    assert "MirrorMaker is" in found[TP]


def test_each_partition_is_refused_by_itself_in_the_order_of_their_names():
    both = Offsets({("orders", 1): 40, ("orders", 0): 40})
    found = prove_round(a_round({0: (0, 39, 39), 1: (41, 50, 50)}, {0: (0, 1, 1), **FULL}, positions=both))
    assert [*found] == [("orders", 0), ("orders", 1)]
    assert "beyond" in str(found["orders", 0].verdict)
    assert "deleted" in str(found["orders", 1].verdict)


def test_mirror_that_is_far_behind_is_refused():
    mirror = a_mirror()
    far = {1: (0, 5_000_000, 5_000_000)}
    behind = a_round(far, FULL, mirror=mirror, mirrored=1_000, most_unread=10**9)
    assert reason(behind) == "MirrorMaker is 4999000 records behind"


def test_records_are_the_same_by_what_both_logs_and_the_mirror_keep():
    def identity(**changed: Any) -> Any:  # noqa: ANN401
        return a_round(FULL, FULL, **changed).identity(TP)

    assert (identity().dated, identity().keyed, identity().ignored_headers) == (True, False, frozenset())
    overwritten, compacted = some_settings(log_append_time=True), some_settings(compacted=True)
    for side in ("settings", "target_settings"):
        assert not identity(**{side: overwritten}).dated
        assert identity(**{side: compacted}).keyed
    mirror = a_mirror(ignored_headers=("trace",))
    ignored = identity(mirror=mirror, ignored_headers=frozenset({"mine"})).ignored_headers
    assert ignored == {"trace", "mine"}


def a_pair(state: Round, **changed: Any) -> Pair:
    given = {"longest": 1_000, "same_offsets": False, **changed}
    return Pair.around(TP, COPY, 40, state.ranges(TP), state.identity(TP), **given)


def test_rules_say_what_is_known_of_both_logs_and_the_mirror():
    plain = a_round(FULL, FULL)
    assert plain.rules(a_pair(plain), 3, 4) == Rules(oldest_equal=3, oldest_copy=4)
    compacted, overwritten = some_settings(compacted=True), some_settings(log_append_time=True)
    state = a_round(FULL, FULL, mirror=a_mirror(sole_writer=True), settings=compacted)
    pair = a_pair(state)
    pair.longest = 50
    pair.source.low = 0
    expected = Rules(
        source_compacted=True, caught_up=True, sole_writer=True, exhausted=pair.exhausted, oldest_copy=None
    )
    assert pair.exhausted
    assert state.rules(pair, None, None) == expected
    state = a_round(
        FULL,
        FULL,
        mirror=a_mirror(),
        target_settings=some_settings(compacted=True, log_append_time=True),
        preview=True,
    )
    assert state.rules(a_pair(state), None, 0) == Rules(compacted=True, growing=True, dated=False)
    state = a_round(FULL, FULL, settings=overwritten)
    assert not state.rules(a_pair(state), None, 0).dated


@pytest.mark.parametrize(("source", "target"), [({}, FULL), (FULL, {})])
def test_partition_that_either_cluster_lacks_has_no_ranges(source: Any, target: Any):  # noqa: ANN401
    assert a_round(FULL, FULL).ranges(TP)[0].end == 50
    with pytest.raises(KeyError, match=r"\('orders', 1\)"):
        a_round(source, target).ranges(TP)


def test_preview_is_shown_though_transactions_are_open():
    state = a_round({1: (0, 39, 30)}, {1: (0, 50, 40)}, preview=True)
    assert reason(state) == "the position 40 is beyond the source's end 39"
