from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from airflow_flinkstyle.agent.core.board.inbox import Inbox, Take
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import Command, Request
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreUnavailableError
from testbed.memory_store import MemoryStore
from tests.unit.agent.conftest import G1, I1, I2


class Worker:
    """Notes what it is asked; ends nothing by itself."""

    def __init__(self) -> None:
        self.ready, self.no = True, None
        self.takes: list[Take] = []
        self.stops: list[Request] = []

    def is_ready(self, request: Request) -> bool:
        return self.ready

    def refusal(self, request: Request) -> str | None:
        return self.no

    def begin_take(self, take: Take) -> None:
        self.takes.append(take)

    def begin_stop(self, request: Request) -> None:
        self.stops.append(request)


class Desk:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.board = JobBoard(self.store, "orders")
        self.worker = Worker()
        self.inbox = Inbox(self.board, G1, I2, self.worker)

    def put(self, request_id: str, command: Command = "savepoint", **changes: object) -> Request:
        request = Request(
            request_id=request_id,
            incarnation=I2,
            command=command,
            state="sent",
            savepoint_id=f"sp-{request_id}",
            sent_at_ms=0,
        )
        request = replace(request, **changes)  # type: ignore[arg-type]
        self.board.put_request(G1, request, seen=self.board.request(G1))
        return request

    def outcome(self, request: Request) -> str | None:
        end = self.board.end(G1, request.request_id)
        return end.outcome if end else None

    def state(self) -> str:
        slot = self.board.request(G1)
        assert slot is not None
        return slot.value.state


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_request_is_accepted_in_the_store_before_it_is_acted_on(desk: Desk) -> None:
    desk.put("r1")
    desk.inbox.poll()
    assert desk.state() == "accepted"
    assert [take.request.request_id for take in desk.worker.takes] == ["r1"]
    desk.inbox.poll()
    assert len(desk.worker.takes) == 1


def test_driver_whose_look_fails_for_any_reason_is_not_deaf_afterwards(desk: Desk) -> None:
    """A record that it cannot read, or Spark's answer to a question about a query."""
    desk.put("r1")
    failed = threading.Event()

    def fails(_request: Request) -> bool:
        if failed.is_set():
            return True
        failed.set()
        raise RuntimeError("Spark has no answer")

    desk.worker.is_ready = fails  # type: ignore[method-assign]
    begun = threading.Event()
    desk.worker.begin_take = lambda _take: begun.set()  # type: ignore[method-assign]
    desk.inbox.start()
    assert begun.wait(60)
    desk.inbox.stopping.set()


def test_driver_looks_more_often_once_it_was_told_that_a_stop_will_follow(desk: Desk) -> None:
    assert desk.inbox.poll_s() == 0.3
    desk.put("r1", "none", state="cancelled", incarnation=I1, attend_s=60.0)
    desk.inbox.poll()
    assert desk.inbox.poll_s() == 0.3, "that was said to an earlier driver"
    desk.put("r2", "none", state="cancelled", attend_s=60.0)
    desk.inbox.poll()
    assert (desk.inbox.poll_s(), desk.worker.takes, desk.worker.stops) == (0.05, [], [])
    desk.put("r3")
    desk.inbox.poll()
    assert desk.inbox.poll_s() == 0.3, "the next request counts"
    assert len(desk.worker.takes) == 1


@pytest.mark.parametrize("call", [2, 3])
def test_request_is_acted_on_once_whichever_call_fails(desk: Desk, call: int) -> None:
    desk.put("r1", "stop")
    for lost_answer in (False, True):
        desk.store.fail_at(call, lost_answer=lost_answer)
        with pytest.raises(StoreUnavailableError):
            desk.inbox.poll()
    desk.inbox.poll()
    assert [request.request_id for request in desk.worker.stops] == ["r1"]


def test_request_of_an_earlier_incarnation_is_lost_and_never_executed(desk: Desk) -> None:
    for state in ("sent", "accepted"):
        request = desk.put(f"r-{state}", "stop", incarnation=I1, state=state)
        desk.inbox.poll()
        assert desk.outcome(request) == "lost"
    assert desk.worker.stops == []


def test_request_that_has_ended_is_not_replayed(desk: Desk) -> None:
    request = desk.put("r1", "stop")
    desk.inbox.end(request, "done", "before")
    desk.inbox.poll()
    assert desk.worker.stops == []
    assert desk.state() == "sent"


