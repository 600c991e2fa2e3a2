"""What a caller makes of a first start whose driver found a checkpoint of plain Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks.failures import in_a_block
from airflow_flinkstyle.jobs.errors import BEGINS_ANEW
from airflow_flinkstyle.jobs.spec import launch_of
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch
from airflow_flinkstyle.types import Generation
from testbed.refusals import refuses

if TYPE_CHECKING:
    from airflow_flinkstyle.errors import FlinkstyleError
    from tests.unit.jobs.conftest import Mood, World

OWN = "s3a://shop/checkpoints/orders"


def started(world: World, key: str, *left: str) -> int:
    client = world.client()
    spec = replace(world.spec(), leave_checkpoints=left)
    handle = client.starts.start(spec, world.target(), claim_key=key)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    return handle.generation


@pytest.fixture
def refused(world: World, mood: type[Mood]) -> FlinkstyleError:
    """Begin a job of plain Spark for the first time."""
    world.moods["v1.py"] = mood(own_checkpoint=OWN)
    world.logs.produce(10)
    with refuses(BEGINS_ANEW) as error:
        started(world, "first")
    return error.value


def test_refusal_has_the_drivers_own_headline_and_is_final(world: World, refused: FlinkstyleError):
    assert refused.code == "CHECKPOINT_FOUND"
    assert not refused.retryable
    first, now, following = in_a_block(refused).splitlines()
    assert first.startswith("CHECKPOINT_FOUND: Query orders of job orders-job was expected to begin where no")
    assert f"{OWN}, which its script names: batch 17 committed" in first
    assert now == "Now: No record was read and nothing was written; that checkpoint is as it was."
    assert f"`flinkstyle job adopt --job orders-job --checkpoint orders={OWN}`" in following
    assert f"leave_checkpoints=['{OWN}']" in following
    assert world.alive() == []
    with refuses(BEGINS_ANEW):
        world.client().drivers.ensure_running()
    assert len(world.submissions) == 1


def test_same_task_starts_anew_once_the_checkpoint_is_named(world: World, refused: FlinkstyleError):
    with refuses(BEGINS_ANEW):
        started(world, "first", "s3a://shop/checkpoints", "yes")
    assert started(world, "first", "s3a://shop/checkpoints/another", OWN) == 3
    assert started(world, "first", OWN) == 3  # a retry finds it
    world.judge()


def test_refused_start_is_no_history(world: World, refused: FlinkstyleError):
    assert world.board.current() is None
    assert started(world, "another", OWN) == 2
    world.judge()


def test_what_is_left_behind_is_one_starts_choice(world: World, refused: FlinkstyleError):
    generation = started(world, "again", OWN)
    claim = world.board.claim(generation)
    assert claim is not None
    assert claim.leave_checkpoints == (OWN,)
    spec, target = recorded_launch(world.client().view)
    assert spec.leave_checkpoints == ()
    assert launch_of(replace(spec, leave_checkpoints=(OWN,)), target) == launch_of(spec, target)


def test_words_of_another_version_of_the_driver_are_shown_as_they_are(world: World, refused: FlinkstyleError):
    client = world.client()
    run = client.view.run(Generation(1))
    assert run.heartbeat is not None
    told = replace(run.heartbeat, error=(refused.code, "One sentence. Another one."))
    error = client.drivers.driver_failed(replace(run, heartbeat=told))
    assert error.code == "DRIVER_FAILED"
    assert "it failed with CHECKPOINT_FOUND: One sentence." in error.problem
