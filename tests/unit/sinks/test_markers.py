"""What a sink tells of the markers that a batch has written."""

from __future__ import annotations

from airflow_flinkstyle.sinks.foreach_batch import summed_up, with_markers
from airflow_flinkstyle.sinks.resume import SinkState
from airflow_flinkstyle.sinks.shard import ShardWritten

STATE = SinkState(
    lineage="out",
    shards=2,
    control_topic="out.internal",
    cluster_id="new",
    completed_batch=4,
    markers={0: 4, 1: 4},
)


def test_batch_that_spark_knows_to_be_empty_leaves_the_markers_of_the_batch_before():
    written = summed_up(5, [])
    assert (written.records, written.marked) == (0, ())
    assert with_markers(STATE, written).markers == {0: 4, 1: 4}


def test_batch_of_all_shards_moves_every_marker_though_one_of_them_had_no_row():
    results = [
        ShardWritten(shard=1, records=0, skipped=False),
        ShardWritten(shard=0, records=3, skipped=True),
    ]
    written = summed_up(5, results)
    assert (written.records, written.skipped_shards, written.marked) == (3, 1, (0, 1))
    assert with_markers(STATE, written).markers == {0: 5, 1: 5}
