"""One job seen from several hosts: none sees another's processes, and their clocks are minutes apart."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.errors import (
    STILL_BEATING,
    DiesWithStarterError,
    DriverFailedError,
    DriverLostError,
    JobNotRunningError,
    JobRunningError,
)
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.status import START_GRACE_S, Dead, NeverStarted, Running, Starting
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from testbed.refusals import refuses
from tests.unit.jobs.hosts import LEASE_S, Host, start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.base import DriverState
    from airflow_flinkstyle.protocol.records import Submit
    from tests.unit.jobs.conftest import Mood, World


@pytest.fixture
def hosts(world: World) -> tuple[Host, Host]:
    return Host(world, "a"), Host(world, "b", ahead_s=600.0)


# --- a driver that nobody here can see ------------------------------------------------------------


def test_driver_of_a_lost_host_is_dead_after_its_lease_and_relaunched_elsewhere(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    start(world, a)
    other = b.client()
    assert isinstance(other.view.settled_status(), Running)
    world.kill(1)  # the whole host, as b cannot see
    assert isinstance(other.view.status(), Running), "it may still live: its lease has not passed"
    world.until(lambda: isinstance(other.view.status(), Dead))
    assert isinstance(other.drivers.ensure_running(other.view.settled_status()), Starting)
    world.logs.produce(5)
    other.drivers.wait_running(1, timeout_s=20)
    world.judge()
    assert {world.drivers[pid].host for pid in world.drivers if not world.drivers[pid].killed.is_set()} == {
        "b"
    }


class AtTheLastMoment(Host):
    """Its drivers say why they fail, and end, between the looks at their heartbeat and at their process."""

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        driver = self.world.drivers[int(native_id["pid"])]
        if not driver.killed.is_set():
            driver.fail("SIGNATURE", "nobody signed the order")
            driver.kill()
        return Gone()


def test_last_words_are_heard_though_they_come_between_two_looks(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(slow_start_s=60)
    handle = Host(world, "a").client().starts.start(world.spec(), world.target(), claim_key="start")
    world.until(lambda: world.drivers[1].incarnation is not None)
    with pytest.raises(DriverFailedError, match="SIGNATURE: nobody signed") as failed:
        AtTheLastMoment(world, "a").client().drivers.wait_running(handle.generation, timeout_s=10)
    assert not isinstance(failed.value, DriverLostError), "it would be started again for ever"


def test_last_words_of_a_relaunched_driver_are_heard_not_those_of_the_one_before(
    world: World, mood: type[Mood]
):
    world.moods["v1.py"] = mood(fails_at_import=True)
    client = Host(world, "a").client()
    handle = client.starts.start(world.spec(), world.target(), claim_key="start")
    with pytest.raises(DriverFailedError, match="ImportError"):
        client.drivers.wait_running(handle.generation, timeout_s=10)
    world.moods["v1.py"] = mood(slow_start_s=60)
    client.drivers.ensure_running(relaunch_failed=True)
    world.until(lambda: 2 in world.drivers and world.drivers[2].incarnation is not None)
    with pytest.raises(DriverFailedError, match="SIGNATURE: nobody signed"):
        AtTheLastMoment(world, "a").client().drivers.wait_running(handle.generation, timeout_s=10)


def test_healthy_driver_of_another_host_is_running_at_once_and_after_long(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    start(world, a)
    client = b.client()
    for _ in range(3):
        assert isinstance(client.view.settled_status(), Running)
        b.ahead_s += 1000.0  # a look long ago says nothing of now
        world.until(lambda: isinstance(client.view.settled_status(), Running))
    with pytest.raises(JobRunningError, match="generation 1"):
        client.starts.start(world.spec(), world.target(), claim_key="other")


def test_job_whose_host_is_lost_is_stopped_saved_and_started_from_another(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    start(world, a)
    world.kill(1)
    client = b.client()
    assert isinstance(client.requests.stop("stop", savepoint=True, timeout_s=20), Stopped)
    handle = client.starts.start(world.spec(), world.target(), claim_key="next")
    client.drivers.wait_running(handle.generation, timeout_s=20)
    world.kill(handle.generation)
    take_stopped(a.client().view, "nightly")
    a.client().starts.start(world.spec(), world.target(), claim_key="third")
    world.judge()


def test_request_to_a_driver_that_fell_silent_elsewhere_is_lost_and_asked_anew(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    start(world, a)
    client = b.client()
    world.deaf = True
    pending = client.requests.request_savepoint("hot")
    world.kill(1)
    world.deaf = False
    found, end = client.requests.wait(pending, timeout_s=30)
    assert (found.incarnation, end.outcome) == (2, "done")


def test_process_that_is_seen_and_silent_is_frozen_and_is_ended_before_the_next_one(
    world: World, hosts: tuple[Host, Host], mood: type[Mood]
):
    a, _ = hosts
    world.moods["v1.py"] = mood(slow_takes_s=1000)
    client = start(world, a)
    client.view.settled_status()
    client.requests.request_savepoint("hot")
    world.until(lambda: client.view.board.request(1).value.state == "accepted")
    world.drivers[1].freeze()
    assert isinstance(client.view.status(), Running)
    a.ahead_s += 100.0
    assert isinstance(client.view.status(), Dead)
    world.moods.clear()
    client.drivers.ensure_running()
    assert world.drivers[1].killed.is_set()
    client.drivers.wait_running(1, timeout_s=20)


def test_start_that_never_comes_up_on_another_host_holds_the_job_for_a_while_only(
    world: World, hosts: tuple[Host, Host], mood: type[Mood]
):
    a, b = hosts
    world.moods["v1.py"] = mood(slow_start_s=1000)
    a.client().starts.start(world.spec(), world.target(), claim_key="start")
    client = b.client()
    assert isinstance(client.view.status(), Starting)
    world.kill(1)
    b.ahead_s += START_GRACE_S + 1
    assert isinstance(client.view.status(), Dead)
    client.starts.start(replace(world.spec(), lease_s=LEASE_S), world.target(), claim_key="next")


# --- what a person says ---------------------------------------------------------------------------


def test_driver_that_was_declared_dead_may_be_started_again_at_once_and_the_reason_is_kept(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    start(world, a)
    world.kill(1)
    client = b.client()
    client.drivers.declare_dead(1, reason="rack 4 burnt", by="ops@b")
    status = client.view.status()
    assert isinstance(status, Dead)
    assert status.run.submit.detail == "rack 4 burnt (ops@b)"
    client.drivers.ensure_running()
    client.drivers.wait_running(1, timeout_s=20)
    world.logs.produce(3)
    world.judge()


def test_driver_that_beats_cannot_be_declared_dead(world: World, hosts: tuple[Host, Host]):
    a, b = hosts
    start(world, a)
    with refuses(STILL_BEATING, match="generation 1"):
        b.client().drivers.declare_dead(1, reason="I think so", by="ops@b")
    assert b.client().view.board.submit(1).value.state == "submitted"


def test_driver_is_declared_dead_with_a_reason_and_not_after_its_last_word(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    client = start(world, a)
    with pytest.raises(BadInputError, match="found none"):
        b.client().drivers.declare_dead(1, reason=" ", by="ops@b")
    client.requests.stop("stop", savepoint=False, timeout_s=20)
    with pytest.raises(JobNotRunningError, match="reported its end itself"):
        b.client().drivers.declare_dead(1, reason="rack 4 burnt", by="ops@b")
    assert client.view.board.submit(1).value.state == "submitted"


# --- a submit that failed, or that nobody finished --------------------------------------------------


def test_failed_submit_is_known_at_once_and_the_retry_uses_the_corrected_target(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    a.broken = "Spark home"
    target = world.target()
    with pytest.raises(DriverFailedError, match="No Spark home"):
        a.client().starts.start(world.spec(), target, claim_key="start")
    assert isinstance(b.client().view.status(), Dead)
    a.broken = None
    corrected = replace(target, spark_home="/opt/spark")
    handle = a.client().starts.start(world.spec(), corrected, claim_key="start")
    assert world.submissions[-1].argv[0] == "/opt/spark/bin/spark-submit"
    a.client().drivers.wait_running(handle.generation, timeout_s=20)
    assert b.client().starts.start(world.spec(), corrected, claim_key="start").generation == handle.generation


def test_next_run_starts_the_job_after_a_submit_that_failed(world: World, hosts: tuple[Host, Host]):
    a, b = hosts
    a.broken = "Spark home"
    with pytest.raises(DriverFailedError):
        a.client().starts.start(world.spec(), world.target(), claim_key="monday")
    handle = b.client().starts.start(world.spec(), world.target(), claim_key="tuesday")
    b.client().drivers.wait_running(handle.generation, timeout_s=20)


def killed_before_its_submit(world: World, host: Host) -> None:
    """A worker that claims, orders the takeover, and dies."""
    host.broken = "time left"
    client = host.client()
    client.view.board.create_submit = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        client.starts.start(world.spec(), world.target(), claim_key="monday")
    host.broken = None


def test_worker_killed_between_go_and_submit_is_taken_up_by_its_retry(world: World, hosts: tuple[Host, Host]):
    a, b = hosts
    killed_before_its_submit(world, a)
    handle = b.client().starts.start(world.spec(), world.target(), claim_key="monday")
    b.client().drivers.wait_running(handle.generation, timeout_s=20)
    assert handle.generation == 1


def test_worker_killed_between_go_and_submit_holds_the_job_for_a_while_only(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    killed_before_its_submit(world, a)
    client = b.client()
    assert isinstance(client.view.status(), Starting)
    b.ahead_s += 61
    assert isinstance(client.view.status(), Dead)
    handle = client.starts.start(world.spec(), world.target(), claim_key="tuesday")
    client.drivers.wait_running(handle.generation, timeout_s=20)


# --- two at once ------------------------------------------------------------------------------------


def test_of_two_relaunches_at_once_one_starts_a_driver(world: World, hosts: tuple[Host, Host]):
    a, b = hosts
    start(world, a)
    world.kill(1)
    clients = [a.client(), b.client()]
    found = [client.view.settled_status() for client in clients]
    assert [type(status) for status in found] == [Dead, Dead]
    threads = [
        threading.Thread(target=client.drivers.ensure_running, args=(status,))
        for client, status in zip(clients, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    clients[0].drivers.wait_running(1, timeout_s=20)
    assert len(world.drivers) == 2
    assert clients[1].view.board.newest_submit(1) == 2
    assert isinstance(clients[1].requests.stop("stop", savepoint=False, timeout_s=20), Stopped)


def test_surplus_incarnation_that_left_takes_the_job_out_of_nobodys_hands(
    world: World, hosts: tuple[Host, Host]
):
    a, b = hosts
    client = start(world, a)
    record = client.view.board.incarnation(1, 1)
    for pid in ("a", "b"):  # one of each host begins, waits and leaves
        world.drivers[len(world.drivers) + 1] = type("Left", (), {
            "killed": threading.Event(), "generation": 0, "host": pid, "has_ended": True,
            "kill": lambda _s: None, "join": lambda _s, _t=None: None,
        })()  # fmt: skip
        number = len(world.drivers)
        world.drivers[number].killed.set()
        client.view.board.create_incarnation(1, number, replace(record, jvm_pid=number, host=pid))
    for host in (a, b):
        assert isinstance(host.client().view.settled_status(), Running)
        _, end = host.client().requests.wait(
            host.client().requests.request_savepoint(f"hot {host.host}"), timeout_s=20
        )
        assert end.outcome == "done"


def test_submit_is_recorded_before_the_process_is_started(world: World, hosts: tuple[Host, Host]):
    a, _ = hosts
    seen: list[Submit] = []
    before = a.submit
    a.submit = lambda one: (seen.append(world.board.submit(1).value), before(one))[1]  # type: ignore[method-assign]
    start(world, a)
    assert [(one.state, one.key) for one in seen] == [("asked", "start")]
    named = world.board.submit(1).value.native_id
    assert {**named, "signature": ""} == {"pid": "1", "host": "a", "signature": ""}


def test_store_that_fails_after_the_submit_leaves_a_driver_that_is_found(
    world: World, hosts: tuple[Host, Host]
):
    a, _ = hosts
    client = a.client()
    client.view.board.put_submit = lambda *_, **__: (_ for _ in ()).throw(  # type: ignore[method-assign]
        StoreUnavailableError("away", "nothing", "wait")
    )
    with pytest.raises(StoreUnavailableError):
        client.starts.start(world.spec(), world.target(), claim_key="start")
    a.client().starts.start(world.spec(), world.target(), claim_key="start")
    a.client().drivers.wait_running(1, timeout_s=20)
    assert len(world.drivers) == 1


def test_job_that_nobody_started_is_certain(world: World, hosts: tuple[Host, Host]):
    assert hosts[0].client().view.settled_status() == NeverStarted()


def test_host_where_drivers_would_end_with_the_task_claims_nothing_and_stops_nothing(world: World):
    pod = Host(world, "pod")
    pod.refused = DiesWithStarterError("A pod.", state_after="Nothing was started.", remedy="Elsewhere.")
    with pytest.raises(DiesWithStarterError):
        pod.client().starts.start(world.spec(), world.target(), claim_key="start")
    assert world.board.generations() == []
    client = start(world, Host(world, "a"))
    world.kill(1)
    with pytest.raises(DiesWithStarterError):
        pod.client().drivers.ensure_running(client.view.settled_status())
    assert world.board.newest_submit(1) == 1  # the next host may start it
