"""The operator that tries a restore, and the DAG of all jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.dags import drill_jobs_dag
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.assets import DRILLS, drill_asset
from airflow_flinkstyle.jobs.definition import SparkStreamingJob
from airflow_flinkstyle.operators import DrillRestoreOperator, TakeSavepointOperator
from airflow_flinkstyle.triggers.drill import DrillTrigger
from tests.airflow_names import TaskDeferred
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import Mood, World

pytestmark = pytest.mark.airflow


def a_drill(world: World, **kwargs: Any) -> DrillRestoreOperator:
    return DrillRestoreOperator(task_id="drill", job=world.job, **kwargs)


def take(world: World) -> str:
    return TakeSavepointOperator(task_id="take", job=world.job).execute(a_context("take"))


def test_newest_savepoint_is_drilled_and_that_is_an_event(world: World):
    world.start()
    savepoint_id = take(world)
    context = a_context("drill")
    found = a_drill(world).execute(context)
    assert (found["savepoint_id"], found["batches"], found["rows"]) == (savepoint_id, 1, 10)
    assert f"the drill took {found['seconds']:.1f} s" in context["ti"].xcoms["markdown"]
    assert savepoint_id in context["ti"].xcoms["_link_SavepointLink"]
    (event,) = context["outlet_events"][DRILLS].asset_alias_events
    assert event.dest_asset_key.to_asset() == drill_asset(world.job)
    assert event.extra == found
    world.until(lambda: world.alive() == [1])


def test_savepoint_that_fails_its_drill_fails_the_task_and_the_job_runs_on(world: World, mood: type[Mood]):
    world.start()
    savepoint_id = take(world)
    world.moods["v1.py"] = mood(fails_in_batch=True)
    context = a_context("drill")
    with pytest.raises(AirflowFailException, match=rf"DRILL_FAILED.*{savepoint_id}.*ZeroDivisionError"):
        a_drill(world).execute(context)
    assert context["outlet_events"][DRILLS].asset_alias_events == []
    world.until(lambda: world.alive() == [1])


def test_job_without_a_savepoint_cannot_be_drilled(world: World):
    world.start()
    with pytest.raises(AirflowFailException, match="SAVEPOINT_MISSING"):
        a_drill(world).execute(a_context("drill"))


@pytest.mark.parametrize("batches", ["0", "-1", "some"])
def test_drill_of_no_batch_is_refused(world: World, batches: str):
    world.start()
    take(world)
    with pytest.raises(AirflowFailException, match="BAD_INPUT"):
        a_drill(world, batches=batches).execute(a_context("drill"))


def test_drill_waits_in_the_triggerer_and_the_task_reads_what_came_of_it(world: World):
    world.start()
    take(world)
    operator = a_drill(world, deferrable=True, poll_interval_s=0.01)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(a_context("drill"))
    path, kwargs = deferred.value.trigger.serialize()
    assert path == "airflow_flinkstyle.triggers.drill.DrillTrigger"
    event = asyncio.run(anext(DrillTrigger(**kwargs).run()))
    assert operator.execute_complete(a_context("drill"), event.payload)["batches"] == 1


def test_task_that_is_killed_ends_the_driver_of_its_drill(world: World, mood: type[Mood]):
    world.start()
    take(world)
    world.moods["v1.py"] = mood(hangs_in_batch=True)
    operator = a_drill(world, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(a_context("drill"))
    world.until(lambda: world.alive() == [1, 2])
    operator.on_kill()
    world.until(lambda: world.alive() == [1])
    asyncio.run(deferred.value.trigger.on_kill())  # once more, in the triggerer, is no error


def test_dag_drills_one_job_after_another():
    dag = drill_jobs_dag(
        [SparkStreamingJob(job="orders", script="a.py"), SparkStreamingJob(job="b", script="b.py")]
    )
    assert dag.max_active_tasks == 1
    assert {(task.task_id, task.job, task.deferrable) for task in dag.tasks} == {
        ("orders", "orders", False),
        ("b", "b", False),
    }
