"""The ways a source can move, without brokers: topologies, drained ends, what a plan says and keeps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.policies import Policies
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.start.kinds import Earliest, FromGroup, Latest, StartRules
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.verdict import Chosen, Exact, Refused
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.errors import MOVES_REFUSED, PLANNED_BATCH
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan, plan_rewrite
from airflow_flinkstyle.rewrite.route import ClusterPair, Route, incompatible_topics, partitions_of
from airflow_flinkstyle.rewrite.rows import SourceRef, SourceStrategy, SourceVerdicts
from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules
from airflow_flinkstyle.rewrite.strategies import (
    describe_gap,
    describe_start,
    drained_then_chosen,
    from_nothing,
    not_drained,
    start_at_chosen,
)
from airflow_flinkstyle.types import NextOffset
from testbed.refusals import refuses
from tests.unit.rewrite.shop import PLANNED_LOG, Shop, a_position, a_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.savepoint.manifest import Manifest

REF = SourceRef(query="totals", source="0")
NOWHERE = KafkaCluster(name="nowhere", config={"bootstrap.servers": "127.0.0.1:1"})


def a_cluster(ends: Mapping[str, Mapping[int, int]], cluster_id: str = "new", start: int = 0) -> ClusterView:
    return ClusterView(
        cluster_id=cluster_id,
        topics={
            topic: TopicView(
                topic_id=f"{topic}-id",
                partitions={number: a_log(start, end) for number, end in partitions.items()},
            )
            for topic, partitions in ends.items()
        },
    )


def a_log(start: int, end: int, last_stable: int | None = None) -> LogRange:
    stable = end if last_stable is None else last_stable
    return LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(stable))


def a_route(source: ClusterView | None, target: ClusterView, **request: object) -> Route:
    return Route(
        clusters=ClusterPair(source=NOWHERE if source else None, target=NOWHERE),
        request=ProofRequest(**request),
        source=source,
        target=target,
        incompatible_topics={},
    )


@pytest.mark.parametrize(
    ("rename", "partitions", "there", "reason"),
    [
        ({}, {"a": [0, 1]}, {"a": {0: 1, 1: 1}}, None),
        ({}, {"a": [0, 1]}, {"a": {0: 1, 1: 1, 2: 1}}, "topic a has 2 partitions, its copy 3"),
        ({}, {"a": [0, 1, 2]}, {"a": {0: 1}}, "topic a has 3 partitions, its copy 1"),
        ({"a": "x"}, {"a": [0]}, {"x": {0: 1}}, None),
        ({"a": "x, y"}, {"a": [0]}, {"x": {0: 1}, "y": {0: 1}}, "topic a is split into x and y"),
        ({"a": "x", "b": "x"}, {"a": [0], "b": [0]}, {"x": {0: 1}}, "topics a and b are merged into x"),
        ({"a": "b"}, {"a": [0], "b": [0]}, {"b": {0: 1}}, "topics a and b are merged into b"),
    ],
)
def test_topics_that_do_not_fit_one_by_one_are_found_with_the_reason(
    rename: dict[str, str],
    partitions: dict[str, list[int]],
    there: dict[str, dict[int, int]],
    reason: str | None,
):
    found = incompatible_topics(ProofRequest(rename=rename), partitions, a_cluster(there)).get("a")
    assert found == reason or (reason is not None and found is not None and reason in found)


@pytest.mark.parametrize(
    ("offset", "before", "now", "reason"),
    [
        (7, a_log(0, 7), a_log(0, 7), None),
        (7, a_log(7, 7), a_log(7, 7), None),
        (6, a_log(0, 7), a_log(0, 7), "is at 6 and the old topic ends at 7"),
        (8, a_log(0, 7), a_log(0, 7), "is at 8 and the old topic ends at 7"),
        (7, a_log(0, 7), a_log(0, 8), r"records arrived on the old topic meanwhile \(7 to 8\)"),
        (8, a_log(0, 7), a_log(0, 8), r"records arrived on the old topic meanwhile \(7 to 8\)"),
        (7, a_log(0, 7), a_log(0, 7, last_stable=5), "a transaction is open on the old topic from offset 5"),
        (7, None, None, "no such partition"),
        (None, a_log(0, 3), a_log(0, 3), "never been read"),
        (None, a_log(3, 3), a_log(3, 3), None),
        (None, a_log(0, 0), a_log(0, 0), None),
    ],
)
def test_only_a_fenced_end_that_was_reached_is_drained(
    offset: int | None, before: LogRange | None, now: LogRange | None, reason: str | None
):
    found = not_drained(offset, before, now)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(reason, found)


def test_target_that_holds_records_already_is_refused_unless_a_start_was_picked():
    assert from_nothing(("a", 0), a_log(4, 4)) == Exact(NextOffset(4))
    refused = from_nothing(("a", 0), a_log(1, 4))
    assert isinstance(refused, Refused)
    assert "holds 3 offsets already" in refused.reason
    assert "unless a start is chosen" in refused.reason


def test_way_that_must_look_at_the_old_cluster_needs_its_connection():
    route = a_route(None, a_cluster({"orders": {0: 1}}))
    with pytest.raises(BadInputError, match=r"old cluster was expected for source totals/0"):
        drained_then_chosen(
            REF, a_position({"orders": {0: 1}}), SourceRule(strategy="producers_first"), route
        )


def test_new_identity_without_a_position_is_refused_by_name():
    route = a_route(None, a_cluster({"orders": {0: 1}}))
    with pytest.raises(BadInputError, match="start position was expected for orders of source totals/0"):
        start_at_chosen(REF, a_position({"orders": {0: 1}}), SourceRule(strategy="new_identity"), route)


@pytest.mark.parametrize(
    ("position", "new", "words"),
    [
        (90, 40, "some 50 more than are unread, so about as many are read again"),
        (20, 95, "some 75 fewer than are unread, so about as many are left out"),
        (60, 60, "as many, which proves nothing"),
    ],
)
def test_plan_says_how_much_is_about_to_be_read_again_or_left_out(position: int, new: int, words: str):
    old, target = a_cluster({"orders": {0: 100}}, "old"), a_cluster({"orders": {0: 100}})
    chosen = {("orders", 0): Chosen(NextOffset(new), None, None)}
    assert words in describe_gap(
        a_position({"orders": {0: position}}), ["orders"], chosen, a_route(old, target)
    )


def test_without_the_old_cluster_the_plan_says_that_nobody_can_tell():
    chosen = {("orders", 0): Chosen(NextOffset(40), None, None)}
    route = a_route(None, a_cluster({"orders": {0: 100}}))
    found = describe_gap(a_position({"orders": {0: 1}}), ["orders"], chosen, route)
    assert found.startswith("60 offsets follow the new positions")
    assert "it is unknown which were read before" in found


def test_offsets_of_a_group_are_labelled_unproved():
    assert "unproved" in describe_start(StartRules(default=FromGroup("shop")))
    assert "unproved" in describe_start(StartRules(partitions={("a", 0): FromGroup("shop")}))
    assert describe_start(StartRules(default=Earliest(), topics={"a": Latest()})) == "earliest, a: latest"


def chosen(shop: Shop, ends: Mapping[int, int], target: str = "orders", **found: object) -> object:
    """Return a plan in which the first source begins anew on a target with these partitions."""
    strategy = SourceStrategy(
        query="totals",
        source="0",
        strategy="new_identity",
        precondition="p",
        consequence="old positions dropped",
    )
    verdicts = {(target, number): Chosen(NextOffset(1), None, None) for number in ends}
    source = SourceVerdicts(verdicts={}, chosen=verdicts, strategy=strategy, **found)
    return plan_rewrite(shop.manifest, a_view(ends, topic=target), {shop.ref: source}, {"orders": target})


@pytest.mark.parametrize("ends", [{0: 5}, {0: 5, 1: 5, 2: 5}], ids=["fewer", "more"])
def test_source_that_begins_anew_has_exactly_the_targets_partitions(ends: dict[int, int]):
    shop = Shop()
    plan = chosen(shop, ends, "sales")
    assert not plan.refused
    assert [(m.target_topic, m.partition) for m in plan.moves] == [("sales", number) for number in ends]
    live = a_view(ends, topic="sales")
    result = apply_plan(plan, shop.manifest, shop.repository, live=live, allow=Policies(chosen=True))
    parsed = offset_log.parse(shop.text(result, "offsets/7"))
    assert parsed.kafka_offsets("0").by_topic == {"sales": dict.fromkeys(ends, 1)}
    assert parsed.kafka_offsets("1").by_topic == {"other": {0: 9}}
    assert "sales" in result.queries[0].kafka["0"].topic_ids
    kept = json.loads(result.evidence["totals/0/strategy"])
    assert (kept["strategy"], kept["cluster_id"]) == ("new_identity", "old")
    assert kept["dropped"] == {"orders": {"0": 1050, "1": 2040}}


@pytest.mark.parametrize("picked", [False, True])
def test_records_that_came_to_an_empty_target_since_the_plan_are_not_taken_for_new(picked: bool):
    shop = Shop()
    drained = SourceStrategy(
        query="totals", source="0", strategy="producers_first", precondition="p", consequence="dropped"
    )
    zero = NextOffset(0)
    after = Chosen(zero, None, None) if picked else Exact(zero)
    found = SourceVerdicts(verdicts={}, chosen={("orders", 0): after}, strategy=drained)
    plan = plan_rewrite(shop.manifest, a_view({0: 0}), {shop.ref: found}, {})

    def apply(live: ClusterView) -> Manifest:
        return apply_plan(plan, shop.manifest, shop.repository, live=live, allow=Policies(chosen=True))

    if picked:
        assert apply(a_view({0: 3})).parent == "sp-1"
    else:
        with refuses(MOVES_REFUSED, match="a mirror that still copies"):
            apply(a_view({0: 3}))
        assert apply(a_view({0: 0})).parent == "sp-1"


def test_partition_of_the_old_topic_that_was_never_read_counts_when_topics_are_compared():
    live = a_cluster({"orders": {0: 5, 1: 5, 2: 7}}, "old")
    there = a_cluster({"orders": {0: 5, 1: 5}})
    positions = [a_position({"orders": {0: 5, 1: 5}})]
    found = incompatible_topics(ProofRequest(), partitions_of(positions, live), there)
    assert found["orders"].startswith("topic orders has 3 partitions, its copy 2")
    assert not incompatible_topics(ProofRequest(), partitions_of(positions, None), there)


def test_halves_of_a_split_topic_may_be_named_with_blanks():
    shop = Shop()
    verdicts = {(half, 0): Chosen(NextOffset(1), None, None) for half in ("eu", "us")}
    source = SourceVerdicts(verdicts={}, chosen=verdicts)
    plan = plan_rewrite(
        shop.manifest, a_cluster({"eu": {0: 1}, "us": {0: 1}}), {shop.ref: source}, {"orders": "eu , us"}
    )
    assert [(move.topic, move.target_topic) for move in plan.moves] == [("orders", "eu"), ("orders", "us")]
    assert not plan.refused


def test_merged_topics_are_shown_with_all_they_were():
    shop = Shop()
    position = a_position({"orders": {0: 1}, "items": {0: 1}})
    query = replace(shop.manifest.queries[0], kafka={"0": position})
    manifest = replace(shop.manifest, queries=(query,))
    source = SourceVerdicts(verdicts={}, chosen={("all", 0): Chosen(NextOffset(1), None, None)})
    rename = {"orders": "all", "items": "all"}
    (move,) = plan_rewrite(manifest, a_view({0: 1}, topic="all"), {REF: source}, rename).moves
    assert (move.topic, move.before) == ("items + orders", None)


def test_planned_batch_of_a_source_that_begins_anew_is_refused():
    shop = Shop(planned=PLANNED_LOG)
    error = shop.failure(chosen(shop, {0: 2000, 1: 3000}), allow="chosen")
    assert error.code == PLANNED_BATCH.code


def test_plan_shows_way_precondition_and_consequence_and_keeps_them_in_json():
    plan = chosen(Shop(), {0: 5})
    assert "| totals/0 | new_identity | p | old positions dropped |" in plan.as_markdown()
    assert OffsetRewritePlan.from_json(plan.to_json()) == plan


def test_rules_of_a_source_go_before_the_default():
    other = SourceRule(strategy="producers_first")
    rules = StrategyRules(sources={"totals/0": other})
    assert rules.of(REF) == other
    assert rules.of(SourceRef(query="totals", source="1")) == SourceRule()
    assert (rules.drains, rules.chooses) == (True, False)
    assert StrategyRules(default=SourceRule(start=StartRules(default=Latest()))).chooses
