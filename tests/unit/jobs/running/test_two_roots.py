"""Two roots with a job of one name, and one place for checkpoints and logs; and a job that is begun anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.found import jobs_below
from airflow_flinkstyle.protocol.board import ROOT_KEY
from airflow_flinkstyle.protocol.errors import ROOT_COPIED
from airflow_flinkstyle.types import Generation
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.unit.jobs.conftest import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def other(world: World, tmp_path: Path) -> Iterator[World]:
    other = World(tmp_path, store=MemoryStore("production"))
    yield other
    other.kill_all()


def test_jobs_of_one_name_below_two_roots_share_neither_checkpoint_nor_log(
    world: World, other: World
) -> None:
    """Each counts every record of its own log: in one folder they would write one another's batches."""
    world.start()
    other.start()
    claims = [one.board.claim(Generation(1)) for one in (world, other)]
    assert len({claim.checkpoint_location for claim in claims if claim}) == 2
    assert len({one.submissions[0].log_path for one in (world, other)}) == 2
    world.judge()
    other.judge()


def test_job_whose_records_were_deleted_begins_anew_and_not_where_it_was(world: World) -> None:
    first = world.start(records=30)
    first.requests.stop("stop", savepoint=False, timeout_s=10)
    for info in list(world.store.list(f"{world.job}/")):
        world.store.delete(info.key)
    world.logs.counted.clear()
    again = world.client()
    handle = again.starts.start(world.spec(), world.target(), claim_key="start")
    again.drivers.wait_running(handle.generation, timeout_s=10)
    world.until(lambda: len(world.logs.counted) == 30)
    world.until(lambda: world.board.heartbeat(handle.generation).value.batches() == {"orders": 0})
    world.judge()


def test_start_below_a_root_that_was_copied_by_hand_claims_nothing(world: World, other: World) -> None:
    world.start()
    other.store.write(ROOT_KEY, world.store.read(ROOT_KEY))
    with refuses(ROOT_COPIED):
        other.client().starts.start(other.spec(), other.target(), claim_key="start")
    assert other.board.generations() == []


def test_identity_of_a_root_is_no_job(world: World) -> None:
    world.start()
    assert list(jobs_below(world.store)) == [world.job]
