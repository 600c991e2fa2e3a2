"""A restore that is tried beside the job, which does not notice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.drills import begin_drill, finish_drill
from airflow_flinkstyle.jobs.errors import DRILL_FAILED, STEP_TIMEOUT, DriverFailedError
from airflow_flinkstyle.jobs.retention import savepoints_in_use
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import Generation
from testbed.refusals import refuses
from tests.unit.jobs.conftest import Mood, World
from tests.unit.jobs.cutovers import save
from tests.unit.stores import ActingStore

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.drills import Drill


def begin(world: World, savepoint_id: str, key: str = "dag-run") -> Generation:
    client = world.client()
    spec, target = recorded_launch(client.view)
    return begin_drill(
        client, spec, target, key=key, savepoint_id=savepoint_id, rehearse=Rehearse(batches=2, records=100)
    )


def drill(world: World, savepoint_id: str, **more: Any) -> Drill:
    return finish_drill(world.client(), begin(world, savepoint_id, **more), timeout_s=10)


def test_drill_says_how_long_and_how_much_while_the_job_runs_on(world: World):
    client = world.start()
    savepoint_id = save(world)
    found = drill(world, savepoint_id)
    manifest = world.repository.read(savepoint_id)
    said = found.as_dict()
    restore_s, seconds = said.pop("restore_s"), said.pop("seconds")
    assert 0 < restore_s < seconds
    assert said == {
        "job": world.job,
        "savepoint_id": savepoint_id,
        "generation": 2,
        "size_bytes": manifest.total_bytes,
        "batches": 1,
        "rows": 10,
        "batch_s": [0.1],
    }
    assert f"was restored in {restore_s:.1f} s; the drill took {seconds:.1f} s" in found.as_markdown()
    world.until(lambda: world.alive() == [1])
    assert client.view.status().run.generation == 1
    world.logs.produce(5)
    world.judge()


def test_stopped_job_is_drilled_too_and_starts_as_if_nothing_had_been(world: World):
    client = world.start()
    stopped = client.requests.stop("stop", savepoint=True, timeout_s=10)
    drill(world, stopped.savepoint_id)
    handle = client.starts.start(world.spec(), world.target(), claim_key="again")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    world.logs.produce(5)
    world.judge()


def test_drill_that_still_runs_keeps_no_start_and_no_prune_waiting(world: World):
    client = world.start()
    savepoint_id = save(world)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    world.moods["v1.py"] = Mood(hangs_in_batch=True)
    drilled = begin(world, savepoint_id)
    held = savepoints_in_use(world.board, world.repository)
    assert held[savepoint_id].endswith("/drill-1) copies it ahead")
    world.until(lambda: world.board.heartbeat(drilled) is not None)
    world.moods.clear()
    handle = client.starts.start(world.spec("v2.py"), world.target(), claim_key="again")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    assert drilled in world.alive()
    with refuses(STEP_TIMEOUT, match="generation 2"):
        finish_drill(client, drilled, timeout_s=0.05)
    world.until(lambda: drilled not in world.alive())


def test_drill_that_begins_while_a_start_is_planned_does_not_take_its_turn(world: World):
    client = world.start()
    stopped = client.requests.stop("stop", savepoint=True, timeout_s=10)
    store = ActingStore(world.store, lambda: begin(world, stopped.savepoint_id), key="/takes/")
    repository = SavepointRepository(store, world.job)  # type: ignore[arg-type]
    client = replace(client, view=replace(client.view, repository=repository))
    handle = client.starts.start(world.spec("v2.py"), world.target(), claim_key="again")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    assert store.has_acted
    assert client.view.claim(Generation(2)).is_drill
    world.logs.produce(5)
    world.judge()


def test_savepoint_that_cannot_be_run_fails_the_drill_alone_and_a_retry_drills_anew(world: World):
    world.start()
    savepoint_id = save(world)
    world.moods["v1.py"] = Mood(fails_in_batch=True)
    with refuses(DRILL_FAILED, match=r"SCRIPT_FAILED: ZeroDivisionError"):
        drill(world, savepoint_id)
    world.until(lambda: world.alive() == [1])
    world.moods.clear()
    assert drill(world, savepoint_id).generation == 3


def test_retry_waits_for_the_drill_that_an_earlier_try_has_begun(world: World):
    world.start()
    savepoint_id = save(world)
    world.moods["v1.py"] = Mood(slow_start_s=0.2)
    assert begin(world, savepoint_id) == begin(world, savepoint_id)
    assert drill(world, savepoint_id).generation == 2


def test_script_that_does_not_come_up_is_told(world: World):
    world.start()
    savepoint_id = save(world)
    world.moods["v1.py"] = Mood(fails_at_import=True)
    with pytest.raises(DriverFailedError, match="no module named nonsense"):
        drill(world, savepoint_id)


def test_savepoint_that_is_not_there_starts_no_driver(world: World):
    world.start()
    with pytest.raises(SavepointMissingError):
        drill(world, "sp-none")
    assert world.alive() == [1]
