"""The parts of a client, each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.relaunch import JobDrivers
from airflow_flinkstyle.jobs.request import JobRequests, Stopped
from airflow_flinkstyle.jobs.start.starts import JobStarts
from airflow_flinkstyle.jobs.status import Running, Starting

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World


def test_each_part_of_a_client_works_with_no_more_than_it_is_made_of(world: World):
    view = world.client().view
    drivers = JobDrivers(view=view)
    starts = JobStarts(view=view, drivers=drivers)
    world.logs.produce(5)
    generation = starts.start(world.spec(), world.target(), claim_key="start").generation
    assert isinstance(drivers.wait_running(generation, timeout_s=10), Running)
    world.kill(generation)
    assert isinstance(drivers.ensure_running(), Starting)
    drivers.wait_running(generation, timeout_s=10)
    stopped = JobRequests(view=view, starts=starts).stop("stop", savepoint=True, timeout_s=10)
    assert isinstance(stopped, Stopped)
    assert view.repository.read(stopped.savepoint_id or "").taken_from_generation == generation
