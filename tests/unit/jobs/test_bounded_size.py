"""However often a job is stopped, started and upgraded, it keeps a bounded amount."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.retention import prune_job
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.jobs.usage import usage_of
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.savepoint.repository.summary import newest_summary
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.storage.local import LocalStore
from testbed.keys import SIGNER
from tests.unit.jobs.cutovers import QUICK

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

_STATE_BYTES = 200_000
_CYCLES, _UPGRADE_EVERY = 100, 5


def run_a_while(world: World, generation: int, chance: random.Random) -> None:
    """Commit batches, which change all of the state."""
    world.logs.produce(3)
    world.until(lambda: world.board.heartbeat(generation).value.has_committed)
    checkpoint = LocalStore(Path(world.board.claim(generation).checkpoint_location) / "orders")
    for old in list(checkpoint.list("sources/0/")):
        checkpoint.delete(old.key)
    # Under a new name, as Spark writes every version of its state.
    checkpoint.write(f"sources/0/{chance.randbytes(8).hex()}", chance.randbytes(_STATE_BYTES))


def upgrade(world: World, number: int) -> int:
    report = Upgrade(
        client=world.client(),
        journal=CutoverJournal(world.store, world.job, f"u{number}", UPGRADE_PHASES, signer=SIGNER),
        spec=world.spec("v2.py"),
        target=world.target(),
        settings=replace(QUICK, first_commit_timeout_s=0.2),
    ).run()
    return report.generation


def rotate(world: World) -> None:
    """Verify the newest savepoint and prune, as the rotation does after each stop."""
    newest = newest_summary(world.repository)
    assert newest is not None
    check_savepoint(world.repository, newest.savepoint_id, level="quick", by="t")
    policy = RetentionPolicy(max_count=1)
    prune_job(world.board, world.repository, policy, holder="t", wait_s=5, signer=SIGNER)


@pytest.mark.nightly
def test_after_100_stops_and_starts_and_20_upgrades_the_stores_hold_three_times_the_state(world: World):
    chance, client = random.Random(1), world.client()  # noqa: S311 - no secret
    world.start()
    generation, largest = 1, 0
    for number in range(1, _CYCLES + 1):
        run_a_while(world, generation, chance)
        if number % _UPGRADE_EVERY == 0:
            generation = upgrade(world, number)
            run_a_while(world, generation, chance)
        saved = client.requests.stop(f"stop {number}", savepoint=True, timeout_s=10).savepoint_id
        world.until(lambda: world.alive() == [])
        rotate(world)
        largest = max(largest, usage_of(world.board, world.repository).total_bytes)
        origin = FromSavepoint(savepoint_id=saved)
        handle = client.starts.start(world.spec(), world.target(), claim_key=f"start {number}", origin=origin)
        generation = client.drivers.wait_running(handle.generation, timeout_s=10).run.generation
    run_a_while(world, generation, chance)
    client.requests.wait(client.requests.request_savepoint("while it runs"), timeout_s=10)
    rotate(world)
    usage = usage_of(world.board, world.repository)
    assert generation == 1 + _CYCLES + _CYCLES // _UPGRADE_EVERY
    assert largest <= 3 * _STATE_BYTES + 50_000
    assert usage.total_bytes <= 3 * _STATE_BYTES + 50_000
    assert len(usage.references) <= 2
    assert [one.generations for one in usage.checkpoints] == [(generation,)]
    world.judge()
