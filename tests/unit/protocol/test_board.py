from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.board import JobBoard, is_job_name
from airflow_flinkstyle.protocol.records import Current, End, IncarnationRecord, Request
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.storage.keys import is_name
from airflow_flinkstyle.types import Generation, Incarnation
from testbed.memory_store import MemoryStore

G = Generation(1)


def a_board() -> JobBoard:
    return JobBoard(MemoryStore(), "orders")


def a_request(**changes: object) -> Request:
    values: dict[str, object] = {
        "request_id": "r-1",
        "incarnation": Incarnation(1),
        "command": "stop",
        "state": "sent",
        "savepoint_id": None,
        "sent_at_ms": 1,
    }
    return Request(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "..", "/orders", "a/b", "-a", "a" * 129, "a b"])
def test_job_names_that_cannot_stand_in_a_key_are_refused(name: str) -> None:
    with pytest.raises(BadInputError, match="job name"):
        JobBoard(MemoryStore(), name)


def test_longest_job_name_of_the_format_is_a_jobs() -> None:
    name = "a" * 128
    assert JobBoard(MemoryStore(), name).job == name
    assert is_name(name)
    assert not is_name(f"{name}a")


@pytest.mark.parametrize("name", ["cuts", "checkpoints"])
def test_folders_beside_those_of_the_jobs_are_no_jobs(name: str) -> None:
    with pytest.raises(BadInputError, match=f"'{name}' was expected: that folder holds the "):
        JobBoard(MemoryStore(), name)
    with pytest.raises(BadInputError, match="Choose another job name"):
        SavepointRepository(MemoryStore(), name)
    assert not is_job_name(name)


def test_only_one_of_two_first_drivers_becomes_current() -> None:
    board = a_board()
    board.take_current(Current(generation=G, incarnation=Incarnation(1)), seen=None)
    with pytest.raises(ObjectExistsError):
        board.take_current(Current(generation=Generation(2), incarnation=Incarnation(1)), seen=None)


def test_a_driver_that_saw_an_older_current_cannot_take_over() -> None:
    board = a_board()
    board.take_current(Current(generation=G, incarnation=Incarnation(1)), seen=None)
    seen = board.current()
    board.take_current(Current(generation=Generation(2), incarnation=Incarnation(1)), seen=seen)
    with pytest.raises(ObjectChangedError):
        board.take_current(Current(generation=Generation(3), incarnation=Incarnation(1)), seen=seen)
    now = board.current()
    assert now is not None
    assert now.value.generation == 2


def test_accept_and_cancel_of_one_request_have_one_winner() -> None:
    board = a_board()
    board.put_request(G, a_request(), seen=None)
    seen = board.request(G)
    board.put_request(G, a_request(state="accepted"), seen=seen)
    with pytest.raises(ObjectChangedError):
        board.put_request(G, a_request(state="cancelled"), seen=seen)


def test_an_unchanged_request_slot_reads_as_nothing_new() -> None:
    board = a_board()
    board.put_request(G, a_request(), seen=None)
    seen = board.request(G)
    assert seen is not None
    assert board.request(G, unless=seen.version) is None


def test_a_request_ends_once() -> None:
    board = a_board()
    end = End(request_id="r-1", outcome="done", savepoint_id=None, detail="", ended_at_ms=1)
    board.create_end(G, end)
    with pytest.raises(ObjectExistsError):
        board.create_end(G, end)


def test_incarnations_are_numbered_per_generation() -> None:
    board = a_board()
    record = IncarnationRecord(host="h", pid=1, jvm_pid=1, pid_started="1", started_at_ms=1)
    for number in (1, 2, 11):
        board.create_incarnation(G, Incarnation(number), record)
    board.create_incarnation(Generation(2), Incarnation(1), record)
    assert board.incarnations(G) == [1, 2, 11]
