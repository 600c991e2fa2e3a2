"""Each precondition by itself: what it lets through, and what it says of what it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.errors import (
    LOG_TRUNCATED,
    OFFSET_BEFORE_START,
    OFFSET_BEYOND_END,
    PartitionSetError,
    TopicRecreatedError,
)
from airflow_flinkstyle.kafka.policies import Policies, parse_policies
from airflow_flinkstyle.kafka.verdict import Bounded, Chosen, Exact, Refused, Verdict
from airflow_flinkstyle.rewrite.errors import (
    MOVES_REFUSED,
    NOTHING_WRITTEN,
    PLAN_MISMATCH,
    PLANNED_BATCH,
    PREVIEW_ONLY,
    REWRITE_REFUSED,
)
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.rewrite.preconditions import (
    Precondition,
    RequireClusterId,
    RequireNoPlannedBatch,
    RequireNoRefusal,
    RequirePartitions,
    RequireSavepoint,
    RequireSettled,
    RequireStillEmpty,
    RequireTopicIds,
    RequireVerdictPolicy,
    RequireWithinLog,
    Situation,
    check_all,
    default_preconditions,
)
from airflow_flinkstyle.rewrite.rows import PartitionMove, SourceStrategy
from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.refusals import refuses
from tests.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError

Ends = dict[str, dict[int, int]]


def a_query(name: str = "totals", planned: str | None = None) -> QuerySnapshot:
    return QuerySnapshot(
        name=name,
        query_id=f"id of {name}",
        batch_id=BatchId(7),
        checkpoint_location="file:///checkpoint",
        planned_offsets=planned,
        pinned_confs={},
        kafka={},
        files=(),
    )


def a_view(ends: Ends, *, start: int = 0, cluster_id: str = "new", **topic_ids: str) -> ClusterView:
    topics = {
        topic: TopicView(
            topic_id=topic_ids.get(topic, f"{topic}-id"),
            partitions={
                number: LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(end))
                for number, end in partitions.items()
            },
        )
        for topic, partitions in ends.items()
    }
    return ClusterView(cluster_id=cluster_id, topics=topics)


def a_move(
    after: Verdict | int, topic: str = "t", partition: int = 0, *, query: str = "totals", source: str = "0"
) -> PartitionMove:
    return PartitionMove(
        query=query,
        source=source,
        topic=f"old-{topic}",
        target_topic=topic,
        partition=partition,
        before=NextOffset(1),
        after=Exact(NextOffset(after)) if isinstance(after, int) else after,
    )


def a_plan(*moves: PartitionMove, view: ClusterView | None = None, **changed: Any) -> OffsetRewritePlan:
    given = {"savepoint_id": "sp-1", "job": "shop", "batches": {"totals": BatchId(7)}, "moves": moves}
    return OffsetRewritePlan(**{**given, "target": view or a_view({"t": {0: 10}}), **changed})


def failure(
    precondition: Precondition,
    plan: OffsetRewritePlan,
    live: ClusterView | None = None,
    *queries: QuerySnapshot,
) -> FlinkstyleError | None:
    situation = Situation(
        plan=plan, manifest=a_manifest(*(queries or (a_query(),))), live=live or plan.target
    )
    try:
        precondition.check(situation)
    except Exception as error:  # noqa: BLE001 - each test says which
        return error  # type: ignore[return-value]
    return None


def refusal(kind: type[FlinkstyleError] | ErrorKind, *args: Any) -> FlinkstyleError:
    found = failure(*args)
    assert found is not None
    assert found.code == kind.code, found
    return found


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            {"savepoint_id": "sp-2"},
            "The plan was made for savepoint sp-2 of job shop, but found sp-1 of job shop.",
        ),
        (
            {"job": "other"},
            "The plan was made for savepoint sp-1 of job other, but found sp-1 of job shop.",
        ),
        (
            {"batches": {"totals": BatchId(8)}},
            "The plan was made for the savepoint at batch 8 of totals, but found batch 7 of totals.",
        ),
    ],
)
def test_plan_for_another_savepoint_names_both(changed: dict[str, Any], problem: str):
    assert failure(RequireSavepoint(), a_plan()) is None
    assert refusal(PLAN_MISMATCH, RequireSavepoint(), a_plan(**changed)).problem == problem


def test_plan_for_another_cluster_names_both():
    assert failure(RequireClusterId("new"), a_plan()) is None
    found = refusal(PLAN_MISMATCH, RequireClusterId("planned"), a_plan())
    assert found.problem == "The plan was made for cluster planned, but found new."


def test_topic_created_again_since_the_plan_names_both_ids_and_one_that_is_gone_is_left_to_others():
    plan = a_plan(view=a_view({"gone": {0: 1}, "t": {0: 1}}))
    assert failure(RequireTopicIds(), plan, a_view({"t": {0: 1}})) is None
    found = refusal(TopicRecreatedError, RequireTopicIds(), plan, a_view({"t": {0: 1}}, t="newer"))
    for word in ("the target cluster", "Topic t ", "t-id", "newer"):
        assert word in found.problem


def test_partitions_are_compared_source_by_source_under_their_new_names():
    live = a_view({"t": {0: 9}, "u": {0: 9, 1: 9}})
    moves = [a_move(1), a_move(1, "u", source="1"), a_move(1, "u", 1, source="1")]
    assert failure(RequirePartitions(), a_plan(*moves), live) is None
    found = refusal(PartitionSetError, RequirePartitions(), a_plan(*moves[:2]), live)
    assert "u-1" in found.problem
    assert "the target cluster" in found.problem
    # A source is looked at by itself, the only one too.
    refusal(PartitionSetError, RequirePartitions(), a_plan(a_move(1, "u")), live)
    # Two sources of the same topic: each has to have all of its partitions.
    both = [a_move(1, "u"), a_move(1, "u", 1, source="1")]
    refusal(PartitionSetError, RequirePartitions(), a_plan(*both), live)


def test_offsets_of_committed_and_planned_batch_must_lie_in_the_live_log():
    planned = a_view({"t": {0: 10}}, start=0)
    check, live = RequireWithinLog(), a_view({"t": {0: 10}}, start=2)
    assert failure(check, a_plan(a_move(2), view=planned, planned=(a_move(10),)), live) is None
    found = refusal(OFFSET_BEFORE_START, check, a_plan(a_move(1), view=planned), live)
    assert "t-0 on the target cluster" in found.problem
    beyond = a_plan(a_move(2), view=planned, planned=(a_move(11),))
    refusal(OFFSET_BEYOND_END, check, beyond, live)
    refusal(OFFSET_BEYOND_END, check, a_plan(a_move(11), view=planned, planned=(a_move(2),)), live)


def test_log_that_lost_its_end_since_the_plan_is_refused_though_the_offsets_fit():
    plan = a_plan(a_move(2), view=a_view({"t": {0: 10}}))
    assert failure(RequireWithinLog(), plan, a_view({"t": {0: 10}})) is None
    found = refusal(LOG_TRUNCATED, RequireWithinLog(), plan, a_view({"t": {0: 9}}))
    assert "the target cluster" in found.problem
    assert "t-0" in found.problem


def a_strategy(strategy: str, source: str = "0") -> SourceStrategy:
    return SourceStrategy(query="totals", source=source, strategy=strategy, precondition="p", consequence="c")  # type: ignore[arg-type]


def test_target_of_a_drained_source_must_be_as_empty_as_it_was():
    moves = [a_move(10, partition=number) for number in range(3)]
    plan = a_plan(*moves, strategies=(a_strategy("producers_first"),))
    assert failure(RequireStillEmpty(), plan, a_view({"t": {0: 10, 1: 10, 2: 10}})) is None
    found = refusal(MOVES_REFUSED, RequireStillEmpty(), plan, a_view({"t": {0: 10, 1: 11, 2: 12}}))
    assert found.problem.startswith("2 partitions of the target were expected to be empty still")
    assert "old-t-1" in found.problem
    assert "old-t-0" not in found.problem
    assert found.remedy.startswith("Stop the mirror")


def test_source_that_is_not_drained_may_have_records_behind_its_position():
    live = a_view({"t": {0: 99}, "u": {0: 99}})
    moves = [a_move(10), a_move(99, "u", source="1")]
    for strategies in ((), (a_strategy("mirror"), a_strategy("producers_first", "1"))):
        assert failure(RequireStillEmpty(), a_plan(*moves, strategies=strategies), live) is None
    picked = a_plan(a_move(Chosen(NextOffset(10), None, None)), strategies=(a_strategy("producers_first"),))
    assert failure(RequireStillEmpty(), picked, live) is None


def test_partition_that_a_drained_sources_target_lacks_is_left_to_others():
    plan = a_plan(a_move(10, "gone"), strategies=(a_strategy("producers_first"),))
    assert failure(RequireStillEmpty(), plan, a_view({"t": {0: 1}})) is None


def a_plan_ending(
    moves: Mapping[int, Verdict | int], ends: Mapping[int, Verdict | int], **changed: Any
) -> OffsetRewritePlan:
    return a_plan(
        *(a_move(after, partition=number) for number, after in moves.items()),
        planned=tuple(a_move(after, partition=number) for number, after in ends.items()),
        **changed,
    )


BOUNDED = Bounded(NextOffset(3), {"duplicate": 1})
PLANNED = a_query(planned="the log of batch 8")


@pytest.mark.parametrize(
    ("moves", "ends", "inexact"),
    [
        ({0: 1, 1: 2}, {0: 3, 1: 4}, None),
        ({0: 1, 1: 2}, {0: 3, 1: BOUNDED}, 1),
        ({0: BOUNDED, 1: 2}, {0: 3, 1: 4}, 1),
        ({0: BOUNDED, 1: 2}, {0: 3, 1: BOUNDED}, 2),
        ({0: 1, 1: 2}, {0: 3}, 1),  # nobody looked for the other end
        ({0: 1, 1: 2}, {}, 2),
        ({0: 1}, {0: 3, 1: 4}, 1),  # a partition that came with the planned batch has no begin
    ],
)
def test_planned_batch_moves_only_if_each_partition_has_both_ends_exactly(
    moves: dict[int, Verdict | int], ends: dict[int, Verdict | int], inexact: int | None
):
    found = failure(RequireNoPlannedBatch(), a_plan_ending(moves, ends), None, PLANNED)
    if inexact is None:
        assert found is None
    else:
        assert found.code == PLANNED_BATCH.code
        assert found.problem == (
            "Query totals planned batch 8 and did not commit it; "
            f"{inexact} of its offsets have no exact place there."
        )
        assert found.state_after == NOTHING_WRITTEN
        assert "StopStreamingJobOperator" in found.remedy


def test_planned_batch_of_a_query_that_does_not_move_is_no_obstacle():
    other, quiet = a_query("other", planned="the log of batch 8"), a_query("quiet")
    plan = a_plan_ending({0: 1}, {0: 2})
    assert failure(RequireNoPlannedBatch(), plan, None, other, quiet, PLANNED) is None
    nothing_planned = a_query()
    assert failure(RequireNoPlannedBatch(), a_plan_ending({0: BOUNDED}, {}), None, nothing_planned) is None
    # Each query is looked at, behind one that is no obstacle too.
    refusal(
        PLANNED_BATCH,
        RequireNoPlannedBatch(),
        a_plan_ending({0: 1}, {}),
        None,
        other,
        quiet,
        PLANNED,
    )


def test_planned_batches_of_two_queries_are_judged_apart():
    late = a_query("late", planned="the log of batch 8")
    moves = [a_move(1), a_move(1, query="late")]
    ends = (a_move(2), a_move(BOUNDED, query="late"))
    found = refusal(PLANNED_BATCH, RequireNoPlannedBatch(), a_plan(*moves, planned=ends), None, PLANNED, late)
    assert found.problem.startswith("Query late planned batch 8")
    assert failure(RequireNoPlannedBatch(), a_plan(*moves, planned=ends), None, PLANNED) is None
    # The same topic and partition, but of another source.
    apart = a_plan(a_move(1), planned=(a_move(2, source="1"),))
    refusal(PLANNED_BATCH, RequireNoPlannedBatch(), apart, None, PLANNED)


def test_refused_rows_are_told_with_their_number():
    plan = a_plan(
        a_move(1), a_move(Refused("gone", None), partition=1), planned=(a_move(Refused("cut", None)),)
    )
    found = refusal(MOVES_REFUSED, RequireNoRefusal(), plan)
    assert found.problem.startswith("2 partitions have no safe offset on the target: ")
    assert "refused: gone" in found.problem
    assert found.remedy.startswith("Remove the reasons")
    assert failure(RequireNoRefusal(), a_plan(a_move(1), a_move(BOUNDED))) is None


def test_what_is_less_than_allowed_is_told_with_what_is_allowed():
    plan = a_plan(a_move(1), a_move(BOUNDED, partition=1), a_move(Refused("gone", None), partition=2))
    found = refusal(MOVES_REFUSED, RequireVerdictPolicy(), plan)
    assert found.problem.startswith("1 offsets are less than what is allowed (exact): old-t-1")
    assert "gone" not in found.problem  # refusals are another precondition's
    assert found.remedy.startswith("Read what these offsets repeat or leave out")
    assert failure(RequireVerdictPolicy(parse_policies("duplicate<=1")), plan) is None
    assert failure(RequireVerdictPolicy(Policies(chosen=True)), plan) is not None


def test_preview_is_refused_with_its_savepoint():
    assert failure(RequireSettled(), a_plan()) is None
    found = refusal(PREVIEW_ONLY, RequireSettled(), a_plan(settled=False))
    assert found.problem.startswith("The plan for savepoint sp-1 ")
    assert found.state_after == NOTHING_WRITTEN
    assert found.remedy.startswith("Hold the producers")


def test_every_precondition_is_checked_by_default_with_the_plans_cluster_and_policies():
    allowed = parse_policies("duplicate<=1")
    found = default_preconditions(a_plan(), allowed)
    expected = (
        *(RequireSavepoint(), RequireClusterId("new"), RequireTopicIds(), RequirePartitions()),
        *(RequireWithinLog(), RequireStillEmpty(), RequireSettled(), RequireNoRefusal()),
        *(RequireVerdictPolicy(allowed), RequireNoPlannedBatch()),
    )
    assert all(one in found for one in expected)
    assert len(found) == len(expected)
    assert RequireVerdictPolicy() in default_preconditions(a_plan())


def test_one_failure_is_told_as_it_is_and_several_together():
    plan = a_plan(settled=False, batches={})
    situation = Situation(plan=plan, manifest=a_manifest(a_query()), live=plan.target)
    check_all([RequireTopicIds()], situation)
    with refuses(PREVIEW_ONLY):
        check_all([RequireSettled(), RequireTopicIds()], situation)
    with refuses(REWRITE_REFUSED, match="Savepoint sp-1 cannot be rewritten for 2 reasons"):
        check_all([RequireSettled(), RequireSavepoint()], situation)


def test_whoever_is_no_precondition_of_ours_stops_the_check():
    class Broken:
        def check(self, situation: Situation) -> None:
            raise KeyError(situation.plan.job)

    plan = replace(a_plan(), settled=False)
    situation = Situation(plan=plan, manifest=a_manifest(a_query()), live=plan.target)
    with pytest.raises(KeyError, match="shop"):
        check_all([RequireSettled(), Broken()], situation)
