"""A run that its cluster or a person has told to end: who looks after the job starts it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.board.heartbeat import HeartbeatWriter
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.request_slot import Lost, PendingRequest
from airflow_flinkstyle.jobs.status import Closed, Running, Starting, describe_status

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.request_slot import Asked
    from tests.unit.jobs.conftest import World


@pytest.fixture
def told(world: World) -> JobClient:
    """A job that ran, counted, and was told to end."""
    client = world.start()
    world.tells_to_end = True
    world.until(lambda: isinstance(client.view.status(), Closed))
    world.tells_to_end = False
    return client


def test_who_looks_after_the_job_starts_it_again_once_and_it_loses_nothing(world: World, told: JobClient):
    assert "told to end (SIGTERM), and is to be started again" in describe_status(told.view.status())
    status = told.view.status()
    clients = world.client(), world.client()
    first, second = (one.drivers.look_after(status, follow=one.starts.follow) for one in clients)
    assert isinstance(first, Starting)
    assert isinstance(second, (Starting, Running))
    assert first.run.generation == second.run.generation == 2
    assert first.run.claim.checkpoint_location == status.run.claim.checkpoint_location
    told.drivers.wait_running(first.run.generation, timeout_s=10)
    world.logs.produce(5)
    world.judge()


def test_savepoint_is_taken_by_the_driver_that_follows(world: World, told: JobClient):
    pending = told.requests.begin_savepoint("save", timeout_s=10)
    assert isinstance(pending, PendingRequest)
    assert pending.generation == 2
    assert told.requests.finish_savepoint(pending, timeout_s=10).queries
    assert isinstance(told.view.status(), Running)


def test_stop_is_for_good(world: World, told: JobClient):
    assert isinstance(told.requests.stop("stop", savepoint=True, timeout_s=10), Stopped)
    status = told.view.status()
    assert isinstance(status, Closed)
    assert not status.run.was_told_to_end
    assert told.drivers.look_after(status, follow=told.starts.follow) == status


def test_person_may_start_it_as_any_job_that_has_closed(world: World, told: JobClient):
    handle = told.starts.start(world.spec(), world.target(), claim_key="again")
    told.drivers.wait_running(handle.generation, timeout_s=10)
    world.judge()


@pytest.mark.parametrize("command", ["savepoint", "stop", "stop_with_savepoint"])
def test_what_is_asked_as_the_run_says_its_last_word_is_asked_of_the_driver_that_follows(
    world: World, command: Asked, monkeypatch: pytest.MonkeyPatch
):
    client, end = world.start(), HeartbeatWriter.end
    pending: list[PendingRequest] = []

    def asked_before(writer: HeartbeatWriter, *args: Any, **said: Any) -> None:
        if not pending:
            pending.append(client.requests.request("late", command))
        end(writer, *args, **said)

    monkeypatch.setattr(HeartbeatWriter, "end", asked_before)
    world.tells_to_end = True
    world.until(lambda: isinstance(client.view.status(), Closed))
    world.tells_to_end = False
    assert isinstance(client.requests.poll(pending[0]), Lost)
    answered, ended = client.requests.wait(pending[0], timeout_s=10)
    assert (answered.generation, ended.outcome) == (2, "done")
    assert (ended.savepoint_id is None) == (command == "stop")
    assert isinstance(client.view.status(), Running if command == "savepoint" else Closed)
    world.judge()
