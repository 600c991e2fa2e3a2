"""The guard's own decisions; ``tests/integration/test_agent_guard.py`` has the real brokers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.errors import SOURCES_CHANGED
from airflow_flinkstyle.agent.core.guards.checks import (
    CheckpointPositions,
    SourceRules,
    check_source,
    loss_of,
    read_positions,
    require_same_sources,
)
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.kafka.cluster import ClusterView
from airflow_flinkstyle.kafka.errors import (
    CLUSTER_MISMATCH,
    OFFSET_BEFORE_START,
    OFFSET_BEYOND_END,
    PartitionSetError,
    TopicMissingError,
    TopicRecreatedError,
)
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import SourceIdentity
from airflow_flinkstyle.typed_json import MismatchError, decode, encode
from airflow_flinkstyle.types import known_id
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.unit.agent.views import a_topic, a_view

if TYPE_CHECKING:
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog


def a_log(*offsets: dict[str, dict[str, int]] | str) -> OffsetLog:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in offsets]
    return offset_log.parse("\n".join(["v1", '{"conf":{}}', *lines]))


def check(
    view: ClusterView,
    committed: OffsetLog | None,
    planned: OffsetLog | None = None,
    *expected: SourceIdentity,
    key: str = "0",
    **rules: bool,
) -> SourceIdentity:
    positions = CheckpointPositions(committed=committed, planned=planned)
    return check_source(
        "orders", key, view, expected=expected, positions=positions, rules=SourceRules(**rules)
    )


def an_identity(cluster_id: str | None = "c", **topic_ids: str | None) -> SourceIdentity:
    return SourceIdentity(cluster_id=cluster_id, topic_ids=topic_ids)


def test_query_without_a_checkpoint_may_start_anywhere() -> None:
    check(a_view({0: 5}), None)
    check(a_view({0: 5}), a_log("-"))


def test_source_that_is_what_it_was_tells_what_it_reads() -> None:
    view = a_view({0: 5}, more=a_topic({0: 1}, "id-2"))
    found = check(view, None, None, an_identity(t="id"), an_identity(more="id-2"))
    assert found == an_identity(t="id", more="id-2")


def test_same_topics_on_another_cluster_are_refused_before_any_offset_is_compared() -> None:
    with refuses(CLUSTER_MISMATCH) as refused:
        check(a_view({0: 5}), a_log({"t": {"0": 9}}), None, an_identity(t="id"), an_identity("old", t="id"))
    assert refused.value.problem == (
        "Source 0 of query orders: its positions belong to Kafka cluster old, "
        "but its options reach cluster c."
    )
    assert refused.value.state_after == "The query was not started; its checkpoint is as it was."
    assert "PlanOffsetRewriteOperator" in refused.value.remedy


def test_topic_that_was_created_again_is_refused_under_its_old_name() -> None:
    expected = "Topic t on source 0 of query orders was expected to have id id-0, but has id id:"
    with pytest.raises(TopicRecreatedError, match=f"Source 0 of query orders: {expected}") as refused:
        check(a_view({0: 5}), None, None, an_identity(t="id-0"))
    assert refused.value.state_after == "The query was not started; its checkpoint is as it was."


def test_topic_that_is_gone_is_refused_by_name() -> None:
    with pytest.raises(TopicMissingError, match=r"of source 0 of query orders was .*\bgone\b"):
        check(a_view({0: 5}), None, None, an_identity(t="id", gone="id-1"))


def test_topic_that_the_script_no_longer_reads_is_refused_with_what_it_reads() -> None:
    log = a_log({"t": {"0": 3}, "b": {"0": 1}, "a": {"0": 1}})
    with refuses(SOURCES_CHANGED) as refused:
        check(a_view({0: 5}, x=a_topic({0: 1})), log)
    assert "holds offsets of the topics a, b, but the script reads t, x." in refused.value.problem
    with refuses(SOURCES_CHANGED, match=r"the script reads no topic\."):
        check(ClusterView(cluster_id="c", topics={}), log)


def test_topic_that_the_checkpoint_does_not_know_is_refused_with_its_partitions() -> None:
    with pytest.raises(PartitionSetError, match="more-0") as refused:
        check(a_view({0: 5}, more=a_topic({0: 1})), a_log({"t": {"0": 3}}))
    assert "of source 0 of query orders needs" in refused.value.problem
    assert "t-0" not in refused.value.problem


def test_source_that_its_checkpoint_does_not_name_yet_starts_where_its_options_say() -> None:
    log = offset_log.parse('v2\n{"conf":{}}\na:{"t":{"0":9}}')
    check(a_view({0: 5}), log, key="b")
    with refuses(OFFSET_BEYOND_END, match="of t-0 on source a of query orders"):
        check(a_view({0: 5}), log, key="a")


def test_source_that_came_with_the_planned_batch_is_checked_at_that_batchs_end_only() -> None:
    begun = offset_log.parse('v2\n{"conf":{}}\na:{"t":{"0":2}}')
    planned = offset_log.parse('v2\n{"conf":{}}\na:{"t":{"0":2}}\nb:{"t":{"0":4}}')
    check(a_view({0: 5}), begun, planned, key="b")
    with refuses(OFFSET_BEYOND_END):
        check(a_view({0: 3}), begun, planned, key="b")


def test_both_ends_of_the_planned_batch_must_lie_in_the_log() -> None:
    with refuses(OFFSET_BEYOND_END, match="Position 8 of t-0 on source 0 of query orders"):
        check(a_view({0: 5}), a_log({"t": {"0": 8}}), a_log({"t": {"0": 5}}))


def test_first_batch_of_a_query_is_checked_although_none_is_committed() -> None:
    check(a_view({0: 5}), None, a_log({"t": {"0": 5}}))
    with refuses(OFFSET_BEYOND_END):
        check(a_view({0: 4}), None, a_log({"t": {"0": 5}}))


def test_planned_batch_is_checked_like_the_committed_one() -> None:
    check(a_view({0: 5}), a_log({"t": {"0": 3}}), a_log({"t": {"0": 5}}))
    with refuses(OFFSET_BEYOND_END, match="Source 0 of query orders"):
        check(a_view({0: 4}), a_log({"t": {"0": 3}}), a_log({"t": {"0": 5}}))


def test_partition_that_came_with_the_planned_batch_is_no_difference() -> None:
    check(a_view({0: 5, 1: 9}), a_log({"t": {"0": 3}}), a_log({"t": {"0": 5, "1": 2}}), is_assigned=True)
    with pytest.raises(PartitionSetError, match="t-1"):
        check(a_view({0: 5, 1: 9}), a_log({"t": {"0": 3}}), a_log({"t": {"0": 5}}), is_assigned=True)


# --- what is not told -------------------------------------------------------------------------

_TOLD = ("x", None)


@pytest.mark.parametrize("topic_now", [*_TOLD, "y"])
@pytest.mark.parametrize("topic_then", _TOLD)
@pytest.mark.parametrize("cluster_now", [*_TOLD, "y"])
@pytest.mark.parametrize("cluster_then", _TOLD)
def test_only_ids_that_were_told_both_times_contradict_each_other(
    cluster_then: str | None, cluster_now: str | None, topic_then: str | None, topic_now: str | None
) -> None:
    view = ClusterView(cluster_id=cluster_now, topics={"t": a_topic({0: 5}, topic_now)})

    def run() -> SourceIdentity:
        return check(view, a_log({"t": {"0": 3}}), None, an_identity(cluster_then, t=topic_then))

    if (cluster_then, cluster_now) == ("x", "y"):
        with refuses(CLUSTER_MISMATCH):
            run()
    elif (topic_then, topic_now) == ("x", "y"):
        with pytest.raises(TopicRecreatedError):
            run()
    else:
        found = run()
        assert found == an_identity(cluster_now, t=topic_now), "what is told now is recorded"
        assert (found.blind_spot is None) == (None not in (cluster_now, topic_now))


def test_positions_are_still_held_against_the_log_of_a_cluster_that_tells_no_ids() -> None:
    view = ClusterView(cluster_id=None, topics={"t": a_topic({0: 5}, None)})
    with refuses(OFFSET_BEYOND_END):
        check(view, a_log({"t": {"0": 9}}), None, an_identity(None, t=None))


@pytest.mark.parametrize("zeros", ["", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA=="])
def test_zeros_and_empty_texts_are_no_ids_in_any_record(zeros: str) -> None:
    assert known_id(zeros) is None
    assert known_id(None) is None
    assert known_id("Ab_-9w") == "Ab_-9w"
    good = encode(an_identity(t="x"))
    assert decode(SourceIdentity, good) == an_identity(t="x")
    for bad in ({**good, "cluster_id": zeros}, {**good, "topic_ids": {"t": zeros}}):
        with pytest.raises(MismatchError, match="an id that Kafka gave"):
            decode(SourceIdentity, bad)


# --- what comes and goes by the source's own rules --------------------------------------------


def test_partitions_that_came_while_no_driver_ran_are_read_from_their_beginning_as_spark_does() -> None:
    check(a_view({0: 5, 1: 9}), a_log({"t": {"0": 3}}))
    check(a_view({0: 5, 1: 9}), a_log({"t": {"0": 3}}), follows_pattern=True)
    with pytest.raises(PartitionSetError, match="t-1"):
        check(a_view({0: 5, 1: 9}), a_log({"t": {"0": 3}}), is_assigned=True)


def test_partition_that_the_log_does_not_have_any_more_is_refused_whatever_the_rules() -> None:
    for rules in ({}, {"follows_pattern": True, "accepts_loss": True}, {"is_assigned": True}):
        with pytest.raises(PartitionSetError, match="t-1"):
            check(a_view({0: 5}), a_log({"t": {"0": 3, "1": 2}}), **rules)


def test_topic_that_joined_a_pattern_is_no_difference_and_its_id_is_recorded() -> None:
    view = a_view({0: 5}, us=a_topic({0: 4}, "id-us"))
    eu, both = a_log({"t": {"0": 3}}), a_log({"t": {"0": 3}, "us": {"0": 4}})
    for log in (eu, both):
        found = check(view, log, None, an_identity(t="id"), follows_pattern=True)
        assert found == an_identity(t="id", us="id-us")
        check(view, log, None, an_identity(t="id", us=None), follows_pattern=True)
    with pytest.raises(PartitionSetError):
        check(view, eu, None, an_identity(t="id"))
    with pytest.raises(TopicRecreatedError):
        check(view, both, None, an_identity(us="another"), follows_pattern=True)


def test_topic_of_a_pattern_that_is_gone_goes_on_where_its_script_accepts_the_loss() -> None:
    view, was = a_view({0: 5}), an_identity(t="id", us="id-us")
    log = a_log({"t": {"0": 3}, "us": {"0": 4}})
    with refuses(SOURCES_CHANGED, match="topics us") as refused:
        check(view, log, None, was, follows_pattern=True)
    assert "failOnDataLoss=false" in refused.value.remedy
    check(view, log, None, was, follows_pattern=True, accepts_loss=True)
    lost = loss_of("0", view, CheckpointPositions(committed=log, planned=None))
    assert lost is not None
    assert (lost.offsets, lost.topics) == (0, ("us",))
    # Once a batch has been planned without it, nothing of it is left to be read.
    check(view, a_log({"t": {"0": 3}}), None, was, follows_pattern=True)


def test_source_that_no_pattern_names_is_not_told_to_accept_a_loss() -> None:
    with refuses(SOURCES_CHANGED, match="topics us") as refused:
        check(a_view({0: 5}), a_log({"t": {"0": 3}, "us": {"0": 4}}))
    assert refused.value.remedy.endswith("or rename them in an offset rewrite.")
    with refuses(SOURCES_CHANGED, match="topics us") as refused:
        check(a_view({0: 5}), a_log({"t": {"0": 3}, "us": {"0": 4}}), follows_pattern=True)
    assert "in an offset rewrite; or, if they were deleted" in refused.value.remedy


def test_pattern_whose_topics_are_all_gone_goes_on_where_its_script_accepts_the_loss() -> None:
    gone = a_log({"us": {"0": 4}})
    check(a_view({0: 5}), gone, follows_pattern=True, accepts_loss=True)
    check(ClusterView(cluster_id="c", topics={}), gone, follows_pattern=True, accepts_loss=True)


def test_log_that_forgot_its_offsets_is_refused_with_those_of_the_batch_before() -> None:
    had = {"t": {"0": 7}}
    positions = CheckpointPositions(
        committed=a_log("{}", had), planned=None, before=a_log(had, {"u": {"0": 1}})
    )
    with refuses(SOURCES_CHANGED) as refused:
        check_source("orders", "0", a_view({0: 9}), expected=(), positions=positions)
    assert "holds no offsets, but the batch before had those of the topics t:" in refused.value.problem
    assert refused.value.state_after == "The query was not started; its checkpoint is as it was."
    assert refused.value.remedy.endswith('(ChangeSourcesOperator): {"t": {"0": 7}}.')
    check_source("orders", "1", a_view({0: 9}), expected=(), positions=positions)


def test_source_begins_behind_the_committed_batch_or_with_the_planned_one_that_brought_it() -> None:
    begun, then = a_log({"t": {"0": 1}}), a_log({"t": {"0": 5}}, {"u": {"0": 2}})
    both = CheckpointPositions(committed=begun, planned=then)
    assert both.offsets("0").by_topic == {"t": {0: 1}}
    assert both.offsets("1").by_topic == {"u": {0: 2}}
    assert both.offsets("2") == Offsets()
    assert CheckpointPositions(committed=None, planned=then).offsets("0").by_topic == {"t": {0: 5}}
    assert CheckpointPositions(committed=None, planned=None).offsets("0") == Offsets()
    assert both.lost("0") == Offsets()


def test_rules_are_those_of_the_source_s_options() -> None:
    def of(**options: str) -> SourceRules:
        return SourceRules.of(replace(a_source(0), options=options))

    assert of(subscribe="t") == SourceRules()
    assert of(subscribePattern=".*") == SourceRules(follows_pattern=True)
    assert of(assign="{}") == SourceRules(is_assigned=True)
    assert of(failOnDataLoss="false") == SourceRules(accepts_loss=True)


def test_pattern_without_topics_has_no_offsets_and_starts() -> None:
    empty = ClusterView(cluster_id="c", topics={})
    assert check(empty, a_log("{}"), None, an_identity(), follows_pattern=True) == an_identity()
    check(a_view({0: 5}), a_log("{}"), None, an_identity(), follows_pattern=True)


@pytest.mark.parametrize("planned", [None, 9])
def test_records_that_are_deleted_are_refused_or_left_out_and_counted(planned: int | None) -> None:
    view = ClusterView(cluster_id="c", topics={"t": a_topic({0: 20}, start=7)})
    begun, then = a_log({"t": {"0": 4}}), None if planned is None else a_log({"t": {"0": planned}})
    with refuses(OFFSET_BEFORE_START):
        check(view, begun, then)
    check(view, begun, then, accepts_loss=True)
    lost = loss_of("0", view, CheckpointPositions(committed=begun, planned=then))
    assert lost is not None
    assert (lost.offsets, lost.topics) == (3, ())
    assert str(lost) == "3 offsets deleted before they were read (accepted by failOnDataLoss=false)"
    with refuses(OFFSET_BEYOND_END):
        check(view, a_log({"t": {"0": 21}}), accepts_loss=True)


def test_offsets_are_read_from_the_newest_commit_and_the_batch_after_it() -> None:
    store = MemoryStore()
    for batch in range(3):
        store.write(f"offsets/{batch}", a_log({"t": {"0": batch}}).render().encode())
    store.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    store.write("commits/1", b'v1\n{"nextBatchWatermarkMs":0}')
    positions = read_positions(store)
    assert positions.committed == a_log({"t": {"0": 1}})
    assert positions.planned == a_log({"t": {"0": 2}})
    assert read_positions(MemoryStore()) == CheckpointPositions(committed=None, planned=None)
    store.write("commits/2", b'v1\n{"nextBatchWatermarkMs":0}')
    assert read_positions(store) == CheckpointPositions(committed=a_log({"t": {"0": 2}}), planned=None)


def test_what_a_log_without_partitions_had_before_is_found() -> None:
    store = MemoryStore()
    had, nothing = a_log({"t": {"0": 7}}), replace(a_log({"t": {"0": 7}}), sources={"0": "{}"})
    for batch, log in enumerate((had, nothing)):
        store.write(f"offsets/{batch}", log.render().encode())
    store.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    assert read_positions(store).lost("0").by_topic == {"t": {0: 7}}, "planned"
    store.write("commits/1", b'v1\n{"nextBatchWatermarkMs":0}')
    assert read_positions(store).lost("0").by_topic == {"t": {0: 7}}, "committed"
    store.write("offsets/0", nothing.render().encode())
    assert read_positions(store).lost("0") == Offsets(), "a pattern that no topic has matched yet"


def test_first_planned_batch_is_pending_though_nothing_is_committed() -> None:
    store = MemoryStore()
    store.write("offsets/0", a_log({"t": {"0": 7}}).render().encode())
    assert read_positions(store) == CheckpointPositions(committed=None, planned=a_log({"t": {"0": 7}}))


def a_source(position: int, name: str | None = None) -> StreamingSource:
    return StreamingSource(position=position, name=name, provider="kafka", options={})


def test_renamed_source_is_refused_where_adding_one_is_not() -> None:
    log = offset_log.parse('v2\n{"conf":{}}\na:{"t":{"0":1}}')
    positions = CheckpointPositions(committed=log, planned=None)
    require_same_sources("q", [a_source(0, "a"), a_source(1, "b")], positions)
    with refuses(SOURCES_CHANGED, match=r"\['a'\].*\['b'\]"):
        require_same_sources("q", [a_source(0, "b")], positions)
    require_same_sources("q", [], positions)


def test_other_number_of_sources_is_refused_where_sources_have_no_names() -> None:
    positions = CheckpointPositions(committed=a_log({"t": {"0": 1}}, {"u": {"0": 1}}), planned=None)
    require_same_sources("q", [a_source(0), a_source(1)], positions)
    for found in (1, 3):
        with refuses(SOURCES_CHANGED) as refused:
            require_same_sources("q", [a_source(n) for n in range(found)], positions)
        assert f"read 2 sources like its checkpoint, found {found} in the script" in refused.value.problem
        assert refused.value.state_after == "The query was not started; its checkpoint is as it was."
        assert "ChangeSourcesOperator" in refused.value.remedy
    require_same_sources("q", [a_source(0)], CheckpointPositions(committed=None, planned=None))


def test_sources_of_the_planned_batch_count_and_not_those_before_it() -> None:
    before, now = a_log({"t": {"0": 1}}), a_log({"t": {"0": 1}}, {"u": {"0": 1}})
    positions = CheckpointPositions(committed=before, planned=now)
    require_same_sources("q", [a_source(0), a_source(1)], positions)
    with refuses(SOURCES_CHANGED, match="2 sources like its checkpoint, found 1"):
        require_same_sources("q", [a_source(0)], positions)
