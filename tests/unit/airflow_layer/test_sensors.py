from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException, AirflowSensorTimeout
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.operators import StartStreamingJobOperator
from airflow_flinkstyle.savepoint.files.verified import record_damaged
from airflow_flinkstyle.sensors import (
    SavepointFreshnessSensor,
    StreamingJobEndSensor,
    StreamingJobProgressSensor,
)
from tests.airflow_names import TaskDeferred
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def progress(world: World, **kwargs: object) -> StreamingJobProgressSensor:
    return StreamingJobProgressSensor(task_id="progress", job=world.job, poke_interval=0.05, **kwargs)


def fresh(world: World, **kwargs: object) -> SavepointFreshnessSensor:
    return SavepointFreshnessSensor(task_id="fresh", job=world.job, poke_interval=0.05, **kwargs)


def end(world: World, **kwargs: object) -> StreamingJobEndSensor:
    return StreamingJobEndSensor(task_id="end", job=world.job, poke_interval=0.05, **kwargs)


def test_progress_is_a_batch_committed_after_the_sensor_began(world: World):
    before = world.start().view.status().heartbeat.batches()
    sensor = progress(world)
    assert not sensor.poke(a_context()), "batches from before do not count"
    world.logs.produce(3)
    assert sensor.execute(a_context())["orders"] > before["orders"]


def test_no_progress_times_out(world: World):
    world.start()
    with pytest.raises(AirflowSensorTimeout):
        progress(world, timeout=0.2).execute(a_context())


def test_dead_driver_is_started_again_and_makes_progress(world: World):
    world.start()
    world.kill(1)
    world.logs.produce(3)
    assert progress(world, timeout=20).execute(a_context())["orders"] >= 0
    assert world.alive() == [1]
    world.judge()


def test_driver_that_said_why_it_failed_fails_the_sensor_with_its_words(world: World, mood: type):
    world.moods["v1.py"] = mood(fails_at_import=True)
    client = world.client()
    handle = client.starts.start(world.spec(), world.target(), claim_key="start")
    world.until(lambda: client.view.run(handle.generation).is_over)
    with pytest.raises(AirflowFailException, match="DRIVER_FAILED"):
        progress(world).execute(a_context())


def test_stopped_job_fails_the_progress_sensor(world: World):
    world.start().requests.stop("stop", savepoint=False, timeout_s=10)
    with pytest.raises(AirflowFailException, match="has closed"):
        progress(world).execute(a_context())


