"""Until when a driver that was told to take over may, as it sees its migration work."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.agent.core.board.takeover import HeldWatch
from airflow_flinkstyle.clock import Clock
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import WorkRecord
from testbed.memory_store import MemoryStore


class Hands(Clock):
    """A clock that the test sets."""

    now_s = 1000.0


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def board() -> JobBoard:
    return JobBoard(MemoryStore(), "job")


def beat(board: JobBoard, number: int, held_s: float, *, attempt: int = 1) -> None:
    work = WorkRecord(
        cutover="migration",
        attempt=attempt,
        beat=number,
        holder="here",
        lease_s=60.0,
        held_s=held_s,
        written_at_ms=1,
    )
    board.write_work("m1", work)


def test_beat_behind_the_order_counts_from_when_there_was_no_order(board: JobBoard, clock: Hands):
    watch = HeldWatch(board, "m1", before_order_s=clock.now_s - 5, clock=clock)
    beat(board, 1, 0.0)
    assert not watch.is_held(), "one from before the order lets nobody take over"
    beat(board, 2, 60.0)
    clock.now_s += 1
    assert watch.is_held()
    clock.now_s += 54.1
    assert not watch.is_held()
    beat(board, 3, 60.0)
    assert watch.is_held()


def test_driver_that_finds_its_order_at_once_waits_for_a_beat_behind_one_that_it_saw_come(
    board: JobBoard, clock: Hands
):
    beat(board, 7, 60.0)
    watch = HeldWatch(board, "m1", before_order_s=None, clock=clock)
    assert not watch.is_held(), "it may be hours old"
    for number, may in ((8, False), (9, True)):
        clock.now_s += 1
        beat(board, number, 60.0)
        assert watch.is_held() is may
    clock.now_s += 59
    assert not watch.is_held(), "that beat was begun behind the one before, and no later is certain"


def test_beat_that_an_older_attempt_wrote_late_counts_for_nothing(board: JobBoard, clock: Hands):
    watch = HeldWatch(board, "m1", before_order_s=None, clock=clock)
    beat(board, 1, 60.0, attempt=2)
    watch.is_held()
    beat(board, 2, 60.0, attempt=2)
    watch.is_held()
    beat(board, 99, 60.0, attempt=1)
    assert not watch.is_held()
    beat(board, 1, 60.0, attempt=3)
    assert not watch.is_held(), "nor does a newer attempt's first one: it follows no beat of its own"


def test_migration_without_a_sign_of_work_lets_nobody_take_over(board: JobBoard, clock: Hands):
    watch = HeldWatch(board, "m1", before_order_s=clock.now_s, clock=clock)
    assert not watch.is_held()
