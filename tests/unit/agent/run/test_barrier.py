from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.agent.core.errors import BARRIER_BEHIND, BARRIER_UNREACHABLE
from airflow_flinkstyle.agent.core.run.barrier import HeldQuery, plan_batch
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.errors import CHECKPOINT_UNSUPPORTED
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.protocol.cuts import furthest
from airflow_flinkstyle.protocol.query_records import SourceIdentity
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.refusals import refuses
from tests.declared import AS_BEFORE
from tests.small_spark import SmallSpark, SmallStart, queries_at

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER = '{"batchWatermarkMs":700,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"2"}}'
V1 = f'v1\n{HEADER}\n{{"orders":{{"1":20,"0":10}}}}\n{{"logOffset":4}}'
V2 = f'v2\n{HEADER}\nrate:{{"logOffset":4}}\norders in:{{"orders":{{"0":10,"1":20}}}}'


def a_view(ends: Mapping[int, int], *, stable: int | None = None, cluster_id: str = "c1") -> ClusterView:
    logs = {
        number: LogRange(
            start=NextOffset(0),
            end=NextOffset(end),
            last_stable=NextOffset(end if stable is None else stable),
        )
        for number, end in ends.items()
    }
    return ClusterView(cluster_id=cluster_id, topics={"orders": TopicView(topic_id="t1", partitions=logs)})


def a_held_query(text: str = V1, source: str = "0", view: ClusterView | None = None) -> HeldQuery:
    return HeldQuery(
        query="counts",
        batch_id=BatchId(7),
        log=offset_log.parse(text),
        next_watermark_ms=900,
        views={source: view or a_view({0: 100, 1: 100})},
    )


def places(*offsets: int, cluster_id: str = "c1") -> dict[tuple[str, str, int], NextOffset]:
    return {(cluster_id, "orders", number): NextOffset(offset) for number, offset in enumerate(offsets)}


@pytest.mark.parametrize(("text", "source"), [(V1, "0"), (V2, "orders in")])
def test_batch_ends_at_the_barrier_and_leaves_every_other_source_where_it_is(text: str, source: str):
    planned = plan_batch(a_held_query(text, source), places(15, 20))
    assert planned is not None
    assert planned.kafka_offsets(source).by_topic == {"orders": {0: 15, 1: 20}}
    assert (planned.version, planned.confs) == (int(text[1]), {"spark.sql.shuffle.partitions": "2"})
    before = offset_log.parse(text).sources
    assert [planned.sources[key] == raw for key, raw in before.items()].count(True) == 1
    assert list(planned.sources) == list(before)


def test_batch_carries_the_watermark_of_the_last_commit_as_spark_does():
    planned = plan_batch(a_held_query(), places(15, 20))
    assert planned is not None
    assert planned.watermark_ms == 900
    assert planned.timestamp_ms > 1


def test_query_at_the_barrier_needs_no_batch():
    assert plan_batch(a_held_query(), places(10, 20)) is None
    assert plan_batch(a_held_query(), {}) is None
    assert plan_batch(a_held_query(), places(50, 50, cluster_id="another")) is None


def test_batch_that_spark_could_not_start_on_is_refused():
    without = V2.replace('"conf":{"spark.sql.shuffle.partitions":"2"}', '"conf":{}')
    with refuses(CHECKPOINT_UNSUPPORTED, match=r"cannot start with a planned batch"):
        plan_batch(a_held_query(without, "orders in"), places(15, 20))
    assert plan_batch(a_held_query(without, "orders in"), places(10, 20)) is None


@pytest.mark.parametrize("keys", [("0", "alpha"), ("alpha",)])
def test_named_source_is_known_by_its_position_until_its_log_is_there(keys: tuple[str, ...]):
    source = StreamingSource(position=0, name="alpha", provider="kafka", options={})
    query = queries_at("/checkpoints").register("counts", SmallStart(SmallSpark()), (source,), AS_BEFORE)
    query.identities = {key: SourceIdentity(cluster_id=key, topic_ids={}) for key in keys}
    assert query.identity(source, 2).cluster_id == keys[-1]
    query.identities = {"0": SourceIdentity(cluster_id="0", topic_ids={})}
    assert query.identity(source, 2).cluster_id == "0"


def test_partition_that_only_another_query_has_seen_is_read_to_the_barrier():
    held = a_held_query(view=a_view({0: 100, 1: 100, 2: 100}))
    planned = plan_batch(held, places(10, 20, 5))
    assert planned is not None
    assert planned.kafka_offsets("0").by_topic == {"orders": {0: 10, 1: 20, 2: 5}}


def test_barrier_in_partitions_the_query_does_not_subscribe_to_is_left_out():
    held = a_held_query(view=a_view({0: 100, 1: 100}))
    planned = plan_batch(held, places(11, 20, 5))
    assert planned is not None
    assert planned.kafka_offsets("0").by_topic == {"orders": {0: 11, 1: 20}}


def test_barrier_behind_a_query_is_refused():
    with refuses(BARRIER_BEHIND, match=r"offset 9 of orders-0 was expected .* found it at 10") as error:
        plan_batch(a_held_query(), places(9, 30))
    assert "Nothing was written" in error.value.state_after


@pytest.mark.parametrize(("end", "stable"), [(100, 40), (40, None)])
def test_barrier_beyond_what_can_be_read_is_refused(end: int, stable: int | None):
    held = a_held_query(view=a_view({0: end, 1: 100}, stable=stable))
    with refuses(BARRIER_UNREACHABLE, match="can be read up to 40 only"):
        plan_batch(held, places(41, 20))


OFFSETS = st.tuples(st.integers(0, 100), st.integers(0, 100))


@given(st.lists(OFFSETS, min_size=1, max_size=4))
def test_all_queries_reach_the_furthest_position_of_them(all_offsets: list[tuple[int, int]]):
    all_held = [
        a_held_query(V1.replace('"1":20,"0":10', f'"1":{second},"0":{first}'))
        for first, second in all_offsets
    ]
    barrier = furthest(held.places() for held in all_held)
    for held in all_held:
        planned = plan_batch(held, barrier)
        end = (planned or held.log).kafka_offsets("0")
        assert end == {(topic, number): at for (_, topic, number), at in barrier.items()}


def test_end_of_the_inputs_is_what_can_be_read_now():
    assert a_held_query(view=a_view({0: 100, 1: 90}, stable=60)).ends() == places(60, 60)
