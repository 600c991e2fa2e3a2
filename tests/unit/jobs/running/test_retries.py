"""A driver that fails of a cause that may pass is started again, later each time, and not for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.clock import Clock
from airflow_flinkstyle.jobs import relaunch
from airflow_flinkstyle.jobs.deployments.refusals import not_taken
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.request_slot import Lost, PendingRequest
from airflow_flinkstyle.jobs.status import (
    LEAST_RETRIES,
    RETRY_FOR_S,
    Closed,
    Dead,
    Failed,
    Running,
    describe_status,
)
from airflow_flinkstyle.savepoint.manifest import Manifest
from airflow_flinkstyle.wording import moment

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from tests.unit.jobs.conftest import Mood, World


class ShortClock(Clock):
    """Long pauses, those before the retries, are not slept here; the time is as if they were."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now_ms(self) -> int:
        return super().now_ms() + int(sum(self.pauses) * 1000)

    def sleep(self, seconds: float) -> None:
        if seconds > 1:
            self.pauses.append(seconds)
        else:
            super().sleep(seconds)


@pytest.fixture
def clock() -> ShortClock:
    return ShortClock()


def a_job_out_of_reach(world: World, mood: type[Mood], clock: ShortClock, times: int) -> JobClient:
    world.moods["v1.py"] = mood(out_of_reach=times)
    client = world.client(clock)
    client.starts.start(world.spec(), world.target(), claim_key="start")
    world.until(lambda: isinstance(client.view.status(), Failed))
    return client


def test_brokers_that_come_back_are_found_by_a_retry(world: World, mood: type[Mood], clock: ShortClock):
    client = a_job_out_of_reach(world, mood, clock, 3)
    assert "CLUSTER_UNREACHABLE (it may pass by itself; a watcher" in describe_status(client.view.status())
    for retry in (1, 2, 3):
        client.drivers.ensure_running()
        assert client.view.run(1).retry == retry
        world.until(lambda: isinstance(client.view.status(), Failed | Running))
    world.logs.produce(5)
    assert isinstance(client.view.status(), Running)
    assert [round(pause_s) for pause_s in clock.pauses] == [5, 10, 20]
    world.judge()


def give_up(world: World, client: JobClient) -> DriverFailedError:
    """Start the job again until that is refused."""
    while True:
        world.until(lambda: isinstance(client.view.status(), Failed))
        try:
            client.drivers.ensure_running()
        except DriverFailedError as error:
            return error


def test_retries_end_after_their_time_and_the_error_is_told(
    world: World, mood: type[Mood], clock: ShortClock
):
    client = a_job_out_of_reach(world, mood, clock, 100)
    assert "no broker answered" in str(give_up(world, client))
    assert max(clock.pauses) <= relaunch.MOST_RETRY_S
    assert RETRY_FOR_S - relaunch.MOST_RETRY_S <= sum(clock.pauses) <= RETRY_FOR_S + 2 * relaunch.MOST_RETRY_S


def test_status_says_since_when_and_until_when_a_failure_is_met(
    world: World, mood: type[Mood], clock: ShortClock
):
    client = a_job_out_of_reach(world, mood, clock, 100)
    for _ in range(3):
        client.drivers.ensure_running()
        world.until(lambda: isinstance(client.view.status(), Failed))
    run = client.view.run(1)
    assert run.retried_until_ms == run.failing_since_ms + RETRY_FOR_S * 1000
    since, until = moment(run.failing_since_ms), moment(run.retried_until_ms)
    assert f"started again 3 times since {since}, and until {until}" in describe_status(client.view.status())


def test_slow_drivers_are_started_often_enough_whatever_time_it_takes(
    world: World, mood: type[Mood], clock: ShortClock
):
    client = a_job_out_of_reach(world, mood, clock, 100)
    for retry in range(1, LEAST_RETRIES + 1):
        client.drivers.ensure_running()
        assert client.view.run(1).retry == retry
        world.until(lambda: isinstance(client.view.status(), Failed))
        clock.pauses.append(RETRY_FOR_S)  # so long it took to fail
    with pytest.raises(DriverFailedError, match="no broker answered"):
        client.drivers.ensure_running()


def test_stop_of_a_run_that_fails_of_what_passes_is_asked_of_the_next_driver(world: World, clock: ShortClock):
    world.start()
    client = world.client(clock)
    world.deaf = True
    pending = client.requests.request_stop("stop", savepoint=False)
    world.kill(1)
    slot = world.board.heartbeat(1)
    assert slot is not None
    why = ("CLUSTER_UNREACHABLE", "no broker answers")
    failed = replace(slot.value, state="failed", beat=slot.value.beat + 1, error=why, transient=True)
    world.board.beat(1, failed, seen=slot.version)
    assert isinstance(client.requests.poll(pending), Lost)
    world.deaf = False
    assert isinstance(client.requests.stop("stop", savepoint=False, timeout_s=20), Stopped)
    assert client.view.board.newest_submit(1) == 2


class FullCluster:
    """Takes no driver, as often as it is told."""

    def __init__(self, world: World, times: int) -> None:
        self.taken, self.left = world.submit, times

    def submit(self, submission: Any) -> dict[str, str]:  # noqa: ANN401
        if self.left:
            self.left -= 1
            raise not_taken("the quota is full.", by="The cluster", remedy="Raise it.", why=None)
        return self.taken(submission)


def until_taken(client: JobClient) -> list[str]:
    """Do as a watcher does: look again while nothing comes up; return what the status said."""
    said = []
    while True:
        client.drivers.ensure_running()
        if not isinstance(status := client.view.status(), Dead):
            return said
        said.append(describe_status(status))


