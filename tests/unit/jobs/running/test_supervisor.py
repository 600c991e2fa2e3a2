"""A supervisor beside a driver: it starts that again at once, as one of many callers, or knows why not."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.jobs import relaunch
from airflow_flinkstyle.jobs.deployments.base import SUCCEEDED, Alive, Gone, Submission, Unknown
from airflow_flinkstyle.jobs.deployments.detached import SUPERVISOR, DetachedDeployment, Task
from airflow_flinkstyle.jobs.deployments.supervisor import MOST_IN_A_ROW, Supervisor, await_end
from airflow_flinkstyle.jobs.errors import DriverFailedError, NotTakenError
from airflow_flinkstyle.jobs.signing import KEY_VARIABLE, PREVIOUS_VARIABLE
from airflow_flinkstyle.jobs.status import Closed, Dead, Failed, Running, Sightings, Starting
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.process import process_started, recorded_start
from airflow_flinkstyle.types import Generation
from testbed.waiting import wait_until
from tests.unit.clocks import SleptClock
from tests.unit.jobs.running.conftest import LEASE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.deployments.base import DriverState
    from testbed.memory_store import MemoryStore
    from tests.unit.jobs.conftest import Mood, World


def supervisor_of(world: World, clock: Clock = CLOCK, store: MemoryStore | None = None) -> Supervisor:
    """Return the supervisor of the newest driver."""
    board, pid = JobBoard(store or world.store, world.job), max(world.drivers)
    return Supervisor(board, world, world.submissions[-1], {"pid": str(pid)}, clock=clock)


def test_killed_driver_is_started_again_without_its_lease_again_and_again(world: World, client: JobClient):
    supervisor = supervisor_of(world)
    for incarnation in (2, 3):
        world.kill(1)
        assert supervisor.restart()
        world.logs.produce(5)
        assert client.drivers.wait_running(1, timeout_s=20).heartbeat.incarnation == incarnation
    world.judge()
    assert client.view.board.submit(1).value.key.startswith("supervisor:")


def test_driver_whose_processes_end_late_is_started_again_once_they_have(
    world: World, client: JobClient, monkeypatch: pytest.MonkeyPatch
):
    late, end = iter([Unknown("it did not end within 10 s of SIGKILL")] * 3), world.end
    monkeypatch.setattr(world, "end", lambda native_id: next(late, None) or end(native_id))
    clock = SleptClock()
    supervisor = supervisor_of(world, clock)
    world.kill(1)
    assert supervisor.restart()
    assert clock.slept[:3] == [1.0] * 3
    assert client.drivers.wait_running(1, timeout_s=20).heartbeat.incarnation == 2


@pytest.mark.parametrize("lost_answer", [False, True])
def test_killed_driver_is_started_again_once_although_any_one_call_of_the_store_fails(
    world: World, client: JobClient, *, lost_answer: bool
):
    store = copy(world.store)  # the same objects; only the supervisor's calls fail
    for call in itertools.count(1):
        supervisor, drivers = supervisor_of(world, SleptClock(), store), len(world.drivers)
        world.kill(1)
        store.fail_at(call, lost_answer=lost_answer)
        assert supervisor.restart()
        assert (len(world.drivers), world.alive()) == (drivers + 1, [1])
        newest, submit = drivers + 1, client.view.board.submit(1).value
        assert (submit.number, submit.state, submit.native_id) == (newest, "submitted", {"pid": str(newest)})
        assert client.drivers.wait_running(1, timeout_s=20).heartbeat.incarnation == newest
        if store.calls < call:
            break
    assert call > 6, "it has looked, told of the end, and recorded its submit"
    world.judge()


def cannot_start(*_: object) -> NoReturn:
    raise NotTakenError("The machine had no process left.", "No driver runs.", "Try again.")


def test_driver_that_the_machine_cannot_start_for_a_moment_is_started_after_a_pause(
    world: World, client: JobClient, monkeypatch: pytest.MonkeyPatch
):
    tries, submit = iter([cannot_start]), world.submit
    monkeypatch.setattr(world, "submit", lambda submission: next(tries, submit)(submission))
    clock = SleptClock()
    supervisor = supervisor_of(world, clock)
    world.kill(1)
    assert supervisor.restart()
    assert clock.slept == [0.25, 0.5]
    assert client.drivers.wait_running(1, timeout_s=20).heartbeat.incarnation == 2
    assert client.view.board.submit(1).value.state == "submitted"


def test_driver_that_cannot_be_started_again_and_again_is_left_to_watchers_with_the_reason(
    world: World, client: JobClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(world, "submit", cannot_start)
    clock = SleptClock()
    supervisor = supervisor_of(world, clock)
    world.kill(1)
    assert not supervisor.restart()
    assert len(clock.slept) == MOST_IN_A_ROW
    submit = client.view.board.submit(1).value
    assert (submit.state, submit.transient) == ("failed", True)
    assert submit.detail == "The machine had no process left."


def test_job_that_was_stopped_stays_down(world: World, client: JobClient):
    supervisor = supervisor_of(world)
    client.requests.stop("stop", savepoint=False, timeout_s=20)
    assert not supervisor.restart()
    assert isinstance(client.view.status(), Closed)
    assert len(world.drivers) == 1


def test_driver_that_said_why_it_failed_is_left_to_watchers(world: World, client: JobClient):
    supervisor = supervisor_of(world)
    world.drivers[1].mood.fails_in_batch = True
    world.logs.produce(5)
    world.until(lambda: isinstance(client.view.status(), Failed))
    world.kill(1)
    assert not supervisor.restart()
    assert len(world.drivers) == 1


def test_supervisor_restarts_nothing_that_another_caller_has_started_since(world: World, client: JobClient):
    supervisor = supervisor_of(world)
    world.kill(1)
    assert isinstance(client.drivers.ensure_running(), Starting)
    client.drivers.wait_running(1, timeout_s=20)
    # Its look ends nobody's work: what it ends is the process that it knows.
    assert not supervisor.restart()
    assert isinstance(client.view.status(), Running)
    assert len(world.drivers) == 2


def test_of_two_supervisors_one_restarts(world: World, client: JobClient):
    both = [supervisor_of(world), supervisor_of(world)]
    world.kill(1)
    ready, found = threading.Barrier(2), []

    def restart(one: Supervisor) -> None:
        ready.wait()
        found.append(one.restart())

    threads = [threading.Thread(target=restart, args=(one,)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False, True]
    client.drivers.wait_running(1, timeout_s=20)
    assert client.view.board.newest_submit(1) == len(world.drivers) == 2


def test_surplus_driver_of_the_same_submit_tells_nothing_of_the_one_that_runs(
    world: World, client: JobClient
):
    world.submit(world.submissions[-1])
    world.until(lambda: world.board.incarnations(1) == [1, 2])
    supervisor = supervisor_of(world)
    world.drivers[2].killed.set()
    world.drivers[2].join(10)
    assert not supervisor.restart()
    assert isinstance(client.view.status(), Running)
    assert not [info.key for info in world.store.list() if "/ended/" in info.key]


def test_later_generation_that_has_the_job_is_not_disturbed(world: World, client: JobClient):
    supervisor = supervisor_of(world)
    world.kill(1)
    spec = replace(world.spec(), lease_s=LEASE_S)
    handle = client.starts.start(spec, world.target(), claim_key="next")
    client.drivers.wait_running(handle.generation, timeout_s=20)
    assert not supervisor.restart()
    assert isinstance(client.view.status(), Running)


def test_driver_that_dies_without_a_batch_again_and_again_is_left_to_watchers(
    world: World, client: JobClient, mood: type[Mood]
):
    clock = SleptClock()
    supervisor, began_s = supervisor_of(world, clock), clock.now_s
    world.kill(1)
    world.moods["v1.py"] = mood(slow_start_s=60)
    for _ in range(MOST_IN_A_ROW):
        assert supervisor.restart()
        world.drivers[max(world.drivers)].killed.set()
    assert not supervisor.restart()
    assert len(world.drivers) == MOST_IN_A_ROW + 1
    assert clock.now_s - began_s > 100, "it hurries less and less"
    submit = client.view.board.submit(1).value
    assert submit.retry == MOST_IN_A_ROW
    assert submit.failing_since_ms is not None
    assert isinstance(client.view.settled_status(), Dead)


def test_caller_that_starts_the_driver_again_says_so_and_one_that_ends_it_does_not(
    world: World, client: JobClient, monkeypatch: pytest.MonkeyPatch
):
    ended, end = [], world.end

    def noted(native_id: Mapping[str, str]) -> DriverState:
        ended.append(SUCCEEDED in native_id)
        return end(native_id)

    monkeypatch.setattr(world, "end", noted)
    world.kill(1)
    client.drivers.ensure_running()
    assert set(ended) == {True}
    ended.clear()
    client.drivers.end_driver(Generation(1))
    assert set(ended) == {False}


def test_driver_that_dies_before_its_first_heartbeat_is_known_to_have_ended_on_other_hosts(
    world: World, client: JobClient, mood: type[Mood], monkeypatch: pytest.MonkeyPatch
):
    """There nobody sees its process, and would wait for minutes."""
    world.kill(1)
    world.moods["v1.py"] = mood(finds_no_room=True)
    client.drivers.ensure_running()
    supervisor = supervisor_of(world)
    world.drivers[2].killed.set()
    monkeypatch.setattr(world, "state", lambda _: Unknown("it was started on another host"))
    assert not supervisor.restart()
    assert client.view.board.submit(1).value.state == "dead"
    client.view.sightings = Sightings(clock := SleptClock())
    client.view.status()
    clock.sleep(LEASE_S + 1)
    assert isinstance(client.view.status(), Dead)
    del world.moods["v1.py"]
    client.drivers.ensure_running()
    client.drivers.wait_running(1, timeout_s=20)
    world.judge()


def test_driver_that_a_supervisor_started_with_an_old_login_is_started_once_more_by_a_caller(
    world: World, client: JobClient, mood: type[Mood], monkeypatch: pytest.MonkeyPatch
):
    """A supervisor has what the first driver was started with; a caller reads the logins again."""
    monkeypatch.setattr(relaunch, "RETRY_S", 0.01)
    supervisor = supervisor_of(world)
    world.kill(1)
    world.moods["v1.py"] = mood(fails_guard=True)
    assert supervisor.restart()
    world.until(lambda: isinstance(client.view.status(), Failed))
    del world.moods["v1.py"]
    assert isinstance(client.drivers.ensure_running(), Starting)
    client.drivers.wait_running(1, timeout_s=20)
    world.kill(1)
    supervisor = supervisor_of(world)
    world.moods["v1.py"] = mood(fails_guard=True)
    assert supervisor.restart()
    world.until(lambda: isinstance(client.view.status(), Failed))
    client.drivers.ensure_running()
    world.until(lambda: len(world.drivers) == 5 and isinstance(client.view.status(), Failed))
    with pytest.raises(DriverFailedError, match="CLUSTER_MISMATCH"):
        client.drivers.ensure_running()


# --- as a process ---------------------------------------------------------------------------------


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    """Return a driver that only sleeps, of a job that nobody has recorded."""
    options = ("--root", f"file://{tmp_path}/root", "--job", "j", "--claim", f"c{os.getpid()}")
    argv = ("/bin/bash", "-c", "sleep 67; true", *options, "--generation", "1", "--submit", "1")
    env = {"PATH": "/usr/bin:/bin"}
    return Submission(argv=argv, marker=options, env=env, cwd=None, log_path=str(tmp_path / "driver.log"))


@pytest.fixture
def deployment(submission: Submission) -> Iterator[DetachedDeployment]:
    deployment = DetachedDeployment(supervisor_env={})
    yield deployment
    found = deployment.find(submission)
    if found is not None:
        deployment.end({**found, "claim": f"c{os.getpid()}"})


def supervisors() -> list[int]:
    """Return the supervisors of this test's claim."""
    wanted = f"\0--claim\0c{os.getpid()}\0"
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            command = (entry / "cmdline").read_text()
        except OSError:
            continue
        if SUPERVISOR in command and wanted in command and process_started(pid):
            found.append(pid)
    return found


