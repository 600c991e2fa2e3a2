"""A job that is looked after on a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException, AirflowSkipException
from airflow_flinkstyle.jobs.status import Closed, Failed, Running
from airflow_flinkstyle.operators import (
    StopStreamingJobOperator,
    TakeSavepointOperator,
    WatchStreamingJobOperator,
)
from airflow_flinkstyle.savepoint.files.verified import record_damaged
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import Mood, World

pytestmark = pytest.mark.airflow


def watch(world: World, **kwargs: Any) -> dict[str, Any]:
    return WatchStreamingJobOperator(task_id="watch", job=world.job, **kwargs).execute(a_context("watch"))


def test_driver_that_died_without_a_word_is_started_again(world: World):
    world.start()
    assert watch(world)["generation"] == 1
    before = world.board.newest_submit(1)
    world.kill(1)
    assert watch(world)["generation"] == 1
    assert world.board.newest_submit(1) > before


def test_job_whose_driver_was_told_to_end_is_started_again(world: World):
    client = world.start()
    world.tells_to_end = True
    world.until(lambda: isinstance(client.view.status(), Closed))
    world.tells_to_end = False
    assert watch(world)["generation"] == 2
    world.until(lambda: isinstance(client.view.status(), Running))
    world.judge()


def test_job_that_was_stopped_or_never_started_is_left_alone(world: World):
    with pytest.raises(AirflowSkipException, match="it was never started"):
        watch(world)
    world.start()
    StopStreamingJobOperator(task_id="stop", job=world.job, savepoint=False).execute(a_context("stop"))
    with pytest.raises(AirflowSkipException, match="generation 1 has closed at batch"):
        watch(world)


def test_job_that_failed_is_told_of_also_once_a_rotation_has_saved_it(world: World, mood: type[Mood]):
    world.start()
    world.moods["v1.py"] = mood(fails_in_batch=True)
    world.kill(1)
    watch(world)
    world.logs.produce(3)
    world.until(lambda: isinstance(world.client().view.status(), Failed))
    for key in ("take-1", "take-2"):  # each in the driver's place, which closes the run
        TakeSavepointOperator(task_id=key, job=world.job).execute(a_context(key))
        assert isinstance(world.client().view.status(), Closed)
        with pytest.raises(AirflowFailException, match=r"DRIVER_FAILED.*Generation 1 .*ZeroDivisionError"):
            watch(world)
    del world.moods["v1.py"]
    world.client().starts.start(world.spec(), world.target(), claim_key="again")
    world.until(lambda: isinstance(world.client().view.status(), Running))
    assert watch(world)["generation"] > 1


def test_savepoint_that_is_too_old_or_missing_fails_the_task_and_the_job_runs_on(world: World):
    world.start()
    with pytest.raises(AirflowFailException, match=r"SAVEPOINT_STALE.*found none at all"):
        watch(world, fresh="36h")
    taken = TakeSavepointOperator(task_id="take", job=world.job).execute(a_context("take"))
    assert watch(world, fresh="36h")["savepoint_id"] == taken
    with pytest.raises(AirflowFailException, match=f"SAVEPOINT_STALE.*the newest one, {taken}, is older"):
        watch(world, fresh=1e-9)
    record_damaged(world.repository, taken, "full", "a file was altered")
    with pytest.raises(
        AirflowFailException, match=f"SAVEPOINT_STALE.*{taken}, is damaged: a file was altered"
    ):
        watch(world, fresh="36h")
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*fresh.*found 'soon'"):
        watch(world, fresh="soon")
    assert watch(world)["generation"] == 1
