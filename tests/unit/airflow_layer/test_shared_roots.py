"""A root whose store hangs holds its own threads, and nobody else's."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks import shared_roots
from airflow_flinkstyle.hooks.airflow_versions import in_thread
from airflow_flinkstyle.hooks.shared_roots import MOST_THREADS, SharedRoot, shared_root
from airflow_flinkstyle.hooks.store_threads import StoreThreads
from airflow_flinkstyle.storage.breaker import FAILURES
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import SimpleNamespace

pytestmark = pytest.mark.airflow


class Hangs:
    """Counts who is in it; nobody comes out until told."""

    def __init__(self) -> None:
        self.inside, self.may_end, self._lock = 0, threading.Event(), threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.inside += 1
        assert self.may_end.wait(60)
        return "back"


@pytest.fixture
def hangs() -> Iterator[Hangs]:
    hangs = Hangs()
    yield hangs
    hangs.may_end.set()


def test_a_thousand_who_wait_for_one_root_hold_no_other_root_and_no_other_provider(
    hangs: Hangs,
):
    hung, other = SharedRoot("hung"), SharedRoot("other")

    async def main() -> list[str | None]:
        waiting = [asyncio.ensure_future(hung.ask(hangs)) for _ in range(1000)]
        while hangs.inside < MOST_THREADS:
            await asyncio.sleep(0.01)
        for _ in range(20):
            assert await other.ask(lambda: "other root") == "other root"
            assert await in_thread(lambda: "other provider") == "other provider"
        assert hangs.inside == MOST_THREADS
        hangs.may_end.set()
        return await asyncio.gather(*waiting)

    assert asyncio.run(main()) == ["back"] * 1000


def test_store_that_is_left_alone_costs_no_thread(hangs: Hangs):
    root = SharedRoot("hung")
    for _ in range(FAILURES):
        root._breaker.failed()

    async def main() -> None:
        assert root.is_paused
        assert [await root.ask(hangs) for _ in range(100)] == [None] * 100

    asyncio.run(main())
    assert hangs.inside == 0


def test_those_who_wait_for_a_thread_leave_a_store_alone_that_fell_silent_meanwhile(hangs: Hangs):
    root, asked = SharedRoot("hung"), []

    async def main() -> None:
        held = [asyncio.ensure_future(root.ask(hangs)) for _ in range(MOST_THREADS)]
        behind = [asyncio.ensure_future(root.ask(lambda: asked.append(1))) for _ in range(100)]
        while hangs.inside < MOST_THREADS:
            await asyncio.sleep(0.01)
        for _ in range(FAILURES):
            root._breaker.failed()
        hangs.may_end.set()
        await asyncio.gather(*held, *behind)

    asyncio.run(main())
    assert asked == []


def test_what_a_task_must_say_is_said_whatever_is_known_of_the_store():
    root = SharedRoot("hung")
    for _ in range(FAILURES):
        root._breaker.failed()
    assert asyncio.run(root.call(lambda: "said")) == "said"


def test_root_is_shared_by_its_connection():
    assert shared_root("a") is shared_root("a")
    assert shared_root("a") is not shared_root("b")


def test_threads_are_made_when_needed_and_a_call_that_is_given_up_is_not_made(hangs: Hangs):
    threads = StoreThreads("a", 2)
    before = threading.active_count()
    first = [threads.submit(hangs) for _ in range(2)]
    wait_until("both run", lambda: hangs.inside == 2)
    third = threads.submit(hangs)
    assert third.cancel()
    hangs.may_end.set()
    assert [one.result(10) for one in first] == ["back", "back"]
    assert threads.submit(lambda: "next").result(10) == "next"
    assert hangs.inside == 2
    assert threading.active_count() <= before + 2


def test_error_reaches_who_waits_and_the_thread_goes_on():
    threads = StoreThreads("a", 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(10)
    assert threads.submit(lambda: 1).result(10) == 1


def test_more_than_may_wait_are_refused(hangs: Hangs):
    threads = StoreThreads("a", 1, most_waiting=2)
    threads.submit(hangs)
    wait_until("it runs", lambda: hangs.inside == 1)
    waiting = [threads.submit(hangs) for _ in range(2)]
    with pytest.raises(StoreUnavailableError, match="too many wait"):
        threads.submit(hangs)
    hangs.may_end.set()
    assert [one.result(10) for one in waiting] == ["back", "back"]


def test_connection_is_read_again_and_its_clients_stay_as_long_as_it_says_the_same(
    connections: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    root = SharedRoot("flinkstyle_default")
    first = root.hook
    assert root.hook is first
    monkeypatch.setattr(shared_roots, "RENEWED_S", -1.0)
    assert root.hook is first
    connections.set("flinkstyle_default", "flinkstyle", {"savepoint_root": "/elsewhere"}, password="k" * 32)
    assert root.hook is not first
    assert root.hook.defaults.savepoint_root == "/elsewhere"
    kept = root.hook
    connections.set("flinkstyle_default", "flinkstyle", {"savepoint_root": "/elsewhere"}, password="l" * 32)
    assert root.hook is not kept, "the signing key was changed"
    connections.set("flinkstyle_default", "flinkstyle", {"savepoint_root": "/elsewhere"}, password="k" * 5)
    assert root.hook is not kept
