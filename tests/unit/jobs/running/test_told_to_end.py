"""A run that its cluster or a person has told to end: who looks after the job starts it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.requests import PendingRequest
from airflow_flinkstyle.jobs.running.client import Stopped
from airflow_flinkstyle.jobs.running.savepoints import begin_savepoint, finish_savepoint
from airflow_flinkstyle.jobs.status import Closed, Running, Starting, describe_status

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.running.client import JobClient
    from tests.unit.jobs.conftest import World


@pytest.fixture
def told(world: World) -> JobClient:
    """A job that ran, counted, and was told to end."""
    client = world.start()
    world.tells_to_end = True
    world.until(lambda: isinstance(client.status(), Closed))
    world.tells_to_end = False
    return client


def test_who_looks_after_the_job_starts_it_again_once_and_it_loses_nothing(world: World, told: JobClient):
    assert "told to end (SIGTERM), and is to be started again" in describe_status(told.status())
    status = told.status()
    first, second = (world.client().look_after(status) for _ in range(2))
    assert isinstance(first, Starting)
    assert isinstance(second, (Starting, Running))
    assert first.run.generation == second.run.generation == 2
    assert first.run.claim.checkpoint_location == status.run.claim.checkpoint_location
    told.wait_running(first.run.generation, timeout_s=10)
    world.logs.produce(5)
    world.judge()


def test_savepoint_is_taken_by_the_driver_that_follows(world: World, told: JobClient):
    pending = begin_savepoint(told, "save", timeout_s=10)
    assert isinstance(pending, PendingRequest)
    assert pending.generation == 2
    assert finish_savepoint(told, pending, timeout_s=10).queries
    assert isinstance(told.status(), Running)


def test_stop_is_for_good(world: World, told: JobClient):
    assert isinstance(told.stop("stop", savepoint=True, timeout_s=10), Stopped)
    status = told.status()
    assert isinstance(status, Closed)
    assert not status.run.was_told_to_end
    assert told.look_after(status) == status


def test_person_may_start_it_as_any_job_that_has_closed(world: World, told: JobClient):
    handle = told.start(world.spec(), world.target(), claim_key="again")
    told.wait_running(handle.generation, timeout_s=10)
    world.judge()
