"""Positions of a savepoint beside live logs, groups and other savepoints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.lag import (
    Distance,
    PartitionLag,
    distances_between,
    distances_to,
    partition_lags,
)
from airflow_flinkstyle.types import NextOffset
from tests.unit.rewrite.shop import Shop, a_position, a_view

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.savepoint.manifest import Manifest


def on_old(view: ClusterView) -> ClusterView:
    return replace(view, cluster_id="old")


def of_orders(found: list[PartitionLag]) -> dict[int, PartitionLag]:
    return {one.partition: one for one in found if one.topic == "orders"}


def test_lag_is_told_on_the_cluster_that_was_looked_at_and_nothing_on_others():
    found = partition_lags(Shop().manifest, [on_old(a_view({0: 1055, 1: 2040}, topic_id="t-old"))])
    assert {number: one.behind for number, one in of_orders(found).items()} == {0: 5, 1: 0}
    assert [one.trouble for one in found] == [None, None, None]
    (other,) = (one for one in found if one.topic == "other")
    assert (other.offset, other.log, other.behind) == (9, None, None)


@pytest.mark.parametrize(
    ("view", "troubles"),
    [
        (a_view({0: 5000, 1: 5000}, topic_id="t-old", start=1100), {0: "deleted", 1: None}),
        (a_view({0: 1049, 1: 5000}, topic_id="t-old"), {0: "beyond the end", 1: None}),
        (a_view({0: 5000, 1: 5000}, topic_id="t-2"), {0: "topic recreated", 1: "topic recreated"}),
        (a_view({0: 5000}, topic_id="t-old"), {0: None, 1: "partition gone"}),
        (a_view({0: 5000, 1: 5000, 2: 3}, topic_id="t-old"), {0: None, 1: None, 2: "partition new"}),
        (a_view(topic="unasked"), {0: "topic gone", 1: "topic gone"}),
    ],
)
def test_each_thing_that_the_start_guard_would_refuse_is_named(
    view: ClusterView, troubles: dict[int, str | None]
):
    found = of_orders(partition_lags(Shop().manifest, [on_old(view)]))
    assert {number: one.trouble for number, one in found.items()} == troubles


def test_deleted_records_are_counted_and_offsets_of_another_log_are_not():
    (gone, _) = of_orders(
        partition_lags(Shop().manifest, [on_old(a_view({0: 5000, 1: 5000}, topic_id="t-old", start=1100))])
    ).values()
    assert (gone.deleted, gone.behind) == (50, 3950)
    (other, _) = of_orders(
        partition_lags(Shop().manifest, [on_old(a_view({0: 5000, 1: 5000}, topic_id="t-2", start=1100))])
    ).values()
    assert (other.deleted, other.behind) == (0, None)


def test_distance_to_a_group_is_none_for_sources_on_a_cluster_that_was_not_read():
    group = Offsets.of({"orders": {0: NextOffset(1000), 7: NextOffset(1)}, "other": {0: NextOffset(10)}})
    found = distances_to(Shop().manifest, [(on_old(a_view(topic_id="t-old")), group)])
    assert [(one.topic, one.partition, one.behind) for one in found] == [
        ("orders", 0, -50),
        ("orders", 1, None),
        ("other", 0, None),
    ]


def test_offsets_of_a_topic_that_was_created_again_are_not_subtracted():
    group = Offsets({("orders", 0): NextOffset(9)})
    found = distances_to(Shop().manifest, [(on_old(a_view(topic_id="t-2")), group)])
    assert [one.behind for one in found] == [None, None, None]


def later(manifest: Manifest, *, cluster_id: str = "old") -> Manifest:
    (query,) = manifest.queries
    position = a_position({"orders": {0: 1060, 2: 5}}, cluster_id)
    return replace(manifest, queries=(replace(query, kafka={**query.kafka, "0": position}),))


def behind(found: list[Distance]) -> dict[tuple[str, int], int | None]:
    return {(one.topic, one.partition): one.behind for one in found}


def test_distance_between_savepoints_is_told_per_source_where_both_have_the_partition():
    one = Shop().manifest
    found = behind(distances_between(one, later(one)))
    assert found == {("orders", 0): 10, ("orders", 1): None, ("orders", 2): None, ("other", 0): 0}


def test_offsets_of_two_clusters_are_not_subtracted():
    one = Shop().manifest
    assert behind(distances_between(one, later(one, cluster_id="new")))["orders", 0] is None
