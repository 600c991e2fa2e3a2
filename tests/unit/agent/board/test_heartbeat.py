from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.board import heartbeat
from airflow_flinkstyle.agent.core.board.heartbeat import HeartbeatThread, HeartbeatWriter
from airflow_flinkstyle.agent.core.errors import SupersededError
from airflow_flinkstyle.agent.core.process import HALT_PATIENCE_S
from airflow_flinkstyle.agent.spark.process import DriverProcess
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.query_records import QueryStatus
from airflow_flinkstyle.protocol.records import Current
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.s3 import S3Store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from airflow_flinkstyle.types import BatchId
from testbed.memory_store import MemoryStore
from tests.unit.agent.conftest import G1, G2, I1, I2, a_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.unit.agent.conftest import Clock


def a_writer(board: JobBoard, **changes: object) -> HeartbeatWriter:
    values: dict[str, object] = {"lease_s": 6.0, "seen": None, "queries": dict, "before": {}}
    return HeartbeatWriter(board, G1, I2, **{**values, **changes})  # type: ignore[arg-type]


def state_of(board: JobBoard) -> str:
    slot = board.heartbeat(G1)
    assert slot is not None
    return slot.value.state


def test_beat_in_the_background_takes_back_no_state() -> None:
    board = JobBoard(MemoryStore(), "orders")

    def queries() -> dict[str, object]:  # a beat looks at every checkpoint, which takes its time
        if looks.pop():
            writer.beat("running")
        return {}

    looks = [False, True, False]  # at the beat of the take-over, at the one in the background, at the first
    writer = a_writer(board, queries=queries)
    writer.beat("standby")
    writer.beat()
    assert state_of(board) == "running"


@pytest.mark.parametrize(
    ("url", "said"), [("http://host:4040", "http://host:4040"), (None, None), ("http://" + "h" * 200, None)]
)
def test_heartbeat_names_sparks_ui_unless_its_address_is_too_long(url: str | None, said: str | None) -> None:
    board = JobBoard(MemoryStore(), "orders")
    writer = a_writer(board)
    writer.spark_is_up(spark_version="4.2.0", application_id="app-1", ui_url=url)
    writer.beat("running")
    slot = board.heartbeat(G1)
    assert slot is not None
    assert slot.value.ui_url == said


def test_driver_that_dies_before_its_queries_start_hands_on_what_was_known_of_them() -> None:
    board = JobBoard(MemoryStore(), "orders")
    before = {
        name: QueryStatus(query_id=name, batch_id=BatchId(7), batch_committed_at_ms=1, sources={})
        for name in "ab"
    }
    own: dict[str, QueryStatus] = {}
    writer = a_writer(board, queries=lambda: own, before=before)

    def said() -> dict[str, int]:
        slot = board.heartbeat(G1)
        assert slot is not None
        return slot.value.batches()

    writer.beat("starting")
    assert said() == {"a": 7, "b": 7}
    own["a"] = replace(before["a"], batch_id=BatchId(8))
    writer.beat("running")
    assert said() == {"a": 8, "b": 7}
    writer.end("closed")
    assert said() == {"a": 8}, "it would be believed, and b may have gone on since"


def test_last_word_stays_the_last_one() -> None:
    board = JobBoard(MemoryStore(), "orders")
    writer = a_writer(board)
    writer.beat()
    writer.end("closed", request_id="r", savepoint_id="s")
    writer.beat("running")
    assert state_of(board) == "closed"
    assert not writer.lease_is_lost()


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_write_that_took_effect_and_seemed_to_fail_is_followed_by_the_next(call: int) -> None:
    store = MemoryStore()
    board = JobBoard(store, "orders")
    writer = a_writer(board)
    store.fail_at(call, lost_answer=True)
    for state in ("starting", "standby", "running", "draining", "draining"):
        try:
            writer.beat(state)  # type: ignore[arg-type]
        except StoreUnavailableError:
            continue
    assert state_of(board) == "draining"


def test_heartbeat_of_another_incarnation_supersedes_this_one() -> None:
    board = JobBoard(MemoryStore(), "orders")
    writer = a_writer(board)
    writer.beat("running")
    slot = board.heartbeat(G1)
    assert slot is not None
    board.beat(G1, a_heartbeat(incarnation=I1), seen=slot.version)
    with pytest.raises(SupersededError, match="incarnation 1"):
        writer.beat()


