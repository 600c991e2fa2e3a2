"""The line of a job's head: what is on it, which start left the rest, and what it costs to read."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.errors import MessageFormatError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.errors import LINE
from airflow_flinkstyle.protocol.head import placed, read_line
from airflow_flinkstyle.protocol.line import (
    BEGINNING,
    MOST_TURNS,
    Abandoned,
    Elsewhere,
    Line,
    OnLine,
    Parent,
    Turn,
)
from airflow_flinkstyle.protocol.records import AsRecorded, Current, TakeoverOrder
from airflow_flinkstyle.types import Generation, Incarnation, Rewind
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.counting import CountingStore
from tests.unit.agent.conftest import a_claim
from tests.unit.effort import counted

MANY = 10_000


def a_parent(generation: int | None, run: int = 0, savepoint: str | None = None) -> Parent:
    of = Generation(generation) if generation is not None else None
    return Parent(generation=of, batches_run=run, savepoint_id=savepoint)


def a_turn(generation: int, back_to: int | None, run: int = 0, rewind: Rewind = "fork") -> Turn:
    return Turn(generation=Generation(generation), parent=a_parent(back_to, run), rewind=rewind)


def a_line(head: int, *turns: Turn, parent: Parent = BEGINNING) -> Line:
    return Line(head=Generation(head), parent=parent, turns=turns)


class Job:
    """A job whose generations take over one after the other."""

    def __init__(self) -> None:
        self.counted: Any = CountingStore(MemoryStore())
        self.board, self.newest = JobBoard(self.counted, "orders"), 0

    def start(
        self, back_to: int | None = None, run: int = 1, rewind: Rewind = "continue", **saved: Any
    ) -> TakeoverOrder:
        """Let a generation take over, after the one before it ended or after one that is named."""
        self.newest += 1
        generation, seen = Generation(self.newest), self.board.current()
        follows = back_to if back_to is not None else self.newest - 1 or None
        order = TakeoverOrder(
            savepoint_id=None, closed_at=None, expected={}, rewind=rewind,
            parent=a_parent(follows, run, **saved),
        )  # fmt: skip
        order = placed(self.board, generation, order)
        self.board.create_takeover_order(generation, order)
        recorded = AsRecorded(claim=a_claim(), order=order, process=None, submit=None, submit_version="")
        now = Current(generation=generation, incarnation=Incarnation(1), recorded=recorded)
        self.board.take_current(now, seen=seen)
        return order

    def line(self, **kwargs: Any) -> Line:
        self.counted.reset()
        line = read_line(self.board, **kwargs)
        assert line is not None
        return line


def test_generations_that_continue_one_another_are_one_line_without_a_turn():
    job = Job()
    for _ in range(5):
        job.start()
    line = job.line()
    assert line.turns == (Turn(generation=Generation(1), parent=BEGINNING, rewind="continue"),)
    assert all(line.where(Generation(number), 999) == OnLine() for number in range(1, 6))
    assert isinstance(line.where(Generation(6), 0), Elsewhere), "one that has not taken over"
    assert job.counted.requests == ["get orders/current.json"]


def test_what_came_after_the_point_of_a_fork_is_abandoned_by_it_and_the_point_itself_is_not():
    line = a_line(4, a_turn(3, back_to=1, run=10))
    assert line.where(Generation(1), 10) == OnLine(since=line.turns)
    assert line.where(Generation(1), 11) == Abandoned(by=line.turns[0])
    assert line.where(Generation(2), 1) == Abandoned(by=line.turns[0])
    assert line.where(Generation(3), 1) == line.where(Generation(4), 1) == OnLine()


def test_generation_that_goes_back_to_an_abandoned_line_is_on_that_one():
    job = Job()
    job.start()
    job.start(back_to=1, run=5, rewind="fork")
    job.start()
    job.start(back_to=1, run=9, rewind="fork")  # what the second had left behind
    line = job.line()
    assert [turn.generation for turn in line.turns] == [1, 4]
    assert isinstance(line.where(Generation(1), 9), OnLine)
    assert isinstance(line.where(Generation(3), 1), Abandoned)


def test_rewind_to_the_very_end_of_the_head_is_a_turn_too_and_leaves_nothing():
    job = Job()
    job.start()
    job.start(back_to=1, run=7, rewind="fork")
    line = job.line()
    assert line.where(Generation(1), 7) == OnLine(since=line.turns[1:])
    assert str(line.turns[1]) == "generation 2 started from generation 1 (fork)"


def test_parent_of_which_there_is_no_record_begins_the_line_by_the_savepoint_s_name():
    job = Job()
    job.start()
    job.board.store.delete("orders/runs/000001/takeover-order.json")
    job.newest = 7
    order = job.start(back_to=3, savepoint="sp-old")
    assert order.parent == a_parent(None, savepoint="sp-old")
    assert job.line().origin == "sp-old"
    assert isinstance(job.line().where(Generation(3), 1), Abandoned)


def test_caller_who_holds_the_job_stands_for_the_driver_whose_place_it_took():
    job = Job()
    job.start()
    job.start(back_to=1, run=3, rewind="fork")
    held = Current(generation=Generation(3), incarnation=Incarnation(0), stands_for=Generation(2))
    job.board.take_current(held, seen=job.board.current())
    line = job.line()
    assert (line.head, [turn.generation for turn in line.turns]) == (2, [1, 2])
    assert len(job.counted.requests) == 2


@pytest.mark.parametrize(
    "turns",
    [
        (a_turn(2, back_to=1), a_turn(2, back_to=1)),  # two lines with equal numbers
        (a_turn(3, back_to=1), a_turn(2, back_to=1)),
        (a_turn(2, back_to=2),),  # a circle
        (a_turn(2, back_to=3), a_turn(3, back_to=2)),
        (a_turn(3, back_to=1), a_turn(5, back_to=2)),  # to what was left before
        (a_turn(2, back_to=1), a_turn(3, back_to=None)),  # a beginning in the middle
        (a_turn(9, back_to=1),),  # of a later generation than the head
    ],
)
def test_turns_that_no_starts_can_have_made_are_refused(turns: tuple[Turn, ...]):
    with refuses(LINE, match="takeover order of generation 8 was expected to say what it continues"):
        a_line(8, *turns)


def test_head_whose_parent_is_not_before_it_is_refused():
    with refuses(LINE, match="found generation 8 before it"):
        a_line(8, parent=a_parent(8))


def test_head_without_an_order_is_refused():
    job = Job()
    job.board.take_current(Current(generation=Generation(4), incarnation=Incarnation(1)), seen=None)
    with refuses(LINE, match=r"generation 4 .* found none, although it took the job over"):
        job.line()


def test_damaged_record_is_refused_and_named():
    job = Job()
    job.board.store.write("orders/current.json", b'{"version": 2, "generation": 1')
    with pytest.raises(MessageFormatError, match=r"current\.json"):
        job.line()


def test_line_of_many_generations_that_continue_is_read_by_one_request():
    turns = (Turn(generation=Generation(1), parent=BEGINNING, rewind="continue"),)
    line = a_line(MANY, *turns, parent=a_parent(MANY - 1, 3))
    with counted() as effort:
        assert all(line.where(Generation(number), 1) == OnLine() for number in range(1, MANY + 1))
    assert effort.calls < 20 * MANY
    job = Job()
    job.newest = MANY - 1
    job.start(back_to=0)
    assert len(job.counted.requests) < 10
    job.line()
    assert job.counted.requests == ["get orders/current.json"]


def test_line_of_many_forks_is_read_as_far_back_as_it_matters():
    job = Job()
    job.start()
    for number in range(2, 1001):
        job.start(back_to=number - 1, run=1, rewind="fork")
    line = job.line(back_to=990)
    assert len(line.turns) == MOST_TURNS
    assert job.counted.requests == ["get orders/current.json"]
    assert job.counted.bytes < 10_000
    assert isinstance(line.where(Generation(1), 1), Elsewhere), "it is not known here"
    line = job.line()
    assert len(line.turns) == 1000
    assert len(job.counted.requests) == pytest.approx(1000 / MOST_TURNS, abs=2)
    assert isinstance(line.where(Generation(1), 1), OnLine)
    assert isinstance(line.where(Generation(1), 2), Abandoned)
