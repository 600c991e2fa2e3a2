"""Plan, preconditions and application of a rewrite, on a store in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.table_position import TablePosition
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import (
    LOG_TRUNCATED,
    OFFSET_BEFORE_START,
    OFFSET_BEYOND_END,
    PartitionSetError,
    TopicMissingError,
    TopicRecreatedError,
)
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.kafka.verdict import Bounded, Chosen, Exact, Refused, Verdict
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.apply import apply_plan, rewritten_id
from airflow_flinkstyle.rewrite.errors import (
    MOVES_REFUSED,
    PLAN_FORMAT,
    PLAN_MISMATCH,
    PLANNED_BATCH,
    PREVIEW_ONLY,
    REWRITE_REFUSED,
)
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan, plan_rewrite
from airflow_flinkstyle.rewrite.preconditions import Situation, check_all, default_preconditions
from airflow_flinkstyle.rewrite.rows import SourceRef, SourceVerdicts
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.refusals import refuses
from tests.unit.rewrite.shop import PLANNED_LOG, V1, V2, Shop, a_position, a_view


def test_table_shows_from_to_shift_and_verdict():
    shop = Shop()
    table = shop.plan({0: Exact(NextOffset(950)), 1: Refused("gone", (NextOffset(2040), NextOffset(2050)))})
    lines = table.as_markdown().splitlines()
    assert lines[4] == "| totals | orders | 1 | 2040 | refused: gone (source offsets 2040 to 2049) |  |"
    assert lines[5] == "| totals | orders | 0 | 1050 | 950 exact | -100 |"


def test_table_names_renamed_topics_and_says_when_it_is_a_preview():
    view = a_view(topic="old.orders")
    text = Shop().plan(view=view, rename={"orders": "old.orders"}, settled=False).as_markdown()
    assert "orders -> old.orders" in text
    assert "Preview" in text


def test_partition_nobody_looked_for_is_a_refused_row():
    (refused,) = Shop().plan({0: Exact(NextOffset(950))}).refused
    assert (refused.partition, refused.before) == (1, 2040)


def test_planning_a_source_the_savepoint_lacks_names_those_it_has():
    shop = Shop()
    with pytest.raises(BadInputError, match="totals/0"):
        plan_rewrite(
            shop.manifest, a_view(), {SourceRef(query="totals", source="9"): SourceVerdicts(verdicts={})}, {}
        )


def test_table_says_where_sources_stay_that_are_tables_with_versions():
    shop = Shop()
    position = TablePosition(format="delta", table_id="t", version=7, files_read=2)
    query = replace(shop.manifest.queries[0], tables={"2": position})
    shop.manifest = replace(shop.manifest, queries=(query,))
    plan = shop.plan()
    assert plan.as_markdown().splitlines()[-1] == "| totals/2 | delta version 7, 2 of its files read |"
    assert OffsetRewritePlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "verdict",
    [
        Exact(NextOffset(950)),
        Bounded(NextOffset(940), {"duplicate": 7}, {"superseded": 2}),
        Chosen(NextOffset(1), None, 4),
        Refused("no", (NextOffset(1), NextOffset(3))),
        Refused("no", None),
    ],
)
def test_plan_survives_json(verdict: Verdict):
    plan = Shop().plan({0: verdict, 1: Exact(NextOffset(2045))})
    assert OffsetRewritePlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format_version":2}', '{"format_version":1,"job":"x"}'])
def test_malformed_or_newer_plan_is_refused(text: str):
    with refuses(PLAN_FORMAT):
        OffsetRewritePlan.from_json(text)


def test_plan_of_a_newer_format_is_refused_by_both_numbers():
    with refuses(PLAN_FORMAT, match="format_version 1, found 2"):
        OffsetRewritePlan.from_json('{"format_version":2,"job":"x"}')


@pytest.mark.parametrize("log", [V1, V2])
def test_application_changes_the_moved_offsets_and_not_one_byte_more(log: str):
    shop = Shop(log)
    result = apply_plan(shop.plan(), shop.manifest, shop.repository, live=a_view())
    assert shop.text(result, "offsets/7") == log.replace("2040", "2045").replace("1050", "950")
    for path in ("commits/7", "metadata", "offsets/6", "sources/0/0"):
        assert result.queries[0].file(path) == shop.manifest.queries[0].file(path)


def test_application_records_parent_cluster_log_and_evidence():
    shop = Shop()
    result = apply_plan(shop.plan(), shop.manifest, shop.repository, live=a_view())
    position = result.queries[0].kafka["0"]
    assert (result.parent, result.savepoint_id) == ("sp-1", rewritten_id(shop.plan()))
    assert (position.cluster_id, position.topic_ids) == ("new", {"orders": "t-new"})
    assert position.offsets.by_topic == {"orders": {0: 950, 1: 2045}}
    assert position.log_range == {"orders": {0: (0, 2000), 1: (0, 3000)}}
    assert result.queries[0].kafka["1"] == shop.manifest.queries[0].kafka["1"]
    assert result.evidence == {"totals/0/orders-0": '{"digest": "d"}'}
    assert shop.repository.read(result.savepoint_id) == result
    assert shop.repository.read("sp-1") == shop.manifest


def test_application_renames_topics_in_the_log():
    shop = Shop()
    view = a_view(topic="old.orders")
    plan = shop.plan(view=view, rename={"orders": "old.orders"})
    result = apply_plan(plan, shop.manifest, shop.repository, live=view)
    parsed = offset_log.parse(shop.text(result, "offsets/7"))
    assert parsed.kafka_offsets("0").by_topic == {"old.orders": {0: 950, 1: 2045}}


def test_applying_again_changes_nothing():
    shop = Shop()
    first = apply_plan(shop.plan(), shop.manifest, shop.repository, live=a_view())
    keys = shop.snapshot().keys()
    assert apply_plan(shop.plan(), shop.manifest, shop.repository, live=a_view()) == first
    assert shop.snapshot().keys() == keys


def test_two_plans_at_once_make_two_whole_savepoints_and_neither_touches_the_other():
    shop = Shop()
    plans = [shop.plan(), shop.plan({0: Exact(NextOffset(951)), 1: Exact(NextOffset(2045))})]
    made = [apply_plan(plan, shop.manifest, shop.repository, live=a_view()) for plan in plans]
    assert [m.parent for m in made] == ["sp-1", "sp-1"]
    positions = [shop.repository.read(m.savepoint_id).queries[0].kafka["0"].offsets for m in made]
    assert [*map(dict, positions)] == [{("orders", 0): first, ("orders", 1): 2045} for first in (950, 951)]
    assert all(verify_savepoint(m, shop.repository, level="full").files == 5 for m in made)


def test_plan_that_is_older_than_the_savepoint_it_is_applied_to_names_both():
    shop = Shop()
    newer = replace(shop.manifest, savepoint_id="sp-2")
    with refuses(PLAN_MISMATCH, match="made for savepoint sp-1 of job shop, but found sp-2"):
        apply_plan(shop.plan(), newer, shop.repository, live=a_view())


@pytest.mark.parametrize("lost_answer", [False, True])
def test_a_store_that_fails_midway_leaves_the_new_savepoint_whole_or_absent(lost_answer: bool):
    for call in range(1, 50):
        shop = Shop()
        plan = shop.plan()
        shop.store.fail_at(call, lost_answer=lost_answer)
        try:
            apply_plan(plan, shop.manifest, shop.repository, live=a_view())
            done = True
        except StoreUnavailableError:
            done = False
        shop.store.fail_at(None)
        found = shop.repository.find(rewritten_id(plan))
        assert shop.repository.read("sp-1") == shop.manifest
        if found is not None:
            assert found.blobs.keys() <= shop.repository.blob_sizes().keys()
        assert found is not None or not done
        assert apply_plan(plan, shop.manifest, shop.repository, live=a_view()).parent == "sp-1"
        if done and call > 5:
            return
    pytest.fail("never went through")


def test_plan_for_another_savepoint_or_batch_is_refused():
    shop = Shop()
    other = replace(shop.plan(), savepoint_id="sp-2")
    assert shop.failure(other).code == PLAN_MISMATCH.code
    moved_on = replace(shop.plan(), batches={"totals": BatchId(8)})
    assert shop.failure(moved_on).code == PLAN_MISMATCH.code


def test_bootstrap_that_now_reaches_another_cluster_is_refused():
    error = Shop().failure(Shop().plan(), replace(a_view(), cluster_id="elsewhere"))
    assert error.code == PLAN_MISMATCH.code
    assert "new" in error.problem
    assert "elsewhere" in error.problem


def test_target_topic_created_again_is_refused():
    assert isinstance(Shop().failure(Shop().plan(), a_view(topic_id="t-newer")), TopicRecreatedError)


def test_partition_set_must_be_exactly_the_live_one():
    more = Shop().failure(Shop().plan(), a_view({0: 2000, 1: 3000, 2: 0}))
    assert isinstance(more, PartitionSetError)
    assert "orders-2" in more.problem
    assert isinstance(Shop().failure(Shop().plan(), a_view({0: 2000})), PartitionSetError)
    assert isinstance(Shop().failure(Shop().plan(), a_view(topic="x")), TopicMissingError)


def test_offsets_outside_the_live_log_are_refused():
    beyond = Shop().failure(Shop().plan(), a_view({0: 949, 1: 3000}))
    assert beyond.code == OFFSET_BEYOND_END.code
    assert Shop().failure(Shop().plan(), a_view(start=951)).code == OFFSET_BEFORE_START.code


def test_log_that_is_shorter_than_it_was_planned_on_is_refused():
    error = Shop().failure(Shop().plan(), a_view({0: 1999, 1: 3000}))
    assert error.code == LOG_TRUNCATED.code
    assert "orders-0 end 1 offsets before" in error.problem


def test_logs_that_grew_or_lost_what_was_read_are_no_obstacle_and_are_said(caplog: pytest.LogCaptureFixture):
    shop = Shop()
    with caplog.at_level("INFO"):
        apply_plan(shop.plan(), shop.manifest, shop.repository, live=a_view({0: 2010, 1: 3005}, start=7))
    assert "2 logs grew by 15 offsets, 2 logs lost their oldest 14 offsets" in caplog.text


def test_refused_rows_and_previews_are_never_applied():
    plan = Shop().plan({0: Refused("gone", None), 1: Exact(NextOffset(1))})
    error = Shop().failure(plan, allow="bounded,chosen")
    assert error.code == MOVES_REFUSED.code
    assert "orders-0 of query totals from 1050: refused: gone" in error.problem
    assert Shop().failure(Shop().plan(settled=False)).code == PREVIEW_ONLY.code


def test_less_than_exact_needs_permission():
    plan = Shop().plan({0: Bounded(NextOffset(940), {"duplicate": 10}), 1: Exact(NextOffset(2045))})
    error = Shop().failure(plan)
    assert error.code == MOVES_REFUSED.code
    assert "at most 10 duplicate records again" in error.problem
    shop = Shop()
    allow = parse_policies("exact,duplicate<=10")
    assert apply_plan(plan, shop.manifest, shop.repository, live=a_view(), allow=allow).parent == "sp-1"


def test_all_failures_are_reported_at_once():
    plan = Shop().plan({0: Chosen(NextOffset(940), 0, 0), 1: Exact(NextOffset(9000))}, settled=False)
    with refuses(REWRITE_REFUSED) as caught:
        check_all(default_preconditions(plan), Situation(plan=plan, manifest=Shop().manifest, live=a_view()))
    assert "for 3 reasons" in caught.value.problem
    assert caught.value.remedy.startswith("(1) ")


def test_planned_batch_is_refused_unless_both_its_ends_are_exact():
    shop = Shop(planned=PLANNED_LOG)
    assert shop.failure(shop.plan()).code in {MOVES_REFUSED.code, REWRITE_REFUSED.code}
    guessed: dict[tuple[str, int], Verdict] = {
        ("orders", 0): Exact(NextOffset(960)),
        ("orders", 1): Bounded(NextOffset(2046), {"duplicate": 1}),
    }
    error = shop.failure(shop.plan(planned=guessed), allow="exact,bounded")
    assert error.code == PLANNED_BATCH.code
    assert "batch 8" in error.problem


def test_planned_batch_with_exact_ends_is_carried_over():
    shop = Shop(planned=PLANNED_LOG)
    ends: dict[tuple[str, int], Verdict] = {
        ("orders", 0): Exact(NextOffset(960)),
        ("orders", 1): Exact(NextOffset(2046)),
    }
    result = apply_plan(shop.plan(planned=ends), shop.manifest, shop.repository, live=a_view())
    planned = result.queries[0].planned_offsets
    assert planned is not None
    assert offset_log.parse(planned).kafka_offsets("0").by_topic == {"orders": {0: 960, 1: 2046}}
    assert offset_log.parse(planned).kafka_offsets("1").by_topic == {"other": {0: 9}}


def test_manifest_that_contradicts_its_log_is_refused():
    shop = Shop()
    query = shop.manifest.queries[0]
    kafka = {**query.kafka, "1": a_position({"other": {0: 10}}, "third")}
    wrong = replace(shop.manifest, queries=(replace(query, kafka=kafka),))
    with refuses(PLAN_MISMATCH, match="source 1"):
        apply_plan(shop.plan(), wrong, shop.repository, live=a_view())


def test_rewritten_savepoint_verifies():
    shop = Shop()
    result = apply_plan(shop.plan(), shop.manifest, shop.repository, live=a_view())
    assert verify_savepoint(result, shop.repository, level="full").files == 5


@pytest.mark.parametrize("nothing", ["-", "{}"])
def test_source_without_a_position_moves_and_its_line_stays_as_spark_wrote_it(nothing: str):
    shop = Shop(V1.replace('{"other":{"0":9}}', nothing))
    (query,) = shop.manifest.queries
    unread = replace(query.kafka["1"], offsets=Offsets())
    manifest = replace(shop.manifest, queries=(replace(query, kafka={**query.kafka, "1": unread}),))
    plan = replace(shop.plan(), unread=("totals/1",))
    rewritten = apply_plan(plan, manifest, shop.repository, live=a_view())
    assert rewritten.queries[0].kafka["1"].cluster_id == "new"
    assert rewritten.queries[0].kafka["1"].topic_ids == {}
    assert shop.text(rewritten, "offsets/7").splitlines()[-1] == nothing
