"""Positions people choose, and what two looks at a cluster say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError, ErrorKind, FlinkstyleError
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.errors import (
    CLUSTER_MISMATCH,
    OFFSET_BEFORE_START,
    OFFSET_BEYOND_END,
    PartitionSetError,
    TopicMissingError,
    name_partitions,
)
from airflow_flinkstyle.kafka.fence.fencing import Moving, Steady, compare_ends
from airflow_flinkstyle.kafka.log_drift import drift_between
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.positions import require_within_log, validate_position
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.start.kinds import AtOffsets, Earliest, LogIdentity, StartRules
from airflow_flinkstyle.kafka.start.resolve import require_known
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.verdict import Bounded, Chosen, Exact, Refused, Verdict, describe, offset_of
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Mapping


def a_range(start: int, end: int, *, last_stable: int | None = None) -> LogRange:
    stable = end if last_stable is None else last_stable
    return LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(stable))


def a_view(**partitions: LogRange) -> ClusterView:
    """Topic ``t`` with partitions given as ``p0=...``."""
    logs = {int(name[1:]): log_range for name, log_range in partitions.items()}
    return ClusterView(cluster_id="c", topics={"t": TopicView(topic_id="id", partitions=logs)})


VIEW = a_view(p0=a_range(10, 20), p1=a_range(0, 0))


@pytest.mark.parametrize("offset", [10, 15, 20])
def test_offsets_from_start_to_end_inclusive_are_fine(offset: int):
    require_within_log(Offsets({("t", 0): offset, ("t", 1): 0}), VIEW, "new")


@pytest.mark.parametrize(
    ("positions", "error", "words"),
    [
        (
            {("t", 0): 9, ("t", 1): 0},
            OFFSET_BEFORE_START,
            ["Position 9 of t-0 on new", "starts 1 offsets"],
        ),
        (
            {("t", 0): 21, ("t", 1): 0},
            OFFSET_BEYOND_END,
            ["Position 21 of t-0 on new", "between 10 and 20"],
        ),
        ({("t", 0): 10}, PartitionSetError, ["no position", "t-1"]),
        ({("t", 0): 10, ("t", 1): 0, ("t", 2): 0}, PartitionSetError, ["do not exist", "t-2"]),
        ({("u", 0): 10}, TopicMissingError, ["u"]),
        ({("t", 0): -2, ("t", 1): 0}, BadInputError, ["concrete", "-2"]),
        ({}, BadInputError, ["none"]),
    ],
)
def test_each_wrong_position_has_its_own_error(
    positions: Mapping[tuple[str, int], int], error: type[FlinkstyleError] | ErrorKind, words: list[str]
):
    with refuses(error) as caught:
        require_within_log(Offsets(positions), VIEW, "new")
    assert all(word in caught.value.problem for word in words)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("offset", "before", "verdict"),
    [
        (12, 15, Chosen(NextOffset(12), 0, 3)),
        (18, 15, Chosen(NextOffset(18), 3, 0)),
        (20, None, Chosen(NextOffset(20), None, None)),
        (9, 15, "1 offsets before the log's start 10: those records are deleted"),
        (21, 15, "1 offsets behind the log's end 20"),
    ],
)
def test_picked_position_says_what_it_skips_and_repeats_or_why_it_cannot_be_used(
    offset: int, before: int | None, verdict: Chosen | str
):
    found = validate_position(offset, a_range(10, 20), before)
    assert found == verdict or (isinstance(found, Refused) and str(verdict) in found.reason)


@pytest.mark.parametrize(
    ("verdict", "text", "offset"),
    [
        (Exact(NextOffset(5)), "5 exact", 5),
        (Bounded(NextOffset(5), {"duplicate": 2}), "5 bounded: at most 2 duplicate records again", 5),
        (
            Bounded(NextOffset(5), {"new": 1}, {"superseded": 3}),
            "5 bounded: 1 new records, 3 superseded records compacted away",
            5,
        ),
        (Chosen(NextOffset(5), None, 1), "5 chosen: skips unknown, repeats 1", 5),
        (Refused("gone", None), "refused: gone", None),
        (Refused("gone", (NextOffset(1), NextOffset(4))), "refused: gone (source offsets 1 to 3)", None),
    ],
)
def test_verdicts_read_as_one_cell(verdict: Verdict, text: str, offset: int | None):
    assert describe(verdict) == text
    assert offset_of(verdict) == offset


def test_unchanged_ends_without_open_transactions_are_steady():
    assert compare_ends(VIEW.ends, VIEW, 1.0) == Steady()


def test_grown_new_and_open_partitions_are_named():
    after = a_view(p0=a_range(10, 21), p1=a_range(0, 4, last_stable=2), p2=a_range(0, 1))
    outcome = compare_ends(VIEW.ends, after, 1.0)
    assert isinstance(outcome, Moving)
    assert outcome.moved == {("t", 0): (20, 21), ("t", 1): (0, 4), ("t", 2): (0, 1)}
    assert outcome.open_transactions == {("t", 1): (2, 4)}
    assert "transactions are open on t-1 (2 to 4)" in outcome.describe()


def test_long_lists_of_partitions_are_cut_and_counted():
    assert name_partitions([("t", n) for n in range(10)]).endswith("t-7 and 2 more")


def test_target_topic_follows_policy_and_renames():
    mirror = MirrorSettings(
        source_alias="da", target_alias="db", replication_policy="default", renamed={"x": "y"}
    )
    assert mirror.positions_topic == "mm2-offsets.da.internal"
    assert [mirror.target_topic(topic) for topic in ("q.plain", "x")] == ["da.q.plain", "y"]
    request = ProofRequest(mirror=mirror, rename={"z": "zz"})
    assert [request.target_topic(topic) for topic in ("q", "z")] == ["da.q", "zz"]
    assert replace(request, mirror=None).target_topic("q") == "q"


def test_cluster_without_bootstrap_servers_is_refused():
    with pytest.raises(BadInputError, match=r"bootstrap\.servers"):
        KafkaCluster(name="x", config={"sasl.password": "hidden"})


def test_rules_for_what_is_not_read_are_refused_by_name():
    require_known(parse_rules({"default": "latest", "partitions": {"t": {"1": "earliest"}}}), VIEW, "new")
    require_known(parse_rules({"offsets": {"t": {"0": 15}, "another source's": {"0": 1}}}), VIEW, "new")
    with pytest.raises(BadInputError, match=r"on new .* reads \(t\), but there are some for tt"):
        require_known(parse_rules({"topics": {"tt": "latest"}}), VIEW, "new")
    with pytest.raises(PartitionSetError, match="t-2"):
        require_known(parse_rules({"partitions": {"t": {"2": "latest"}}}), VIEW, "new")
    with pytest.raises(PartitionSetError, match="t-3"):
        require_known(parse_rules({"topics": {"t": {"offsets": {"t": {"3": 1}}}}}), VIEW, "new")


def test_table_is_judged_only_where_its_offsets_are_taken():
    table = AtOffsets(Offsets({("t", 0): 15, ("t", 9): 1}), logs={"t": LogIdentity("another cluster", "id")})
    require_known(StartRules(default=table, topics={"t": Earliest()}), VIEW, "new")
    with refuses(PartitionSetError, match="t-9"):
        require_known(StartRules(default=table), VIEW, "new")
    with refuses(CLUSTER_MISMATCH, match="another cluster"):
        require_known(StartRules(partitions={("t", 0): table}), VIEW, "new")


def test_logs_are_compared_only_with_themselves():
    grown = a_view(p0=a_range(12, 25), p1=a_range(0, 0))
    found = drift_between(VIEW, grown)
    assert (found.grown, found.deleted, found.truncated) == ({("t", 0): 5}, {("t", 0): 2}, {})
    assert drift_between(grown, VIEW).truncated == {("t", 0): 5}
    assert drift_between(VIEW, VIEW).describe() == "the logs are as they were planned on"
    elsewhere = replace(grown, cluster_id="other")
    assert drift_between(VIEW, elsewhere).describe() == "the logs are as they were planned on"