def test_supervisor_begins_with_its_driver_and_ends_first_when_that_is_ended_on_purpose(
    submission: Submission, deployment: DetachedDeployment
):
    native_id = deployment.submit(submission)
    wait_until("a supervisor", lambda: len(supervisors()) == 1)
    assert deployment.state(native_id) == Alive()
    assert deployment.end({**native_id, "claim": f"c{os.getpid()}"}) == Gone()
    assert supervisors() == []


def test_supervisor_is_left_to_a_caller_that_starts_the_next_driver_as_it_may_have_started_that_itself(
    submission: Submission, deployment: DetachedDeployment, tmp_path: Path
):
    native_id = deployment.submit(submission)
    wait_until("a supervisor", lambda: len(supervisors()) == 1)
    assert deployment.end({**native_id, "claim": f"c{os.getpid()}", SUCCEEDED: "true"}) == Gone()
    wait_until("its end", lambda: supervisors() == [])
    assert "another caller starts the next one" in (tmp_path / "driver.log").read_text()


def test_supervisor_has_neither_the_signing_key_nor_airflows_secrets(
    submission: Submission, deployment: DetachedDeployment, monkeypatch: pytest.MonkeyPatch
):
    for name in (KEY_VARIABLE, PREVIOUS_VARIABLE, "AIRFLOW__CORE__FERNET_KEY", "AIRFLOW_CONN_KAFKA"):
        monkeypatch.setenv(name, "a secret")
    deployment.submit(submission)
    wait_until("a supervisor", lambda: len(supervisors()) == 1)
    assert "a secret" not in Path(f"/proc/{supervisors()[0]}/environ").read_text()


