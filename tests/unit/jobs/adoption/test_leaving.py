"""Leaving and saving a job that was adopted and not started, or that starts while it is left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.adoption.leaving import leave
from airflow_flinkstyle.jobs.adoption.taking import take_outside
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.errors import (
    NOT_ADOPTED,
    OLD_JOB_RUNS,
    DriverFailedError,
    JobRunningError,
    RewindError,
)
from airflow_flinkstyle.jobs.start.choice import plan_start
from airflow_flinkstyle.jobs.start.origins import FromSavepoint, LastState
from airflow_flinkstyle.jobs.start.starts import JobStarts
from airflow_flinkstyle.jobs.stopped.saving import savepoint_at_rest, take_stopped
from airflow_flinkstyle.savepoint.files.restore import is_unfinished
from airflow_flinkstyle.storage.errors import StoreDeniedError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.refusals import refuses
from tests.unit.jobs.adoption.plain import PlainSpark, adopt, at, content, start, watched
from tests.unit.jobs.drivers import QUERY

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World


def ran_left_and_adopted_again(world: World, plain: PlainSpark) -> tuple[PlainSpark, str]:
    """Adopt, run and leave a job, let plain Spark go on, and adopt it again: nothing was started since."""
    adopt(world, plain)
    start(world)
    world.logs.produce(5)
    world.until(lambda: at(world, 1) > 2)
    out = world.folder / "out"
    leave(world.client(), {QUERY: str(out)}, key="leave", by="test", timeout_s=10)
    again = PlainSpark(world, out)
    again.run(batches=3)
    return again, adopt(world, again, key="adopt again").manifest.savepoint_id


def test_job_adopted_again_and_left_before_a_start_is_left_where_it_was_adopted(
    world: World, plain: PlainSpark
):
    again, savepoint_id = ran_left_and_adopted_again(world, plain)
    reached = again.batch
    left = leave(world.client(), {QUERY: str(world.folder / "out-2")}, key="leave 2", by="test")
    assert (left.savepoint_id, left.checkpoints[QUERY].batch_id) == (savepoint_id, reached)
    PlainSpark(world, world.folder / "out-2").run()
    world.judge()


def test_job_that_was_left_is_not_saved_as_it_was_here(world: World, plain: PlainSpark):
    adopt(world, plain)
    start(world)
    world.logs.produce(5)
    world.until(lambda: at(world, 1) > 2)
    out = world.folder / "out"
    leave(world.client(), {QUERY: str(out)}, key="leave", by="test", timeout_s=10)
    PlainSpark(world, out).run()
    with refuses(NOT_ADOPTED, match="plain Spark has it"):
        take_stopped(world.client().view, "a savepoint")
    assert savepoint_at_rest(world.client().view) is None
    with refuses(NOT_ADOPTED):
        plan_start(world.client().view, LastState(), "start")


def test_savepoint_of_a_job_at_rest_is_that_of_its_adoption(world: World, plain: PlainSpark):
    _, savepoint_id = ran_left_and_adopted_again(world, plain)
    assert take_stopped(world.client().view, "a savepoint").savepoint_id == savepoint_id
    assert savepoint_at_rest(world.client().view) is None
    assert plan_start(world.client().view, LastState(), "start").order.savepoint_id == savepoint_id


def test_job_that_starts_here_while_it_is_left_is_not_left(world: World, plain: PlainSpark):
    adopt(world, plain)
    start(world)
    world.logs.produce(5)
    world.until(lambda: at(world, 1) > 2)
    done = []

    def meanwhile(_: object) -> None:
        if not done:
            done.append(start(world, "a person changed their mind"))

    with pytest.raises(JobRunningError, match="started"):
        leave(
            world.client(), {QUERY: str(world.folder / "out")}, key="leave", by="test", timeout_s=10,
            progress=meanwhile,
        )  # fmt: skip
    assert world.board.home().value.state == "leaving"


def test_job_that_was_planned_to_start_before_it_was_left_does_not_run_beside_plain_spark(
    world: World, plain: PlainSpark, monkeypatch: pytest.MonkeyPatch
):
    adopt(world, plain)
    start(world)
    world.logs.produce(5)
    world.until(lambda: at(world, 1) > 2)
    client, out = world.client(), world.folder / "out"
    client.requests.stop("stop", savepoint=True, timeout_s=10)
    order = JobStarts._order

    def late(starts: JobStarts, *given: Any) -> None:
        leave(client, {QUERY: str(out)}, key="leave", by="test", timeout_s=10)
        order(starts, *given)

    with monkeypatch.context() as patch:
        patch.setattr(JobStarts, "_order", late)
        handle = client.starts.start(world.spec(), world.target(), claim_key="a schedule's")
    with pytest.raises(DriverFailedError, match="left to plain Spark since"):
        client.drivers.wait_running(handle.generation, timeout_s=10)
    PlainSpark(world, out).run()
    with refuses(NOT_ADOPTED):
        client.starts.start(world.spec(), world.target(), claim_key="a schedule's")
    world.judge()


def test_job_whose_old_one_goes_on_since_its_adoption_is_not_left(world: World, plain: PlainSpark):
    adopt(world, plain)
    plain.run()
    with refuses(OLD_JOB_RUNS):
        leave(world.client(), {QUERY: str(world.folder / "out")}, key="leave", by="test")


def test_leaving_that_is_killed_before_spark_can_start_is_completed_by_a_retry(
    world: World, plain: PlainSpark
):
    adopt(world, plain)
    start(world)
    out = world.folder / "out"

    class Fails(LocalStore):
        def write(self, key: str, data: bytes) -> str:
            home = world.board.home()
            if key.startswith("offsets/") and home is not None and home.value.state == "left":
                raise StoreDeniedError(f"{key} may not be written.", "Nothing.", "Ask its owner.")
            return super().write(key, data)

    broken = JobClient(view=replace(world.client().view, open_checkpoint=lambda _: Fails(out)))
    with pytest.raises(StoreDeniedError):
        leave(broken, {QUERY: str(out)}, key="leave", by="test", timeout_s=10)
    assert (world.board.home().value.state, is_unfinished(LocalStore(out))) == ("left", True)
    with refuses(NOT_ADOPTED):  # at no moment can both start
        plan_start(world.client().view, LastState(), "start")
    leave(world.client(), {QUERY: str(out)}, key="another", by="test")
    assert not is_unfinished(LocalStore(out))
    PlainSpark(world, out).run()
    world.judge()
    before = content(out)
    leave(world.client(), {QUERY: str(out)}, key="once more", by="test")
    assert content(out) == before


def test_savepoint_behind_the_adoption_is_no_place_to_continue_from(world: World, plain: PlainSpark):
    first = take_outside(world.client().view, watched(world, plain), "one", by="test")
    plain.run(batches=2)
    adopt(world, plain)
    with pytest.raises(RewindError, match="batch 4"):
        plan_start(world.client().view, FromSavepoint(savepoint_id=first.savepoint_id), "start")
