"""What is read once for all: few requests, and nobody who asks waits in a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.plugin.cache.errors import StoreBusyError
from airflow_flinkstyle.plugin.cache.pieces import (
    MOST_PIECES,
    MOST_READERS,
    MOST_WAITING,
    CachedAnswer,
    Pieces,
)
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.meter import Meter, MeteredStore
from testbed.memory_store import MemoryStore
from testbed.waiting import wait_until
from tests.unit.clocks import SleptClock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.airflow


class Reads:
    """Counts, and waits if told to."""

    def __init__(self) -> None:
        self.count, self._lock = 0, threading.Lock()
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self) -> int:
        with self._lock:
            self.count += 1
            found = self.count
        assert self.may_end.wait(60)
        return found


@pytest.fixture
def reads() -> Iterator[Reads]:
    reads = Reads()
    yield reads
    reads.may_end.set()


def get(pieces: Pieces, *asked: Any, **how: Any) -> int:
    return asyncio.run(pieces.get(*asked, **how))


def kept(pieces: Pieces, *asked: Any, **how: Any) -> CachedAnswer:
    return asyncio.run(pieces.kept(*asked, **how))


def test_many_who_ask_at_once_cause_one_read(reads: Reads):
    pieces = Pieces(Meter())

    async def main() -> list[int]:
        reads.may_end.clear()  # on a slow machine the answer would be old before the last one asks
        asked = [asyncio.ensure_future(pieces.get("job", reads)) for _ in range(200)]
        await asyncio.sleep(0)
        reads.may_end.set()
        return await asyncio.gather(*asked)

    assert set(asyncio.run(main())) == {1}
    assert reads.count == 1


def test_answer_is_read_again_when_it_is_old(reads: Reads):
    pieces = Pieces(Meter())
    assert [get(pieces, "job", reads, fresh_s=0), get(pieces, "job", reads, fresh_s=0)] == [1, 2]


def test_store_that_was_asked_enough_is_left_alone_and_the_older_answer_given(reads: Reads):
    clock = SleptClock()
    meter = Meter(1, now_s=lambda: clock.now_s)
    pieces = Pieces(meter)
    get(pieces, "job", reads, fresh_s=0)
    meter.count()
    assert kept(pieces, "job", reads, fresh_s=0).is_stale
    with pytest.raises(StoreBusyError, match="asked 1 times in a minute"):
        get(pieces, "another", reads)
    assert reads.count == 1
    clock.sleep(60)
    assert get(pieces, "job", reads, fresh_s=0) == 2


def test_slow_read_is_waited_for_so_long_and_the_older_answer_given_with_its_age(reads: Reads):
    pieces = Pieces(Meter(), patience_s=0.05)
    get(pieces, "known", reads, fresh_s=0)
    reads.may_end.clear()
    found = kept(pieces, "known", reads, fresh_s=0)
    assert (found.value, found.is_stale) == (1, True)
    assert found.age_s >= 0.05
    with pytest.raises(StoreBusyError, match="has not answered yet"):
        get(pieces, "new", reads)
    assert reads.count == 3
    reads.may_end.set()
    wait_until("it came", lambda: get(pieces, "new", reads) == 3)
    assert not kept(pieces, "known", reads).is_stale


def test_store_that_hangs_holds_so_many_threads_and_who_asks_holds_none(reads: Reads):
    pieces, before = Pieces(Meter(10_000), patience_s=0.05), threading.active_count()
    reads.may_end.clear()

    async def main() -> list[Any]:
        asking = (pieces.get(number, reads) for number in range(1000))
        return await asyncio.gather(*asking, return_exceptions=True)

    found = asyncio.run(main())
    assert {type(one) for one in found} <= {StoreBusyError, StoreUnavailableError}
    assert sum("too many wait" in str(one) for one in found) >= 1000 - MOST_READERS - MOST_WAITING
    assert reads.count == MOST_READERS
    assert threading.active_count() <= before + MOST_READERS + 1


def test_read_that_fails_is_not_kept_and_frees_the_place(reads: Reads):
    pieces = Pieces(Meter(), patience_s=5)

    def fails() -> None:
        raise ZeroDivisionError

    for _ in range(2 * MOST_READERS):
        with pytest.raises(ZeroDivisionError):
            get(pieces, "job", fails)
    assert get(pieces, "job", reads) == 1


def test_store_that_is_away_is_an_error_only_where_nothing_older_is_known(reads: Reads):
    pieces = Pieces(Meter(), patience_s=5)

    def is_away() -> None:
        raise StoreUnavailableError.during("read a", "s3://b", "no route")

    with pytest.raises(StoreUnavailableError):
        get(pieces, "job", is_away)
    get(pieces, "job", reads)
    assert kept(pieces, "job", is_away, fresh_s=0).value == 1
    assert kept(pieces, "job", is_away, fresh_s=0).is_stale


def test_answers_that_were_not_asked_for_longest_go(reads: Reads):
    pieces = Pieces(Meter())

    async def main() -> None:
        for number in range(MOST_PIECES + 1):
            await pieces.get(number, reads)
        await pieces.get(MOST_PIECES, reads)
        assert reads.count == MOST_PIECES + 1
        await pieces.get(0, reads)

    asyncio.run(main())
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
    for number in range(1000):
        store.create(f"job/{number:04d}", b"")
    metered = MeteredStore(store, meter)
    assert metered.read("job/0000") == b""
    assert metered.uri == store.uri
    assert meter.requests == 1
    assert len(list(metered.list("job/"))) == 1000
    assert meter.requests == 2
    store.create("job/1000", b"")
    assert len(list(metered.list("job/"))) == 1001
    assert meter.requests == 4


def test_change_makes_the_answers_that_it_touches_be_read_again(reads: Reads):
    pieces = Pieces(Meter())
    assert [get(pieces, "savepoints", reads), get(pieces, "other", reads)] == [1, 2]
    changed = []
    asyncio.run(pieces.act(lambda: changed.append(1), "savepoints", "never read"))
    assert changed == [1]
    assert [get(pieces, "savepoints", reads), get(pieces, "other", reads)] == [3, 2]


def test_change_that_fails_leaves_the_answers(reads: Reads):
    pieces = Pieces(Meter())
    get(pieces, "savepoints", reads)

    def fails() -> None:
        raise StoreBusyError("a", state_after="b", remedy="c")

    with pytest.raises(StoreBusyError):
        asyncio.run(pieces.act(fails, "savepoints"))
    assert get(pieces, "savepoints", reads) == 1


def test_change_that_has_not_begun_is_given_up_and_one_under_way_is_waited_for(reads: Reads):
    pieces, changed = Pieces(Meter(), patience_s=0.05), []
    reads.may_end.clear()

    async def main() -> None:
        reading = (pieces.get(number, reads) for number in range(MOST_READERS))
        await asyncio.gather(*reading, return_exceptions=True)
        with pytest.raises(StoreBusyError, match="Nothing was changed"):
            await pieces.act(lambda: changed.append("late"))
        reads.may_end.set()
        slow = threading.Event()
        acting = asyncio.ensure_future(pieces.act(lambda: changed.append(slow.wait(60))))
        await asyncio.sleep(0.2)
        slow.set()
        await acting

    asyncio.run(main())
    assert changed == [True]