def test_supervisor_ends_once_its_driver_is_not_its_own_to_start_again(
    submission: Submission, deployment: DetachedDeployment, tmp_path: Path
):
    native_id = deployment.submit(submission)
    wait_until("a supervisor", lambda: len(supervisors()) == 1)
    os.kill(int(native_id["pid"]), signal.SIGKILL)
    wait_until("its end", lambda: supervisors() == [])
    assert "another caller starts the next one" in (tmp_path / "driver.log").read_text()


def test_end_of_a_process_is_waited_for_and_of_another_with_its_number_is_not():
    process = subprocess.Popen(["/bin/sleep", "68"])
    native_id = {"pid": str(process.pid), "started": recorded_start(process.pid)}
    await_end({**native_id, "started": "1@another boot"})  # the number is another one's: it returns
    ended = threading.Event()
    waiter = threading.Thread(target=lambda: (await_end(native_id), ended.set()))
    waiter.start()
    assert not ended.is_set()
    process.kill()
    waiter.join()
    assert ended.is_set()
    process.wait()
    await_end(native_id)


def test_what_a_supervisor_is_told_is_what_its_driver_was_started_with(submission: Submission):
    task = Task(argv=submission.argv, env={"SECRET": "x"}, cwd="/", log_path="/log", native_id={"pid": "1"})
    again = Task(**json.loads(task.to_json()))
    assert again.submission == replace(submission, env={"SECRET": "x"}, cwd="/", log_path="/log", marker=())
