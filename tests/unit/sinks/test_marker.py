"""What a shard's marker tells of it."""

from __future__ import annotations

from airflow_flinkstyle.sinks.marker import Marker

MARKER = Marker(batch_id=3, records=5, digest=77, plan="4-columns-of-topic", run="run 1")


def test_run_that_claims_a_shard_changes_neither_what_was_written_nor_its_columns():
    claimed = MARKER.claimed(shards=12, run="run 2")
    assert (claimed.shards, claimed.run) == (12, "run 2")
    assert claimed.same_columns(MARKER.plan)
    assert (claimed.batch_id, claimed.records, claimed.digest) == (3, 5, 77)


def test_same_columns_are_those_of_any_number_of_shards_and_of_no_other_topic():
    assert MARKER.same_columns("12-columns-of-topic")
    assert not MARKER.same_columns("4-columns-of-other")
    assert not MARKER.same_columns("4-columns")