def test_deferred_progress_keeps_its_baseline_and_its_deadline(world: World):
    before = world.start().view.status().heartbeat.batches()
    sensor = progress(world, deferrable=True, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(a_context())
    baseline = deferred.value.trigger.watch.baseline
    assert baseline == {"generation": 1, "batches": before}

    deadline_s = deferred.value.trigger.deadline_s
    event = {"look": "it died", "baseline": baseline, "deadline_s": deadline_s}
    with pytest.raises(TaskDeferred) as again:
        progress(world, deferrable=True).execute_complete(a_context(), event)
    assert again.value.trigger.watch.baseline == baseline
    assert again.value.trigger.deadline_s == deadline_s

    with pytest.raises(AirflowSensorTimeout):
        progress(world, deferrable=True).execute_complete(
            a_context(), {**event, "deadline_s": time.time() - 1}
        )


def test_task_woken_for_a_dead_driver_starts_it_again(world: World):
    world.start()
    world.kill(1)
    event = {"look": "dead", "baseline": None, "deadline_s": time.time() + 60}
    with pytest.raises(TaskDeferred):
        progress(world, deferrable=True).execute_complete(a_context(), event)
    world.until(lambda: isinstance(world.client().view.status(), Running))
    assert world.alive() == [1]


def test_progress_seen_by_the_triggerer_is_returned(world: World):
    found = progress(world, deferrable=True).execute_complete(a_context(), {"batches": {"q": 7}})
    assert found == {"q": 7}


def test_reschedule_mode_is_refused(world: World):
    with pytest.raises(ValueError, match="deferrable"):
        progress(world, mode="reschedule")


def test_fresh_savepoint_is_found_and_an_old_one_is_not(world: World):
    client = world.start()
    pending, _ = client.requests.wait(client.requests.request_savepoint("key"), timeout_s=10)
    assert fresh(world, max_age_s=60).execute(a_context()) == pending.savepoint_id
    record_damaged(world.repository, pending.savepoint_id, "full", "a file was altered")
    with pytest.raises(AirflowSensorTimeout):
        fresh(world, max_age_s=60, timeout=0.1).execute(a_context())
    with pytest.raises(AirflowSensorTimeout):
        fresh(world, max_age_s=0, timeout=0.1).execute(a_context())
    with pytest.raises(TaskDeferred):
        fresh(world, max_age_s=0, deferrable=True).execute(a_context())


def test_fresh_savepoint_seen_by_the_triggerer_is_returned(world: World):
    sensor = fresh(world, max_age_s=60, deferrable=True)
    assert sensor.execute_complete(a_context(), {"savepoint_id": "sp-1"}) == "sp-1"


def test_connection_form_can_test_its_savepoint_root(world: World):
    good, text = fresh(world, max_age_s=1).hook.test_connection()
    assert good, text


def start_hourly(world: World, hour: str) -> dict[str, object]:
    operator = StartStreamingJobOperator(task_id="start", job=world.job, script="v1.py", ends_by_itself=True)
    return operator.execute(a_context("start", run_id=hour))


def test_hourly_job_reads_what_came_ends_and_goes_on_in_the_next_hour(world: World):
    world.script_ends = True
    for hour, records in enumerate((3, 2), start=1):
        world.logs.produce(records)
        started = start_hourly(world, f"hour {hour}")
        found = end(world, generation=str(started["generation"]), timeout=20).execute(a_context())
        assert found == {"generation": hour, "batches": {"orders": hour - 1}}
        assert end(world).execute(a_context()) == found, "the newest run"
    assert end(world, generation=1).execute(a_context()) == found, "what has gone on from it counts"
    world.judge()


def test_script_that_had_ended_before_its_start_was_seen_has_been_started(world: World):
    world.script_ends = True
    started = start_hourly(world, "hour 1")
    world.until(lambda: not world.alive())
    assert start_hourly(world, "hour 1") == started, "a retry finds it"


def test_savepoint_between_the_end_and_the_look_hides_no_end(world: World):
    world.script_ends = True
    world.logs.produce(3)
    start_hourly(world, "hour 1")
    world.until(lambda: not world.alive())
    take_stopped(world.client().view, "nightly")
    assert end(world, generation=1).execute(a_context())["generation"] == 1


def test_driver_that_died_or_was_told_to_end_is_started_again_until_its_script_ends(world: World):
    world.start()
    world.logs.produce(3)
    world.kill(1)
    world.script_ends = True
    assert end(world, generation=1, timeout=20).execute(a_context())["generation"] == 1
    world.script_ends = False
    client = world.client()
    handle = client.starts.start(world.spec(), world.target(), claim_key="second")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    world.tells_to_end = True
    world.until(lambda: not world.alive())
    world.tells_to_end, world.script_ends = False, True
    assert end(world, generation=2, timeout=20).execute(a_context())["generation"] == 3
    world.judge()


def test_job_that_was_stopped_before_its_end_fails_the_sensor(world: World):
    client = world.start()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    with pytest.raises(AirflowFailException, match=r"JOB_NOT_RUNNING.*because it was stopped"):
        end(world, generation=1).execute(a_context())
    client.starts.start(world.spec(), world.target(), claim_key="second")
    world.script_ends = True
    found = end(world, generation=1, timeout=20).execute(a_context())
    assert found["generation"] == 2, "what has gone on from it counts"


def test_script_that_failed_fails_the_end_sensor_with_its_words(world: World, mood: type):
    world.moods["v1.py"] = mood(fails_in_batch=True)
    world.logs.produce(1)
    client = world.client()
    client.starts.start(world.spec(), world.target(), claim_key="start")
    with pytest.raises(AirflowFailException, match="ZeroDivisionError"):
        end(world, timeout=20).execute(a_context())


def test_job_that_nobody_started_has_no_end(world: World):
    with pytest.raises(AirflowFailException, match="was never started"):
        end(world).execute(a_context())


def test_end_sensor_that_is_woken_looks_after_the_driver_and_waits_on(world: World):
    world.start()
    with pytest.raises(TaskDeferred) as deferred:
        end(world, generation=1, deferrable=True, timeout=60).execute(a_context())
    world.kill(1)
    event = {"look": "dead", "deadline_s": deferred.value.trigger.deadline_s}
    with pytest.raises(TaskDeferred) as again:
        end(world, generation=1, deferrable=True).execute_complete(a_context(), event)
    assert again.value.trigger.deadline_s == deferred.value.trigger.deadline_s
    world.until(lambda: isinstance(world.client().view.status(), Running))
    told = {"end": {"generation": 1, "batches": {}}}
    assert end(world, deferrable=True).execute_complete(a_context(), told) == told["end"]
