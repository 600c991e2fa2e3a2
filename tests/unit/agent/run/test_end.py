"""How a run ends that was told to, whoever asked for something meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.process import EXIT_JVM_GONE
from airflow_flinkstyle.agent.core.run import end as end_of_run
from airflow_flinkstyle.agent.core.run.end import RunEnd
from airflow_flinkstyle.agent.core.run.reasons import Failure, ScriptEnded, Signalled
from airflow_flinkstyle.agent.spark.process import DriverProcess
from tests.unit.agent.conftest import G1
from tests.unit.agent.drivers import SmallDriver, a_request
from tests.unit.savepoint.manifests import a_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.agent.core.run.reasons import Ending
    from airflow_flinkstyle.protocol.board import Slot
    from airflow_flinkstyle.protocol.records import Command, Heartbeat, Request


class DyingProcess(DriverProcess):
    """A process whose JVM is seen to be gone at the third look."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def jvm_is_gone(self) -> bool:
        self.looks += 1
        return self.looks > 2

    def halt(self, code: int) -> None:
        raise SystemExit(code)


@pytest.fixture
def driver(tmp_path: Path) -> SmallDriver:
    driver = SmallDriver(tmp_path)
    driver.tell_order()
    return driver


def ended(driver: SmallDriver, why: Ending) -> Heartbeat:
    RunEnd(driver, driver.admission).run(why)
    slot = driver.board.heartbeat(G1)
    assert slot is not None
    return slot.value


def running(driver: SmallDriver) -> SmallDriver:
    """Let it have the job, up to the moment before Spark's own start of the query."""
    driver.admission.admit(driver.register("orders"))
    return driver


def ask(driver: SmallDriver, request: Request) -> Request:
    driver.board.put_request(G1, request, seen=driver.board.request(G1))
    return request


def test_run_that_is_told_to_end_says_so(driver: SmallDriver) -> None:
    told = ended(running(driver), Signalled())
    assert (told.state, told.told_to_end, set(told.queries)) == ("closed", True, {"orders"})


def test_script_that_ends_has_stopped_its_job(driver: SmallDriver) -> None:
    assert not ended(running(driver), ScriptEnded()).told_to_end


@pytest.mark.parametrize("command", ["stop", "stop_with_savepoint"])
@pytest.mark.parametrize("state", ["sent", "accepted", "closing"])
def test_stop_that_somebody_waits_for_closes_the_run_in_its_place(
    driver: SmallDriver, command: Command, state: str
) -> None:
    savepoint_id = "sp-1" if command == "stop_with_savepoint" else None
    driver.repository.publish(a_manifest())
    asked = ask(running(driver), a_request(command, state=state, savepoint_id=savepoint_id))
    beat = ended(driver, Signalled())
    assert (beat.state, beat.request_id, beat.told_to_end) == ("closed", asked.request_id, False)
    saved = asked.savepoint_id if state == "closing" else None
    assert beat.savepoint_id == saved
    assert (beat.error is not None) == (command == "stop_with_savepoint" and state != "closing")
    end = driver.board.end(G1, asked.request_id)
    assert end is not None
    assert (end.outcome, end.savepoint_id) == ("done", saved)


@pytest.mark.parametrize("command", ["stop", "stop_with_savepoint"])
def test_stop_that_is_asked_while_the_queries_drain_closes_the_run(
    driver: SmallDriver, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = a_request(command, savepoint_id="sp-1" if command == "stop_with_savepoint" else None)
    monkeypatch.setattr(end_of_run, "stop_at_boundary", lambda _queries: ask(driver, asked))
    beat = ended(running(driver), Signalled())
    assert (beat.request_id, beat.savepoint_id, beat.told_to_end) == (asked.request_id, None, False)
    assert (beat.error is not None) == (command == "stop_with_savepoint")


@pytest.mark.parametrize("state", ["accepted", "cancelled"])
def test_stop_that_changes_as_the_run_ends_closes_it_unless_it_was_taken_back(
    driver: SmallDriver, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ask(running(driver), a_request("stop", savepoint_id=None))
    make_final = driver.inbox.make_final

    def changed_before(slot: Slot[Request]) -> bool:
        if slot.value.state == "sent":
            ask(driver, replace(asked, state=state))
        return make_final(slot)

    monkeypatch.setattr(driver.inbox, "make_final", changed_before)
    assert ended(driver, Signalled()).told_to_end == (state == "cancelled")


def test_run_that_closes_for_a_stop_names_no_savepoint_that_is_not_there(driver: SmallDriver) -> None:
    ask(running(driver), a_request("stop_with_savepoint", state="closing"))
    beat = ended(driver, Signalled())
    assert (beat.request_id, beat.savepoint_id) == ("r1", None)
    assert beat.error is not None


def test_stop_that_was_given_up_closes_no_job(driver: SmallDriver) -> None:
    given_up = ask(running(driver), a_request("stop_with_savepoint", state="closing"))
    driver.inbox.end(given_up, "failed", "Another job of the cut was not cut.")
    assert ended(driver, Signalled()).told_to_end


def test_savepoint_and_a_stop_that_was_taken_back_close_no_job(driver: SmallDriver) -> None:
    ask(running(driver), a_request("savepoint"))
    ask(driver, a_request("stop", request_id="r2", state="cancelled"))
    assert ended(driver, Signalled()).told_to_end


def test_driver_that_is_told_to_end_before_it_has_the_job_may_be_tried_again(driver: SmallDriver) -> None:
    beat = ended(driver, Signalled())
    assert (beat.state, beat.transient, beat.batches()) == ("failed", True, {})
    assert beat.error is not None
    assert beat.error[0] == "DRIVER_TOLD_TO_END"


@pytest.mark.parametrize(
    "why",
    [Failure("SCRIPT_FAILED", "The script left with exit code 1."), ScriptEnded()],
    ids=["failed", "ended"],
)
@pytest.mark.parametrize("has_job", [False, True], ids=["waiting", "taken over"])
def test_driver_whose_jvm_was_killed_says_nothing_of_its_end(
    driver: SmallDriver, why: Ending, has_job: bool
) -> None:
    driver.heartbeat_writer.beat()
    state = running(driver).heartbeat_writer.state if has_job else "starting"
    driver.process = DyingProcess()
    with pytest.raises(SystemExit) as left:
        driver.finish(why)
    assert left.value.code == EXIT_JVM_GONE
    beat = driver.board.heartbeat(G1)
    assert beat is not None
    assert (beat.value.state, beat.value.error) == (state, None)


def test_script_that_fails_while_its_jvm_lives_says_so(driver: SmallDriver) -> None:
    beat = ended(driver, Failure("SCRIPT_FAILED", "The script left with exit code 1."))
    assert (beat.state, beat.error) == ("failed", ("SCRIPT_FAILED", "The script left with exit code 1."))
