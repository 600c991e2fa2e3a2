"""What callers are told about bad input: expected, found, what is left, what to do; and nothing is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.errors import ROLLED_BACK, JobNotRunningError, JobRunningError
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.savepoint.errors import ManifestFormatError, SavepointMissingError
from testbed.refusals import refuses
from tests.unit.jobs.cutovers import a_cutover, position

if TYPE_CHECKING:
    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.jobs.client import JobClient
    from tests.unit.jobs.conftest import World


def says(error: FlinkstyleError, *, found: str, state_after: str, remedy: str) -> bool:
    """Return whether the message is the three sentences, each with these words."""
    whole = (error.problem, error.state_after, error.remedy)
    assert str(error) == " ".join(whole)
    return found in error.problem and state_after in error.state_after and remedy in error.remedy


def records(world: World) -> dict[str, bytes]:
    return {info.key: world.store.read(info.key) for info in world.store.list()}


def stopped_with_savepoint(world: World) -> tuple[JobClient, str]:
    client = world.start()
    savepoint_id = client.requests.stop("stop", savepoint=True, timeout_s=10).savepoint_id
    assert savepoint_id is not None
    world.until(lambda: world.alive() == [])
    return client, savepoint_id


def start_from(client: JobClient, world: World, savepoint_id: str, key: str) -> None:
    origin = FromSavepoint(savepoint_id=savepoint_id)
    handle = client.starts.start(world.spec(), world.target(), claim_key=key, origin=origin)
    client.drivers.wait_running(handle.generation, timeout_s=10)


@pytest.mark.parametrize("path", ["../../../etc/cron.d/x", "/etc/cron.d/x"])
@pytest.mark.parametrize("field", ["path", "blob"])
def test_start_from_a_hostile_manifest_claims_nothing_and_the_job_stays_startable(
    world: World, field: str, path: str
):
    client, savepoint_id = stopped_with_savepoint(world)
    key = f"{world.job}/savepoints/{savepoint_id}.json"
    good = world.store.read(key)
    manifest: dict[str, Any] = json.loads(good)
    files = manifest["queries"][0]["files"]
    files |= {"path": [path, *files["path"]]} if field == "path" else {"blob": {"0": path}}
    world.store.write(key, json.dumps(manifest).encode())
    before = records(world)
    with pytest.raises(ManifestFormatError) as refused:
        start_from(client, world, savepoint_id, "hostile")
    assert says(
        refused.value, found=repr(path), state_after="nothing was written", remedy="use another savepoint"
    )
    assert records(world) == before
    assert len(world.drivers) == 1

    world.store.write(key, good)
    start_from(client, world, savepoint_id, "good")
    world.logs.produce(5)
    world.judge()


def test_start_from_a_savepoint_that_does_not_exist_claims_nothing(world: World):
    client, savepoint_id = stopped_with_savepoint(world)
    before = records(world)
    with pytest.raises(SavepointMissingError) as refused:
        start_from(client, world, "sp-of-somebody", "missing")
    assert says(
        refused.value,
        found=f"the newest are {savepoint_id}",
        state_after="Nothing",
        remedy="Correct the savepoint id",
    )
    assert records(world) == before


def test_job_that_does_not_run_is_asked_nothing(world: World):
    client, _ = stopped_with_savepoint(world)
    before = records(world)
    for ask in (
        lambda: client.requests.request_savepoint("late"),
        lambda: client.requests.stop("late", savepoint=True, timeout_s=1),
    ):
        with pytest.raises(JobNotRunningError) as refused:
            ask()
        assert says(
            refused.value,
            found="generation 1 has closed",
            state_after="Nothing was asked",
            remedy="StartStreamingJobOperator",
        )
    assert records(world) == before


def test_second_start_claims_nothing_and_the_first_runs_on(world: World):
    client = world.start()
    with pytest.raises(JobRunningError) as refused:
        client.starts.start(world.spec(), world.target(), claim_key="second")
    assert says(
        refused.value,
        found="generation 1 (start) is running",
        state_after="that run continues",
        remedy="StopStreamingJobOperator",
    )
    assert client.view.board.generations() == [1]
    world.logs.produce(5)
    world.judge()
    assert world.alive() == [1]


@pytest.mark.parametrize(
    ("trouble", "found", "remedy"),
    [
        (
            "writes_late",
            "Records arrived on orders-0",
            "Make every producer of these partitions obey the switch",
        ),
        ("mirror stopped", "MirrorMaker was expected", "Start it"),
    ],
)
def test_window_that_cannot_begin_leaves_the_job_and_its_producers_on_the_old_cluster(
    world: World, trouble: str, found: str, remedy: str
):
    world.start()
    if trouble == "writes_late":
        world.logs.writes_late = True
    else:
        world.logs.mirror_runs = False
        world.logs.produce(3)
    with refuses(ROLLED_BACK) as refused:
        a_cutover(world).run()
    assert says(
        refused.value, found=found, state_after="is on the old cluster as generation 1", remedy=remedy
    )
    assert position(world) == "release_old"
    world.logs.writes_late = False
    world.logs.produce(5)
    world.judge()
    world.until(lambda: world.alive() == [1])
