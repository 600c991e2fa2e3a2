from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.run import scratch
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.errors import PlaceOccupiedError
from airflow_flinkstyle.protocol.places import MARK_KEY, own_place
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from tests.unit.agent.conftest import G1, G2
from tests.unit.agent.drivers import SmallDriver
from tests.unit.agent.job_queries import a_query_of_two_batches
from tests.unit.agent.views import a_view

if TYPE_CHECKING:
    from tests.unit.clocks import SleptClock as Clock


def test_copy_on_another_cluster_reads_the_newest_records_that_are_there():
    """Partitions that it has not read are read, and those that are not there are not."""
    copy = a_query_of_two_batches(committed=2)
    scratch.read_newest(lambda _source: a_view({1: 100, 2: 3}), copy, records=20)
    log = offset_log.parse(copy.checkpoint.read("offsets/1").decode())
    assert log.kafka_offsets("0") == {("t", 1): 90, ("t", 2): 0}


def test_copies_stand_beside_the_checkpoint_and_never_among_its_queries():
    assert scratch.location_of("s3://bucket/checkpoints-2/") == "s3://bucket/checkpoints-2.rehearsal"


def place_of(driver: SmallDriver) -> Path:
    return Path(scratch.location_of(driver.claim.checkpoint_location))


def test_copies_of_a_driver_that_was_killed_are_removed_and_a_place_of_another_job_is_left(tmp_path: Path):
    driver = SmallDriver(tmp_path)
    for _ in range(2):  # the first one is killed over its copy
        with scratch.own_scratch(driver) as location:
            assert [path.name for path in Path(location).iterdir()] == [MARK_KEY]
            (Path(location) / "orders").mkdir()
            with suppress(SystemExit):
                raise SystemExit
    assert not place_of(driver).exists()
    other = SmallDriver(tmp_path, board=JobBoard(MemoryStore("production"), "orders"))
    with scratch.own_scratch(other) as location:
        (Path(location) / "orders").mkdir()
        with pytest.raises(PlaceOccupiedError, match="of job orders of root"), scratch.own_scratch(driver):
            raise AssertionError
        scratch.remove_leftovers(driver.spark, driver.board, driver.driver_run)
        assert (Path(location) / "orders").exists()


def test_mark_of_a_scratch_place_is_the_last_that_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A driver that is killed while it removes a copy must find the place its own afterwards."""
    driver = SmallDriver(tmp_path)
    with scratch.own_scratch(driver) as location:
        (Path(location) / "orders").mkdir()
        (Path(location) / "other").mkdir()
        gone = []
        delete = driver.spark.delete
        monkeypatch.setattr(driver.spark, "delete", lambda path: (gone.append(path), delete(path)))
    assert {path.name for path in gone[:-1]} == {"orders", "other"}
    assert gone[-1] == Path(location)


def test_drill_that_is_under_way_keeps_its_copy_when_another_run_takes_the_job_over(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """Else it fails, and says that the savepoint is not to be relied on."""
    drill = SmallDriver(tmp_path, clock=clock, rehearse=Rehearse(only=True))
    beat = drill.heartbeat_writer
    beat.beat("starting")
    new = SmallDriver(tmp_path, board=drill.board, generation=G2, clock=clock, rehearse=Rehearse())
    for one in (drill, new):
        own_place(LocalStore(place_of(one)), one.board, one.driver_run.generation)
    now_s, lease_s, removed = clock.now_s, drill.claim.lease_s, {}
    for after in range(1, 4):
        clock.at[now_s + after * lease_s * 0.9] = beat.beat
    clock.at[now_s + 4 * lease_s * 0.9] = lambda: beat.end("closed")
    monkeypatch.setattr(new.spark, "remove", lambda place, **_: removed.setdefault(place, clock.now_s))
    scratch.remove_leftovers(new.spark, new.board, new.driver_run)
    assert list(removed) == [scratch.location_of(one.claim.checkpoint_location) for one in (drill, new)]
    assert removed[scratch.location_of(drill.claim.checkpoint_location)] >= now_s + 4 * lease_s * 0.9
    assert drill.driver_run.generation == G1