def test_end_that_the_store_refuses_is_written_once_it_takes_it(desk: Desk) -> None:
    request = desk.put("r1")
    desk.inbox.poll()
    desk.store.refuse(denied="create orders/reports/")
    with pytest.raises(StoreDeniedError):
        desk.inbox.end(request, "failed", "403")
    with pytest.raises(StoreDeniedError):
        desk.inbox.poll()
    desk.store.refuse()
    assert desk.outcome(request) is None
    desk.inbox.poll()
    assert desk.outcome(request) == "failed"


def test_cancelled_request_ends_as_cancelled(desk: Desk) -> None:
    request = desk.put("r1", state="cancelled")
    desk.inbox.poll()
    assert desk.outcome(request) == "cancelled"
    assert desk.worker.takes == []


def test_cancel_and_accept_have_one_winner(desk: Desk) -> None:
    request = desk.put("r1", "stop")
    slot = desk.board.request(G1)
    assert slot is not None
    desk.put("r1", "stop", state="cancelled")  # after the agent had read it
    assert not desk.inbox._accept(slot)
    desk.inbox.poll()
    assert desk.outcome(request) == "cancelled"
    assert desk.worker.stops == []


def test_empty_slot_closed_against_late_requests_is_left_alone(desk: Desk) -> None:
    desk.put("none", "none", state="cancelled")
    desk.inbox.poll()
    assert desk.board.end(G1, "none") is None


def test_running_take_is_cancelled_in_its_slot_and_a_second_one_waits(desk: Desk) -> None:
    desk.put("r1")
    desk.inbox.poll()
    (take,) = desk.worker.takes
    desk.put("r1", state="cancelled")
    desk.inbox.poll()
    assert take.cancelled.is_set()
    desk.put("r2")
    desk.inbox.poll()
    assert desk.state() == "sent"
    take.done.set()
    desk.inbox.poll()
    assert [each.request.request_id for each in desk.worker.takes] == ["r1", "r2"]


def test_stop_is_accepted_over_a_running_take(desk: Desk) -> None:
    desk.put("r1")
    desk.inbox.poll()
    desk.put("r2", "stop")
    desk.inbox.poll()
    assert [request.request_id for request in desk.worker.stops] == ["r2"]
    assert desk.inbox.stopping.is_set()


def test_aligned_stop_waits_for_the_take_it_cancels_and_can_be_cancelled_itself(desk: Desk) -> None:
    desk.put("r1")
    desk.inbox.poll()
    stop = desk.put("r2", "stop_with_savepoint", alignment="aligned")
    desk.inbox.poll()
    (take,) = desk.worker.takes
    assert take.cancelled.is_set()
    assert desk.state() == "sent"
    take.done.set()
    desk.inbox.poll()
    assert desk.worker.takes[1].request == replace(stop, state="accepted")
    assert (desk.worker.stops, desk.inbox.stopping.is_set()) == ([], False)
    desk.put("r2", "stop_with_savepoint", alignment="aligned", state="cancelled")
    desk.inbox.poll()
    assert desk.worker.takes[1].cancelled.is_set()


def test_plain_stop_is_accepted_over_an_aligned_take(desk: Desk) -> None:
    desk.put("r1", alignment="aligned")
    desk.inbox.poll()
    desk.put("r2", "stop")
    desk.inbox.poll()
    assert [request.request_id for request in desk.worker.stops] == ["r2"]


def test_request_that_cannot_be_served_is_refused_and_one_in_a_takeover_waits(desk: Desk) -> None:
    request = desk.put("r1")
    desk.worker.ready = False
    desk.inbox.poll()
    assert desk.outcome(request) is None
    desk.worker.ready, desk.worker.no = True, "nothing to save"  # type: ignore[assignment]
    desk.inbox.poll()
    assert desk.outcome(request) == "refused"
    assert desk.worker.takes == []


def test_stop_whose_take_is_over_is_left_to_the_end_of_the_run(desk: Desk) -> None:
    request = desk.put("r1", "stop_with_savepoint", alignment="aligned")
    desk.inbox.poll()
    desk.put("r1", "stop_with_savepoint", alignment="aligned", state="closing")
    desk.worker.takes[0].done.set()
    desk.worker.no = "All queries have ended."
    desk.inbox.poll()
    assert (desk.outcome(request), desk.state()) == (None, "closing")
