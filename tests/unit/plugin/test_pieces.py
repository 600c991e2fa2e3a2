"""What is read once for all: few requests, and few threads that wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_flinkstyle.plugin.cache.errors import StoreBusyError
from airflow_flinkstyle.plugin.cache.meter import Meter, MeteredStore
from airflow_flinkstyle.plugin.cache.pieces import MOST_PIECES, MOST_READERS, Pieces
from testbed.memory_store import MemoryStore
from testbed.waiting import wait_until
from tests.unit.clocks import SleptClock

pytestmark = pytest.mark.airflow


class Reads:
    """Counts, and waits if told to."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self) -> int:
        self.count += 1
        assert self.may_end.wait(60)
        return self.count


def test_many_who_ask_at_once_cause_one_read():
    pieces, reads = Pieces(Meter()), Reads()
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: pieces.get("job", reads), range(200)))
    assert set(answers) == {1}
    assert reads.count == 1


def test_answer_is_read_again_when_it_is_old():
    pieces, reads = Pieces(Meter()), Reads()
    assert [pieces.get("job", reads, fresh_s=0), pieces.get("job", reads, fresh_s=0)] == [1, 2]


def test_store_that_was_asked_enough_is_left_alone_and_the_older_answer_given():
    clock, reads = SleptClock(), Reads()
    meter = Meter(1, now_s=lambda: clock.now_s)
    pieces = Pieces(meter)
    pieces.get("job", reads, fresh_s=0)
    meter.count()
    assert pieces.get("job", reads, fresh_s=0) == 1
    with pytest.raises(StoreBusyError, match="asked 1 times in a minute"):
        pieces.get("another", reads)
    assert reads.count == 1
    clock.sleep(60)
    assert pieces.get("job", reads, fresh_s=0) == 2


def test_one_slow_read_holds_no_one_else():
    pieces, reads = Pieces(Meter(), patience_s=0.05), Reads()
    pieces.get("known", reads, fresh_s=0)
    reads.may_end.clear()
    with ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(pieces.get, key, reads, fresh_s=0) for key in ("new", "known")]
        wait_until("both read", lambda: reads.count == 3)
        with pytest.raises(StoreBusyError, match="has not answered yet"):
            pieces.get("new", reads)
        assert pieces.get("known", reads, fresh_s=0) == 1
        reads.may_end.set()
        assert {one.result() for one in slow} == {3}


def test_slow_store_holds_so_many_threads_and_no_more():
    pieces, reads = Pieces(Meter(), patience_s=0.05), Reads()
    reads.may_end.clear()
    with ThreadPoolExecutor(MOST_READERS) as pool:
        held = [pool.submit(pieces.get, number, reads) for number in range(MOST_READERS)]
        wait_until("all read", lambda: reads.count == MOST_READERS)
        with pytest.raises(StoreBusyError, match="not answered others"):
            pieces.get("one more", reads)
        reads.may_end.set()
        for one in held:
            one.result()
    assert pieces.get("one more", reads) == MOST_READERS + 1


def test_read_that_fails_is_not_kept_and_frees_the_place():
    pieces, reads = Pieces(Meter(), patience_s=0.05), Reads()

    def fails() -> None:
        raise StoreBusyError("a", state_after="b", remedy="c")

    for _ in range(2 * MOST_READERS):
        with pytest.raises(StoreBusyError, match="a"):
            pieces.get("job", fails)
    assert pieces.get("job", reads) == 1


def test_answers_that_were_not_asked_for_longest_go():
    pieces, reads = Pieces(Meter()), Reads()
    for number in range(MOST_PIECES + 1):
        pieces.get(number, reads)
    pieces.get(MOST_PIECES, reads)
    assert reads.count == MOST_PIECES + 1
    pieces.get(0, reads)
    assert reads.count == MOST_PIECES + 2


def test_meter_fills_with_time_up_to_a_minute():
    clock = SleptClock()
    meter = Meter(60, now_s=lambda: clock.now_s)
    for _ in range(60):
        assert meter.may_ask()
        meter.count()
    assert not meter.may_ask()
    clock.sleep(1)
    assert meter.may_ask()
    meter.count()
    assert not meter.may_ask()
    clock.sleep(3600)
    for _ in range(60):
        meter.count()
    assert not meter.may_ask()
    assert meter.requests == 121


def test_meter_holds_several_minutes_if_told_to():
    clock = SleptClock()
    meter = Meter(60, burst_minutes=2, now_s=lambda: clock.now_s)
    for _ in range(120):
        assert meter.may_ask()
        meter.count()
    assert not meter.may_ask()
    clock.sleep(1)
    assert meter.may_ask()


def test_metered_store_counts_calls_and_each_page_of_a_listing():
    meter, store = Meter(), MemoryStore()
    for number in range(1001):
        store.create(f"job/{number:04d}", b"")
    metered = MeteredStore(store, meter)
    assert metered.read("job/0000") == b""
    assert metered.uri == store.uri
    assert meter.requests == 1
    assert len(list(metered.list("job/"))) == 1001
    assert meter.requests == 3


def test_change_makes_the_answers_that_it_touches_be_read_again():
    pieces, reads = Pieces(Meter()), Reads()
    assert [pieces.get("savepoints", reads), pieces.get("other", reads)] == [1, 2]
    changed = []
    pieces.act(lambda: changed.append(1), "savepoints", "never read")
    assert changed == [1]
    assert [pieces.get("savepoints", reads), pieces.get("other", reads)] == [3, 2]


def test_change_that_fails_leaves_the_answers():
    pieces, reads = Pieces(Meter()), Reads()
    pieces.get("savepoints", reads)

    def fails() -> None:
        raise StoreBusyError("a", state_after="b", remedy="c")

    with pytest.raises(StoreBusyError):
        pieces.act(fails, "savepoints")
    assert pieces.get("savepoints", reads) == 1


def test_change_is_refused_while_too_many_wait_for_the_store():
    pieces, reads = Pieces(Meter(), patience_s=0.05), Reads()
    reads.may_end.clear()
    with ThreadPoolExecutor(MOST_READERS) as pool:
        held = [pool.submit(pieces.get, number, reads) for number in range(MOST_READERS)]
        wait_until("all read", lambda: reads.count == MOST_READERS)
        with pytest.raises(StoreBusyError, match="Nothing was changed"):
            pieces.act(lambda: None)
        reads.may_end.set()
        for one in held:
            one.result()
