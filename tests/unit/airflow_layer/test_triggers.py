from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync

from airflow_flinkstyle.hooks.airflow_versions import in_thread
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.jobs.status import Closed, Running
from airflow_flinkstyle.sensors import StreamingJobProgressSensor
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.triggers.base import PollTrigger
from airflow_flinkstyle.triggers.progress import ProgressTrigger, ProgressWatch
from airflow_flinkstyle.triggers.run_end import RunEndTrigger
from airflow_flinkstyle.triggers.savepoint import FreshSavepointTrigger, RequestTrigger
from tests.airflow_names import TaskDeferred
from tests.unit.airflow_layer.conftest import a_context
from tests.unit.jobs.hosts import LEASE_S, Host, start

if TYPE_CHECKING:
    from types import SimpleNamespace

    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow
COMMON: dict[str, Any] = {
    "job": "orders-job",
    "flinkstyle_conn_id": "flinkstyle_default",
    "poll_interval_s": 0.01,
}


def fire(trigger: PollTrigger, timeout_s: float = 10.0) -> dict[str, Any]:
    """Drive a trigger to its event as the triggerer does."""

    async def first() -> dict[str, Any]:
        async with asyncio.timeout(timeout_s):
            try:
                event = await anext(trigger.run())
            finally:
                await trigger.cleanup()
        return dict(event.payload)

    return asyncio.run(first())


def a_request(world: World) -> dict[str, Any]:
    return asdict(world.client().requests.request_savepoint("key"))


@pytest.mark.parametrize(
    "trigger",
    [
        RequestTrigger(request={"request_id": "r", "generation": 1}, **COMMON),
        FreshSavepointTrigger(max_age_s=60.0, **COMMON),
        ProgressTrigger(batches=2, **COMMON),
        ProgressTrigger(
            batches=2,
            baseline={"generation": 1, "batches": {"q": 4}},
            stop_on_kill=True,
            request_key="k",
            **COMMON,
        ),
        RunEndTrigger(generation="3", deadline_s=7.0, **COMMON),
    ],
)
def test_trigger_survives_the_way_to_another_triggerer(trigger: PollTrigger):
    path, kwargs = trigger.serialize()
    module, name = path.rsplit(".", 1)
    again = getattr(import_module(module), name)(**kwargs)
    assert again.serialize() == (path, kwargs)


def test_request_trigger_fires_when_the_savepoint_is_there(world: World):
    world.start()
    request = a_request(world)
    assert fire(RequestTrigger(request=request, **COMMON)) == {"request": request}
    assert world.repository.find(request["savepoint_id"]) is not None


def test_request_trigger_fires_when_the_driver_died(world: World):
    world.start()
    world.deaf = True
    request = a_request(world)
    world.kill(1)
    assert fire(RequestTrigger(request=request, **COMMON)) == {"request": request}


def test_freshness_trigger_names_the_fresh_savepoint(world: World):
    world.start()
    request = a_request(world)
    assert fire(FreshSavepointTrigger(max_age_s=60.0, **COMMON)) == {"savepoint_id": request["savepoint_id"]}


def test_freshness_trigger_waits_while_the_newest_is_too_old(world: World):
    client = world.start()
    client.requests.wait(client.requests.request_savepoint("key"), timeout_s=10)
    with pytest.raises(TimeoutError):
        fire(FreshSavepointTrigger(max_age_s=0.0, **COMMON), timeout_s=0.3)


def test_progress_trigger_fires_once_a_batch_was_committed(world: World):
    client = world.start()
    before = client.view.status().heartbeat.batches()
    trigger = ProgressTrigger(batches=1, baseline={"generation": 1, "batches": before}, **COMMON)
    world.logs.produce(3)
    assert fire(trigger)["batches"]["orders"] > before["orders"]


def test_progress_trigger_does_not_fire_without_a_batch(world: World):
    world.start()
    with pytest.raises(TimeoutError):
        fire(ProgressTrigger(batches=1, **COMMON), timeout_s=0.2)


def test_progress_trigger_wakes_the_task_for_a_dead_driver_and_starts_nothing(world: World):
    world.start()
    world.kill(1)
    assert "has ended without reporting why" in fire(ProgressTrigger(batches=1, **COMMON))["look"]
    assert world.alive() == []


def test_restored_generation_is_watched_from_its_own_first_batch(world: World):
    status = world.start().view.status()
    watch = ProgressWatch(1)
    assert watch.reached(status) is None
    restored = replace(status, run=replace(status.run, generation=2))
    assert watch.reached(restored) is None
    assert watch.baseline == {"generation": 2, "batches": status.heartbeat.batches()}


