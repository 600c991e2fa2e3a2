"""What a shard's marker tells of it."""

from __future__ import annotations

from airflow_flinkstyle.sinks.marker import Marker

MARKER = Marker(batch_id=3, records=5, digest=77, plan="4-columns-of-topic", run="run 1")


def test_same_columns_are_those_of_any_number_of_shards_and_of_no_other_topic():
    assert MARKER.same_columns("12-columns-of-topic")
    assert not MARKER.same_columns("4-columns-of-other")
    assert not MARKER.same_columns("4-columns")
