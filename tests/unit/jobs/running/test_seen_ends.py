"""A driver whose end was seen is not waited for; of any other the lease tells, once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.status import Dead, Running, Starting
from airflow_flinkstyle.protocol.records import DriverEnd
from tests.unit.jobs.hosts import Host
from tests.unit.jobs.hosts import start as start_on
from tests.unit.jobs.running.conftest import LEASE_S

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from tests.unit.jobs.conftest import World


def ends(world: World) -> list[str]:
    return sorted(info.key for info in world.store.list() if "/ended/" in info.key)


def test_driver_that_was_seen_to_end_is_relaunched_without_its_lease(world: World, client: JobClient):
    world.kill(1)
    assert isinstance(client.drivers.ensure_running(), Starting)
    world.logs.produce(5)
    assert client.drivers.wait_running(1, timeout_s=20).heartbeat.incarnation == 2
    world.kill(1)
    client.drivers.ensure_running()
    assert client.drivers.wait_running(1, timeout_s=20).heartbeat.incarnation == 3
    world.judge()
    runs = "orders-job/runs/000001"
    assert ends(world) == [f"{runs}/ended/000001-00000{number}.json" for number in (1, 2)]
    told = DriverEnd.from_bytes(client.view.board.driver_end_data(1, 1, 1))
    assert "has ended, as threads on " in told.seen


def test_next_run_follows_a_driver_that_was_seen_to_end_without_its_lease(world: World, client: JobClient):
    _, saved = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=20)
    world.logs.produce(5)
    world.kill(1)
    back = FromSavepoint(savepoint_id=saved.savepoint_id, rewind="re-emit", skip_known_batches=True)
    spec = replace(world.spec(), lease_s=LEASE_S)
    client.starts.start(spec, world.target(), claim_key="back", origin=back)
    client.drivers.wait_running(2, timeout_s=20)
    assert ends(world) == ["orders-job/runs/000002/ended/000001-000001.json"]


def test_job_whose_driver_was_seen_to_end_is_saved_and_started_without_its_lease(
    world: World, client: JobClient
):
    world.kill(1)
    assert isinstance(client.requests.stop("stop", savepoint=True, timeout_s=20), Stopped)
    spec = replace(world.spec(), lease_s=LEASE_S)
    handle = client.starts.start(spec, world.target(), claim_key="next")
    client.drivers.wait_running(handle.generation, timeout_s=20)
    world.judge()


def test_driver_that_is_dead_by_its_silence_alone_is_not_waited_for_a_second_lease(world: World):
    start_on(world, Host(world, "a"))
    world.kill(1)
    other = Host(world, "b").client()
    world.until(lambda: isinstance(other.view.status(), Dead))
    before = other.view.board.heartbeat(1).value
    assert isinstance(other.drivers.ensure_running(other.view.settled_status()), Starting)
    other.drivers.wait_running(1, timeout_s=20)
    told = DriverEnd.from_bytes(other.view.board.driver_end_data(1, 1, 1))
    assert told.seen.startswith("its heartbeat did not change for ")
    assert told.last_beat == before.beat
    assert told.silent_s >= other.view.claim(1).lease_s


def test_who_finds_the_driver_running_again_neither_ends_it_nor_says_so(world: World, client: JobClient):
    world.kill(1)
    dead = client.view.status()
    client.drivers.ensure_running()
    client.drivers.wait_running(1, timeout_s=20)
    before = ends(world)
    assert isinstance(world.client().drivers.ensure_running(dead), Starting)  # as found before
    assert isinstance(client.view.status(), Running)
    assert ends(world) == before
