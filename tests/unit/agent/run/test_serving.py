"""When a request can be judged, why it is refused, and what its end says."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.board.inbox import Take
from airflow_flinkstyle.agent.core.job_query import FIRST_PLAN_S
from airflow_flinkstyle.agent.core.run.reasons import StopAsked
from airflow_flinkstyle.agent.core.run.taking import ProgressWriter
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
from airflow_flinkstyle.savepoint.capture.take import _EarlyEnd
from airflow_flinkstyle.savepoint.errors import TAKE_TIMED_OUT, TakeCancelledError
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.unit.agent.conftest import G1, G2
from tests.unit.agent.drivers import SmallDriver, a_request, commit, end_run, plan

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.protocol.records import End, Request
    from tests.unit.clocks import SleptClock

STOP, SAVE, SAVE_AND_STOP = a_request("stop"), a_request("savepoint"), a_request("stop_with_savepoint")
ALIGNED = a_request("stop", alignment="aligned")


@pytest.fixture
def driver(tmp_path: Path) -> SmallDriver:
    driver = SmallDriver(tmp_path)
    driver.tell_order()
    return driver


def test_a_stop_is_judged_while_the_driver_waits_and_a_savepoint_refused(driver: SmallDriver) -> None:
    for request in (STOP, SAVE):
        assert driver.serving.is_ready(request)
    assert driver.serving.refusal(STOP) is None
    refused = driver.serving.refusal(SAVE)
    assert refused is not None
    assert "waits for its turn" in refused


def test_nothing_is_judged_between_the_takeover_and_the_first_start(driver: SmallDriver) -> None:
    driver.admission.admit(driver.register("orders"))
    assert not driver.serving.is_ready(STOP)
    driver.admission.starting = False
    assert driver.serving.is_ready(STOP)


@pytest.mark.parametrize("request_", [SAVE, SAVE_AND_STOP, ALIGNED])
def test_what_needs_batches_waits_for_the_first_one_that_was_planned(
    driver: SmallDriver, request_: Request
) -> None:
    query = driver.start("orders")
    plan(query, 0)
    assert not driver.serving.is_ready(request_)
    assert driver.serving.is_ready(STOP), "which needs none"
    commit(query, 0)
    assert driver.serving.is_ready(request_)
    assert driver.serving.refusal(request_) is None


def test_a_query_that_ended_in_its_first_batch_is_not_waited_for_but_named(driver: SmallDriver) -> None:
    commit(driver.start("orders"), 0)
    second = driver.start("second")
    plan(second, 0)
    end_run(second)
    assert driver.serving.is_ready(SAVE)
    refused = driver.serving.refusal(SAVE)
    assert refused is not None
    assert "found none of second." in refused
    assert driver.serving.refusal(STOP) is None


def test_a_stop_with_savepoint_waits_until_the_batch_of_a_dead_run_can_be_completed(
    tmp_path: Path, clock: SleptClock
) -> None:
    driver = SmallDriver(tmp_path, clock=clock)
    driver.tell_order()
    first, second = driver.start("orders"), driver.start("second")
    commit(first, 0)
    commit(second, 0)
    plan(second, 1)
    driver.heartbeat_writer.beat()
    again = driver.relaunched()
    again.start("orders")
    assert not again.serving.is_ready(SAVE_AND_STOP)
    assert again.serving.is_ready(SAVE), "which holds what was planned"
    assert again.serving.is_ready(STOP)
    assert again.serving.is_ready(replace(SAVE_AND_STOP, request_id="r2", hold_s=0)), "not for ever"
    again.start("second")
    assert again.serving.is_ready(SAVE_AND_STOP)


def test_a_stop_with_savepoint_waits_for_no_query_that_is_between_two_batches(
    tmp_path: Path, clock: SleptClock
) -> None:
    driver = SmallDriver(tmp_path, clock=clock)
    driver.tell_order()
    commit(driver.start("orders"), 0)
    commit(driver.start("second"), 0)
    driver.heartbeat_writer.beat()
    again = driver.relaunched()
    again.start("orders")
    assert [one.name for one in again.queries.started_and_waiting()[1]] == ["second"]
    assert again.serving.is_ready(SAVE_AND_STOP)


def test_an_aligned_request_is_refused_once_a_query_has_ended(driver: SmallDriver) -> None:
    first, second = driver.start("orders"), driver.start("second")
    commit(first, 0)
    commit(second, 0)
    end_run(second)
    refused = driver.serving.refusal(ALIGNED)
    assert refused is not None
    assert "second" in refused
    assert driver.serving.refusal(SAVE) is None, "where each is"


@pytest.mark.parametrize("hold_s", [0.0, 3600.0])
def test_an_aligned_request_waits_its_time_for_queries_that_were_not_started(
    tmp_path: Path, hold_s: float
) -> None:
    before = SmallDriver(tmp_path)
    before.tell_order()
    for name in ("orders", "late"):
        commit(before.start(name), 0)
    before.heartbeat_writer.end("closed")
    driver = before.followed_by(G2, adopts=True)
    driver.tell_order(closed_at={"orders": 0, "late": 0})
    driver.start("orders")
    request = a_request("stop", alignment="aligned", hold_s=hold_s)
    assert driver.serving.is_ready(request) == (hold_s == 0)
    refused = driver.serving.refusal(request)
    assert refused is not None
    assert "late" in refused
    driver.start("late")
    assert driver.serving.is_ready(request)
    assert driver.serving.refusal(request) is None


def test_a_savepoint_ends_with_its_id_and_its_batches(driver: SmallDriver) -> None:
    query = driver.start("orders")
    commit(query, 0)
    commit(query, 1)
    end = take(driver, SAVE)
    assert (end.outcome, end.savepoint_id, end.batches) == ("done", "sp-1", {"orders": 1})
    assert driver.repository.read("sp-1").taken_from_generation == G1


def test_a_savepoint_that_fails_says_why_and_one_that_was_cancelled_only_that(driver: SmallDriver) -> None:
    driver.start("orders")  # it has no batch, as if the request had been judged earlier
    failed = take(driver, SAVE)
    assert failed.outcome == "failed"
    assert failed.detail.startswith("NO_COMMIT_YET: ")
    cancelled = take(driver, a_request(request_id="r2"), cancelled=True)
    assert cancelled.outcome == "cancelled"


@pytest.mark.parametrize(("error", "may_pass"), [(ConnectionError, True), (AttributeError, False)])
def test_savepoint_that_fails_of_no_error_of_the_package_passes_unless_the_code_is_at_fault(
    driver: SmallDriver, error: type[Exception], *, may_pass: bool
) -> None:
    commit(driver.start("orders"), 0)

    def fail(*_: object) -> None:
        raise error("it was told to fail")

    driver.queries.started_and_waiting = fail
    end = take(driver, SAVE)
    assert (end.outcome, end.transient) == ("failed", may_pass)


class Throttled(MemoryStore):
    """Takes no file of a savepoint."""

    def write(self, key: str, data: bytes) -> str:
        if "/blobs/" in key:
            raise StoreUnavailableError.during(f"write {key}", self.uri, "SlowDown (HTTP 503)")
        return super().write(key, data)


def test_driver_tries_no_longer_than_the_caller_waits(tmp_path: Path) -> None:
    driver = SmallDriver(tmp_path, board=JobBoard(Throttled(), "orders"))
    driver.tell_order()
    commit(driver.start("orders"), 0)
    end = take(driver, a_request(timeout_s=0.5))
    assert (end.outcome, end.transient) == ("failed", True), "so a retry asks anew"
    assert end.detail.startswith("TAKE_TIMED_OUT: ")


def test_what_is_held_is_let_go_once_the_caller_waits_no_more() -> None:
    began_s = time.monotonic()
    for since_s, timeout_s in ((began_s, 3600.0), (began_s - 7200, None)):
        Take(a_request(timeout_s=timeout_s), since_s).require_wanted("job orders")
    late = Take(a_request(timeout_s=3600.0), began_s - 7200)
    with refuses(TAKE_TIMED_OUT, match="within 3600 s"):
        late.require_wanted("job orders")
    late.cancelled.set()
    with pytest.raises(TakeCancelledError):
        late.require_wanted("job orders")


def test_what_needs_batches_waits_for_a_query_that_was_just_started(driver: SmallDriver) -> None:
    query = driver.start("orders")
    query.started_s = time.monotonic()
    assert not driver.serving.is_ready(SAVE)
    assert driver.serving.is_ready(STOP), "which needs none"
    query.started_s -= FIRST_PLAN_S
    assert driver.serving.is_ready(SAVE), "it has found nothing to read"
    refused = driver.serving.refusal(SAVE)
    assert refused is not None
    assert "found none of orders" in refused


def take(driver: SmallDriver, request: Request, *, cancelled: bool = False) -> End:
    begun = Take(request)
    if cancelled:
        begun.cancelled.set()
    driver.serving.begin_take(begun)
    assert begun.done.wait(60)
    end = driver.board.end(G1, request.request_id)
    assert end is not None
    return end


def test_heartbeat_tells_of_a_query_that_an_error_has_ended(driver: SmallDriver) -> None:
    query = driver.start("orders")
    assert not query.status().failed
    query.started.handle.run.error = ValueError("x")
    assert query.status().failed


def test_a_stop_begins_the_end_of_the_run(driver: SmallDriver) -> None:
    driver.serving.begin_stop(STOP)
    assert driver.ended_by == [StopAsked(STOP)]


def test_no_savepoint_is_taken_while_a_query_runs_that_was_started_past_pyspark(driver: SmallDriver) -> None:
    commit(driver.start("orders"), 0)
    assert driver.serving.refusal(SAVE) is None
    driver.spark.beside["7c2b"] = "from_jar"
    for request in (SAVE, SAVE_AND_STOP, ALIGNED):
        refused = driver.serving.refusal(request)
        assert refused is not None
        assert "found from_jar" in refused
    assert driver.serving.refusal(STOP) is None, "who stops without one gives nothing up"
    driver.spark.beside["7c2b"] = None
    assert driver.queries.unregistered() == ("7c2b",)
    driver.spark.beside.clear()
    assert driver.serving.refusal(SAVE) is None


def test_progress_that_cannot_be_shown_fails_no_savepoint() -> None:
    store = MemoryStore()
    store.refuse(unanswered="write ")
    show = ProgressWriter(JobBoard(store, "orders"), G1, SAVE)
    show(CaptureProgress(query="q", files_done=1, files_total=2, bytes_done=1, bytes_total=2))
    store.refuse()
    show(CaptureProgress(query="q", files_done=2, files_total=2, bytes_done=2, bytes_total=2))
    assert list(store.list()) == [], "at most once a second, failures included"


def test_time_that_is_over_when_a_take_begins_is_over() -> None:
    assert _EarlyEnd(lambda: False, 0.0)()
    assert not _EarlyEnd(lambda: False, None)()