def test_lease_is_lost_from_the_begin_of_the_last_write_that_succeeded(
    clock: Clock,
) -> None:
    store = MemoryStore()
    writer = a_writer(JobBoard(store, "orders"), clock=clock)
    writer.beat("running")
    clock.now_s += 4.0
    store.fail_at(1)
    with pytest.raises(StoreUnavailableError):
        writer.beat()
    clock.now_s += 2.0 - heartbeat.WATCH_INTERVAL_S - HALT_PATIENCE_S
    assert not writer.lease_is_lost()
    clock.now_s += 0.01  # what is left of the lease of 6 s is what ending may take
    assert writer.lease_is_lost()


def test_other_driver_in_current_is_noticed() -> None:
    board = JobBoard(MemoryStore(), "orders")
    writer = a_writer(board)
    board.take_current(Current(generation=G1, incarnation=I2), seen=None)
    assert writer.is_current()
    board.take_current(Current(generation=G2, incarnation=I1), seen=board.current())
    assert not writer.is_current()


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s, "it never came true"
        time.sleep(0.01)


def test_lease_is_kept_while_a_look_at_the_checkpoints_hangs() -> None:
    board = JobBoard(MemoryStore(), "orders")
    now_running, hangs, goes_on = threading.Event(), threading.Event(), threading.Event()

    def queries() -> dict[str, QueryStatus]:
        if now_running.is_set():
            hangs.set()
            goes_on.wait(30)
        return {"a": QueryStatus(query_id="a", batch_id=BatchId(3), batch_committed_at_ms=1, sources={})}

    writer = a_writer(board, lease_s=0.6, queries=queries)
    writer.beat("running")
    board.take_current(Current(generation=G1, incarnation=I2), seen=None)
    thread = HeartbeatThread(writer, DriverProcess(), news=lambda: False)
    writer.renew()
    now_running.set()
    thread.start()
    assert hangs.wait(30)
    begun = writer.confirmed_at_s
    until(lambda: writer.confirmed_at_s > begun + 2 * writer.lease_s)
    slot = board.heartbeat(G1)
    assert slot is not None
    assert slot.value.batches() == {"a": 3}, "what was known is said again"
    goes_on.set()
    writer.end("closed")
    thread.join(30)


def test_look_that_began_earlier_takes_nothing_back_when_it_ends_later() -> None:
    """A query that was just admitted must stay named, or a relaunch would not know what it stands for."""
    board = JobBoard(MemoryStore(), "orders")
    slow, goes_on = threading.Event(), threading.Event()
    named: dict[str, QueryStatus] = {}

    def queries() -> dict[str, QueryStatus]:
        found = dict(named)
        if threading.current_thread() is background:
            slow.set()
            goes_on.wait(30)
        return found

    writer = a_writer(board, queries=queries)
    background = threading.Thread(target=writer.beat)
    background.start()
    assert slow.wait(30)
    named["a"] = QueryStatus(query_id="a", batch_id=None, batch_committed_at_ms=None, sources={})
    writer.beat("running")
    goes_on.set()
    background.join(30)
    slot = board.heartbeat(G1)
    assert slot is not None
    assert set(slot.value.queries) == {"a"}


@pytest.fixture
def stalled() -> Iterator[str]:
    """An S3 service that takes every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_stalled_answer_leaves_time_to_try_again_within_the_lease(stalled: str) -> None:
    settings = S3Settings(endpoint=stalled, region="us-east-1", access_key="a", secret_key="b")  # noqa: S106
    store = S3Store(bucket="b", prefix="p", settings=settings)
    writer = a_writer(JobBoard(store, "orders"), lease_s=8.0)
    with pytest.raises(StoreUnavailableError):
        writer.beat()  # makes the client, which takes its time on a busy machine
    begun_s = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        writer.beat()
    assert time.monotonic() - begun_s < writer.lease_s / 2
    assert writer.board.store.uri == store.uri


def test_generation_that_has_committed_has_for_ever_and_says_so() -> None:
    board, committed = JobBoard(MemoryStore(), "j"), [False, True, False]
    writer = a_writer(board, has_committed=lambda: committed.pop(0))
    said = []
    for _ in range(3):
        writer.beat("running")
        slot = board.heartbeat(G1)
        said.append(slot is not None and slot.value.has_committed)
    assert said == [False, True, True]
    seen = slot.version if slot is not None else None
    relaunched = a_writer(board, has_committed=lambda: False, committed_before=True, seen=seen)
    relaunched.beat("starting")
    slot = board.heartbeat(G1)
    assert slot is not None
    assert slot.value.has_committed
