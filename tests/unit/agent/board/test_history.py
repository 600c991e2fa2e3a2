"""The thread that keeps the history: few requests, another writer's points kept, never a driver's end."""

from __future__ import annotations

from airflow_flinkstyle.agent.core.board.heartbeat import HeartbeatWriter, HistoryKeeper
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.query_records import Pace, QueryStatus
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreUnavailableError
from airflow_flinkstyle.types import BatchId
from testbed.memory_store import MemoryStore
from tests.unit.agent.conftest import G1, I1


def a_pace() -> Pace:
    return Pace(
        batch_id=BatchId(1),
        begun_at_ms=now_ms(),
        batch_ms=100,
        rows=1,
        input_rows_per_s=2.0,
        processed_rows_per_s=10.0,
        watermark_ms=None,
        state_rows=0,
        sources=(),
    )


def a_keeper(board: JobBoard, *queries: QueryStatus) -> HistoryKeeper:
    known = {str(number): query for number, query in enumerate(queries)}
    writer = HeartbeatWriter(board, G1, I1, lease_s=6.0, seen=None, queries=lambda: known, before={})
    writer.read_queries()
    return HistoryKeeper(board, writer)


def a_query(pace: Pace | None) -> QueryStatus:
    return QueryStatus(query_id=None, batch_id=None, batch_committed_at_ms=None, sources={}, pace=pace)


def noted(board: JobBoard) -> int:
    slot = board.history()
    return sum(point.samples for point in slot.value.samples()[86400]) if slot else 0


def test_two_drivers_of_a_job_lose_no_point_to_each_other():
    board = JobBoard(MemoryStore(), "orders")
    first, second = a_keeper(board, a_query(a_pace())), a_keeper(board, a_query(a_pace()))
    for keeper in (first, second, first, second):
        keeper.sample()
        assert keeper.write()
    assert noted(board) == 4


def test_nothing_is_asked_of_the_store_before_a_query_tells_of_a_batch():
    board = JobBoard(MemoryStore(), "orders")
    keeper = a_keeper(board, a_query(None))
    keeper.sample()
    keeper.write()
    assert board.history() is None


def test_history_that_cannot_be_read_begins_anew():
    board = JobBoard(MemoryStore(), "orders")
    board.store.write("orders/history.json", b"not json")
    keeper = a_keeper(board, a_query(a_pace()))
    keeper.sample()
    assert keeper.write()
    assert noted(board) == 1


class FailingStore(MemoryStore):
    """Refuses every write of a history."""

    error: Exception | None = None

    def create(self, key: str, data: bytes) -> str:
        if self.error is not None:
            raise self.error
        return super().create(key, data)


def test_samples_wait_for_a_store_that_is_away():
    store = FailingStore()
    board, store.error = (
        JobBoard(store, "orders"),
        StoreUnavailableError.during("write", "memory://x", OSError()),
    )
    keeper = a_keeper(board, a_query(a_pace()))
    keeper.sample()
    assert keeper.write(), "it is tried again"
    store.error = None
    keeper.sample()
    assert keeper.write()
    assert noted(board) == 2


def test_a_driver_without_the_right_to_keep_it_runs_on_and_asks_once():
    store = FailingStore()
    board, store.error = JobBoard(store, "orders"), StoreDeniedError.during("write", "memory://x", OSError())
    keeper = a_keeper(board, a_query(a_pace()))
    keeper.sample()
    assert not keeper.write()


def test_what_is_left_is_written_at_the_end():
    board = JobBoard(MemoryStore(), "orders")
    keeper = a_keeper(board, a_query(a_pace()))
    keeper.start()
    keeper.finish()
    assert noted(board) == 1
