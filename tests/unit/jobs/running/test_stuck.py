"""A driver that its cluster has taken and cannot begin: waited for, then ended, reported; the next one."""

# ruff: noqa: ANN401
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.deployments.base import PREPARING_S, STUCK_S, DriverPending, Unknown
from airflow_flinkstyle.jobs.errors import JobRunningError, NotTakenError
from airflow_flinkstyle.jobs.status import STUCK_LOOK_S, Dead, Running, Starting, describe_status
from tests.unit.jobs.hosts import Host

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from tests.unit.jobs.conftest import World

NO_ROOM = "no node can take it (Insufficient memory)"


class Full(Host):
    """A cluster without room, until there is some."""

    def __init__(self, world: World, host: str) -> None:
        super().__init__(world, host)
        self.has_room = False
        self.waiting = DriverPending(NO_ROOM)
        self.ended: list[str] = []

    def submit(self, submission: Any) -> dict[str, str]:
        if self.has_room:
            return super().submit(submission)
        number = submission.argv[submission.argv.index("--submit") + 1]
        return {"pid": f"w{number}", "host": self.host}

    def state(self, native_id: Any) -> Any:
        if not native_id["pid"].startswith("w"):
            return super().state(native_id)
        return Unknown("nobody knows it") if native_id["pid"] in self.ended else self.waiting

    def end(self, native_id: Any) -> Any:
        if not native_id["pid"].startswith("w"):
            return super().end(native_id)
        self.ended.append(native_id["pid"])
        return self.state(native_id)

    def wait(self, client: JobClient, seconds: float) -> None:
        """Let time pass since the driver was asked for, on this clock and by that of who asked."""
        client.view.status()
        seconds += 1  # a limit is not passed by being reached
        self.ahead_s += seconds
        slot = client.view.board.submit(1)
        assert slot is not None
        earlier = replace(slot.value, asked_at_ms=slot.value.asked_at_ms - int(seconds * 1000))
        client.view.board.put_submit(1, earlier, seen=slot.version)
        client.view.status()
        self.ahead_s += STUCK_LOOK_S + 1


@pytest.fixture
def full(world: World) -> Full:
    return Full(world, "a")


def begin(world: World, full: Full) -> JobClient:
    client = full.client()
    client.starts.start(world.spec(), world.target(), claim_key="start")
    return client


def test_driver_that_waits_for_room_is_starting_and_then_ended_and_told_with_the_reason(
    world: World, full: Full
):
    client = begin(world, full)
    assert isinstance(client.view.status(), Starting)
    assert f"is starting; it has not begun: {NO_ROOM}" in describe_status(client.view.status())
    full.wait(client, STUCK_S)
    with pytest.raises(NotTakenError, match=r"could not be started: .*no node can take it") as error:
        client.drivers.wait_running(1, timeout_s=10)
    assert error.value.retryable, "room may come, and a retry of the task starts the next driver"
    assert full.ended == ["w1"]
    assert NO_ROOM in describe_status(client.view.status())


def test_who_looks_after_the_job_is_told_and_starts_the_next_one_when_asked_again(world: World, full: Full):
    client = begin(world, full)
    full.wait(client, STUCK_S)
    assert isinstance(client.view.settled_status(), Dead)
    with pytest.raises(NotTakenError, match="no node can take it"):
        client.drivers.ensure_running()
    found = describe_status(client.view.status())
    assert "could not be started (it may pass by itself; a watcher" in found
    full.has_room = True
    assert isinstance(client.drivers.ensure_running(), Starting)
    client.drivers.wait_running(1, timeout_s=20)
    assert client.view.board.newest_submit(1) == 2
    assert set(full.ended) == {"w1"}


def test_another_start_is_refused_at_first_and_then_ends_the_driver_that_cannot_begin(
    world: World, full: Full
):
    client = begin(world, full)
    full.waiting = DriverPending("its image is pulled", may_pass=True)
    with pytest.raises(JobRunningError):
        client.starts.start(world.spec(), world.target(), claim_key="another")
    full.waiting = DriverPending(NO_ROOM)
    full.wait(client, STUCK_S)
    full.has_room = True
    handle = client.starts.start(world.spec(), world.target(), claim_key="another")
    client.drivers.wait_running(handle.generation, timeout_s=20)
    assert handle.generation == 2
    assert full.ended == ["w1"]


def test_driver_that_its_cluster_prepares_is_given_longer(world: World, full: Full):
    client = begin(world, full)
    full.waiting = DriverPending("its image is pulled", may_pass=True)
    full.wait(client, STUCK_S)
    assert isinstance(client.view.settled_status(), Starting)
    full.wait(client, PREPARING_S)
    assert isinstance(client.view.settled_status(), Dead)


def test_clock_of_who_asked_alone_ends_no_driver(world: World, full: Full):
    client = begin(world, full)
    slot = client.view.board.submit(1)
    assert slot is not None
    client.view.board.put_submit(1, replace(slot.value, asked_at_ms=0), seen=slot.version)
    assert isinstance(full.client().view.status(), Starting), "the clock of who asked may be hours off"


def test_standby_that_cannot_begin_is_told_and_leaves_the_old_driver_alone(world: World, full: Full):
    full.has_room = True
    client = begin(world, full)
    client.drivers.wait_running(1, timeout_s=20)
    full.has_room = False
    handle = client.starts.standby(world.spec(), world.target(), claim_key="next", prepare_savepoint_id=None)
    run = client.view.run(handle.generation)
    assert run.successor is not None
    assert isinstance(run.successor.state, DriverPending)
    assert isinstance(client.view.status(), Running)
