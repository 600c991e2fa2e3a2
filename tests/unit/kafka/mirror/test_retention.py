"""Which records a target would delete before the job has read them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicSettings, TopicView
from airflow_flinkstyle.kafka.mirror.retention import RetentionFinding, cutoffs_of, findings_of, older_than
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset

NOW_MS = 1_000_000_000


def some_settings(**changed: Any) -> TopicSettings:
    given = {"compacted": False, "deletes": True, "retention_ms": 7_000, "retention_bytes": -1}
    return TopicSettings(**{**given, "log_append_time": False, **changed})


def a_view(**ranges: tuple[int, int]) -> ClusterView:
    topics = {
        topic: TopicView(
            topic_id=topic,
            partitions={
                0: LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(end))
            },
        )
        for topic, (start, end) in ranges.items()
    }
    return ClusterView(cluster_id="old", topics=topics)


def test_records_count_as_deleted_that_expire_within_the_margin():
    new = {"there": some_settings(retention_ms=7_000), "b": some_settings(retention_ms=0)}
    found = cutoffs_of({"a": "there", "b": "b"}, new, now_ms=NOW_MS, margin_s=2.5)
    assert found == {"a": NOW_MS + 2_500 - 7_000, "b": NOW_MS + 2_500}


@pytest.mark.parametrize("changed", [{"deletes": False}, {"log_append_time": True}, {"retention_ms": -1}])
def test_topic_that_deletes_nothing_by_the_records_own_time_endangers_none(changed: dict[str, Any]):
    new = {"a": some_settings(**changed), "b": some_settings()}
    assert cutoffs_of({"a": "a", "b": "b"}, new, now_ms=NOW_MS, margin_s=0).keys() == {"b"}


@pytest.mark.parametrize(
    ("position", "log_range", "kept_from", "count"),
    [
        (10, (0, 50), 30, 20),
        (10, (0, 50), None, 40),  # all of it is too old
        (10, (20, 50), 30, 10),  # what the source has deleted already is nobody's loss now
        (40, (0, 50), 30, -10),  # read already
    ],
)
def test_offsets_from_the_position_on_are_counted_up_to_the_first_that_is_kept(
    position: int, log_range: tuple[int, int], kept_from: int | None, count: int
):
    view = a_view(other=(0, 9), t=log_range)
    expected = {("t", 0): count, ("other", 0): 3}
    found = older_than(
        Offsets({("gone", 0): 5, ("t", 0): position, ("other", 0): 1}),
        view,
        {
            ("gone", 0): 5,
            ("t", 0): kept_from,
            ("other", 0): 4,
        },
    )
    assert found == expected


def test_each_topic_is_told_with_the_partitions_that_would_lose_records():
    names = {"a": "there", "b": "b", "c": "c"}
    old = dict.fromkeys(names, some_settings(retention_ms=-1))
    new = dict.fromkeys(names.values(), some_settings())
    expiring = {("a", 0): 5, ("a", 1): 1, ("a", 2): 0, ("a", 3): -4, ("b", 0): 0, ("c", 7): 2}
    first, second = findings_of(names, old, new, expiring)
    assert first == RetentionFinding(
        topic="a",
        target_topic="there",
        setting="retention.ms",
        source_value=-1,
        target_value=7_000,
        endangered={0: 5, 1: 1},
    )
    assert (second.topic, second.endangered) == ("c", {7: 2})


@pytest.mark.parametrize(
    ("source", "target", "smaller"),
    [(-1, -1, False), (-1, 10, True), (10, -1, False), (10, 9, True), (10, 10, False), (10, 11, False)],
)
def test_target_that_keeps_fewer_bytes_is_told_without_partitions(source: int, target: int, smaller: bool):
    old = {"t": some_settings(retention_bytes=source)}
    found = findings_of({"t": "t"}, old, {"t": some_settings(retention_bytes=target)}, {})
    expected = RetentionFinding(
        topic="t",
        target_topic="t",
        setting="retention.bytes",
        source_value=source,
        target_value=target,
        endangered={},
    )
    assert found == ((expected,) if smaller else ())
    compacted = some_settings(retention_bytes=target, deletes=False)
    assert findings_of({"t": "t"}, old, {"t": compacted}, {}) == ()


def test_finding_says_what_would_be_lost_where_and_what_to_raise():
    old, new = {"a": some_settings(retention_bytes=-1)}, {"there": some_settings(retention_bytes=9)}
    by_time, by_size = findings_of({"a": "there"}, old, new, {("a", 1): 4, ("a", 0): 5})
    assert by_time.describe() == (
        "Topic there has retention.ms=7000 on the target (source: 7000), which would delete mirrored records "
        "the job has not read (offsets by partition: 0: 5, 1: 4). Raise retention.ms on both clusters "
        "(MirrorMaker copies topic settings from the source) until the job has caught up."
    )
    assert "(offsets by partition: not known)" in by_size.describe()