def test_cluster_that_takes_no_driver_is_asked_again_with_pauses(
    world: World, mood: type[Mood], clock: ShortClock, monkeypatch: pytest.MonkeyPatch
):
    world.moods["v1.py"] = mood()
    client = world.client(clock)
    client.drivers.wait_running(
        client.starts.start(world.spec(), world.target(), claim_key="start").generation, timeout_s=20
    )
    world.kill(1)
    world.until(lambda: isinstance(client.view.status(), Dead))
    monkeypatch.setattr(world, "submit", FullCluster(world, 4).submit)
    said = until_taken(client)
    assert len(said) == 4
    assert all("could not be started (it may pass by itself; " in one for one in said)
    assert "started again 4 times since" in said[-1], "with the one that was killed"
    assert clock.pauses == sorted(clock.pauses)
    assert len(clock.pauses) == 4
    world.until(lambda: isinstance(client.view.status(), Running))
    world.judge()


def test_cluster_that_takes_no_driver_for_too_long_is_given_up(
    world: World, mood: type[Mood], clock: ShortClock, monkeypatch: pytest.MonkeyPatch
):
    world.moods["v1.py"] = mood()
    client = world.client(clock)
    client.drivers.wait_running(
        client.starts.start(world.spec(), world.target(), claim_key="start").generation, timeout_s=20
    )
    world.kill(1)
    world.until(lambda: isinstance(client.view.status(), Dead))
    monkeypatch.setattr(world, "submit", FullCluster(world, 1000).submit)
    with pytest.raises(DriverFailedError, match="the quota is full") as gave_up:
        until_taken(client)
    assert not gave_up.value.retryable
    assert RETRY_FOR_S - relaunch.MOST_RETRY_S <= sum(clock.pauses) <= RETRY_FOR_S + 2 * relaunch.MOST_RETRY_S


def test_taking_over_without_a_batch_begins_no_new_count(world: World, mood: type[Mood], clock: ShortClock):
    world.moods["v1.py"] = mood(loses_reach=True)
    client = world.client(clock)
    client.starts.start(world.spec(), world.target(), claim_key="start")
    assert "no broker answered any more" in str(give_up(world, client))


def test_a_committed_batch_begins_a_new_count(world: World, mood: type[Mood], clock: ShortClock):
    client = a_job_out_of_reach(world, mood, clock, 2)
    for _ in range(2):
        client.drivers.ensure_running()
        world.until(lambda: isinstance(client.view.status(), Failed | Running))
    world.logs.produce(5)
    world.until(lambda: client.view.status().heartbeat.batches())
    world.moods["v1.py"] = mood(loses_reach=True)
    world.kill(1)
    client.drivers.ensure_running(client.view.settled_status())
    world.until(lambda: isinstance(client.view.status(), Failed))
    client.drivers.ensure_running()
    assert client.view.run(1).retry == 2, "of the one that was killed, and of the one that failed"


def test_savepoint_of_a_job_that_is_to_be_retried_waits_for_it_and_closes_nothing(
    world: World, mood: type[Mood], clock: ShortClock
):
    client = a_job_out_of_reach(world, mood, clock, 1)
    world.logs.produce(5)
    asked = client.requests.begin_savepoint("rotation", timeout_s=10)
    assert isinstance(asked, PendingRequest)
    client.requests.wait(asked, timeout_s=10)
    assert isinstance(client.view.status(), Running)
    world.judge()


def test_savepoint_of_a_job_whose_retries_are_used_up_is_taken_of_what_it_left(
    world: World, mood: type[Mood], clock: ShortClock
):
    client = world.client(clock)
    client.starts.start(world.spec(), world.target(), claim_key="start")
    world.logs.produce(5)
    world.until(
        lambda: isinstance(client.view.status(), Running) and client.view.status().heartbeat.batches()
    )
    world.moods["v1.py"] = mood(out_of_reach=100)
    world.kill(1)
    client.drivers.ensure_running(client.view.settled_status())
    give_up(world, client)
    assert isinstance(client.requests.begin_savepoint("rotation", timeout_s=10), Manifest)
    assert isinstance(client.view.status(), Closed)


def test_start_that_failed_of_such_a_cause_is_tried_again_by_its_retry(
    world: World, mood: type[Mood], clock: ShortClock
):
    client = a_job_out_of_reach(world, mood, clock, 1)
    client.starts.start(world.spec(), world.target(), claim_key="start")
    client.drivers.wait_running(1, timeout_s=10)


def test_failure_that_would_happen_again_is_not_retried(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(fails_guard=True)
    client = world.client()
    client.starts.start(world.spec(), world.target(), claim_key="start")
    world.until(lambda: isinstance(client.view.status(), Failed))
    with pytest.raises(DriverFailedError, match="CLUSTER_MISMATCH"):
        client.drivers.ensure_running()
    assert len(world.drivers) == 1


def test_driver_that_lived_for_long_begins_a_new_count_though_it_found_no_records(world: World):
    """A topic may be quiet for weeks: its outages are not one that goes on."""
    client = world.start()
    last, submit = client.view.run(1).heartbeat, client.view.board.submit(1).value
    assert last is not None
    eighth = replace(submit, retry=8, retried_at=last.batches())
    assert eighth.next_retry(replace(last, beat=60), lease_s=30.0) == 9
    assert eighth.next_retry(replace(last, beat=61), lease_s=30.0) == 1
    assert eighth.next_retry(None, lease_s=30.0) == 1
