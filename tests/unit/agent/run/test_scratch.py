from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.run import scratch
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from tests.unit.agent.conftest import G1, G2
from tests.unit.agent.drivers import SmallDriver
from tests.unit.agent.job_queries import a_query_of_two_batches
from tests.unit.agent.views import a_view

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.unit.clocks import SleptClock as Clock


def test_copy_on_another_cluster_reads_the_newest_records_that_are_there():
    """Partitions that it has not read are read, and those that are not there are not."""
    copy = a_query_of_two_batches(committed=2)
    scratch.read_newest(lambda _source: a_view({1: 100, 2: 3}), copy, records=20)
    log = offset_log.parse(copy.checkpoint.read("offsets/1").decode())
    assert log.kafka_offsets("0") == {("t", 1): 90, ("t", 2): 0}


def test_copies_stand_beside_the_checkpoint_and_never_among_its_queries():
    assert scratch.location_of("s3://bucket/checkpoints-2/") == "s3://bucket/checkpoints-2.rehearsal"


def test_drill_that_is_under_way_keeps_its_copy_when_another_run_takes_the_job_over(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """Else it fails, and says that the savepoint is not to be relied on."""
    drill = SmallDriver(tmp_path, clock=clock, rehearse=Rehearse(only=True))
    beat = drill.heartbeat_writer
    beat.beat("starting")
    new = SmallDriver(tmp_path, board=drill.board, generation=G2, clock=clock, rehearse=Rehearse())
    now_s, lease_s, removed = clock.now_s, drill.claim.lease_s, {}
    for after in range(1, 4):
        clock.at[now_s + after * lease_s * 0.9] = beat.beat
    clock.at[now_s + 4 * lease_s * 0.9] = lambda: beat.end("closed")
    monkeypatch.setattr(scratch, "remove", lambda _spark, place: removed.setdefault(place, clock.now_s))
    scratch.remove_left(new.spark, new.board, new.driver_run)
    assert list(removed) == [scratch.location_of(one.claim.checkpoint_location) for one in (drill, new)]
    assert removed[scratch.location_of(drill.claim.checkpoint_location)] >= now_s + 4 * lease_s * 0.9
    assert drill.driver_run.generation == G1