def test_store_that_cannot_be_reached_is_asked_again():
    class Flaky(PollTrigger):
        looks = 0

        def check(self) -> dict[str, Any] | None:
            self.looks += 1
            if self.looks < 3:
                raise StoreUnavailableError("away", "nothing", "wait")
            return {"looks": self.looks}

    assert fire(Flaky(**COMMON)) == {"looks": 3}


def test_other_errors_are_brought_to_the_task(connections: SimpleNamespace):
    connections.set("flinkstyle_default", "flinkstyle", {"savepoint_root": "ftp://nowhere"})
    failure = fire(FreshSavepointTrigger(max_age_s=1.0, **COMMON))["failure"]
    assert not failure["retryable"]
    assert failure["block"].startswith("BAD_INPUT: ")
    assert "ftp://nowhere" in failure["block"]


def test_connection_that_airflow_does_not_find_for_a_while_is_asked_for_again(
    connections: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    """Airflow says "isn't defined" while its API server is away; the task had it before it deferred."""

    class Waiting(FreshSavepointTrigger):
        looks = 0

        def check(self) -> dict[str, Any] | None:
            self.looks += 1
            if self.looks == 3:
                connections.set("found_late", "flinkstyle", {"savepoint_root": "ftp://nowhere"})
            return super().check()

    late = {**COMMON, "flinkstyle_conn_id": "found_late"}
    block = fire(Waiting(max_age_s=1.0, **late))["failure"]["block"]
    assert block.startswith("BAD_INPUT: ")  # it was found, and its root is no root
    monkeypatch.setattr(PollTrigger, "missing_for_s", 0.05)
    arguments = {**COMMON, "flinkstyle_conn_id": "nowhere"}
    failure = fire(FreshSavepointTrigger(max_age_s=1.0, **arguments))["failure"]
    assert failure["block"].startswith("CONNECTION_MISSING: ")


def test_what_a_trigger_reads_in_a_thread_is_asked_for_on_the_triggerers_own_loop():
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def is_own() -> bool:  # as Airflow 3.1 reads a connection
        return await in_thread(lambda: async_to_sync(loop)()) is asyncio.get_running_loop()

    assert asyncio.run(is_own())


def test_killing_a_deferred_sensor_leaves_the_stream_alone_unless_asked(world: World):
    client = world.start()
    asyncio.run(ProgressTrigger(batches=1, request_key="k", **COMMON).on_kill())
    assert isinstance(client.view.status(), Running)
    asyncio.run(ProgressTrigger(batches=1, stop_on_kill=True, request_key="k", **COMMON).on_kill())
    world.until(lambda: isinstance(client.view.status(), Closed))


@pytest.fixture
def elsewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Airflow runs on a host that does not see the driver's, and whose clock is another one."""
    host = Host(world, "airflow", ahead_s=600.0)
    start(world, Host(world, "worker 1"))
    monkeypatch.setattr(StreamingJobHook, "deployment", host)
    return host


def test_triggers_notice_the_silence_of_a_driver_on_a_host_that_is_lost(world: World, elsewhere: Host):
    world.deaf = True
    request = asdict(elsewhere.client().requests.request_savepoint("key"))
    with pytest.raises(TimeoutError):
        fire(ProgressTrigger(batches=1, **COMMON), timeout_s=LEASE_S / 2)
    world.kill(1)
    assert fire(RequestTrigger(request=request, **COMMON)) == {"request": request}
    assert "its heartbeat has not changed" in fire(ProgressTrigger(batches=1, **COMMON))["look"]
    assert world.alive() == [], "a trigger starts nothing"


def test_task_that_a_trigger_woke_starts_the_driver_again_where_it_runs(world: World, elsewhere: Host):
    world.kill(1)
    event = fire(ProgressTrigger(batches=1, **COMMON))
    world.logs.produce(3)
    sensor = StreamingJobProgressSensor(task_id="progress", job=world.job, deferrable=True, timeout=60)
    with pytest.raises(TaskDeferred):
        sensor.execute_complete(a_context(), {**event, "deadline_s": time.time() + 60})
    world.until(lambda: world.alive() == [1])
    (driver,) = [one for one in world.drivers.values() if not one.killed.is_set()]
    assert driver.host == "airflow"
    world.judge()


def test_end_of_a_script_is_seen_by_the_triggerer(world: World):
    world.start()
    world.script_ends = True
    assert fire(RunEndTrigger(generation=1, **COMMON)) == {"end": {"generation": 1, "batches": {"orders": 0}}}


def test_job_that_is_stopped_before_its_end_or_dies_wakes_the_task(world: World):
    client = world.start()
    world.kill(1)
    event = fire(RunEndTrigger(generation=1, deadline_s=7.0, **COMMON))
    assert (event["deadline_s"], "the driver of generation 1" in event["look"]) == (7.0, True)
    client.drivers.ensure_running()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    assert "JOB_NOT_RUNNING" in fire(RunEndTrigger(generation=1, **COMMON))["failure"]["block"]
