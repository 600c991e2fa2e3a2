"""What a script is told of queries that are held; the objects here stand for Spark's own."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from airflow_flinkstyle.agent.core.board.takeover import DriverRun
from airflow_flinkstyle.agent.core.errors import QUERY_ENDED
from airflow_flinkstyle.agent.core.queries.hold import QueryHold
from airflow_flinkstyle.agent.core.queries.registry import Queries
from airflow_flinkstyle.agent.core.run import held_cut
from airflow_flinkstyle.agent.core.runtime import Runtime
from airflow_flinkstyle.agent.spark import held
from airflow_flinkstyle.agent.spark.process import DriverProcess
from airflow_flinkstyle.agent.spark.stand_in import StandIn
from airflow_flinkstyle.agent.spark.starts import PySparkQuery, PySparkStart
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH, ClusterUnreachableError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.query_records import SourceIdentity
from airflow_flinkstyle.protocol.records import Request
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.declared import AS_BEFORE
from tests.small_spark import SmallSpark, SmallStart, SmallStream
from tests.unit.agent.conftest import G1, I1, a_claim
from tests.unit.agent.job_queries import a_query_of_two_batches, commit, plan
from tests.unit.agent.views import a_view

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.types import Alignment
    from tests.unit.agent.conftest import Clock


def a_run(number: int) -> SimpleNamespace:
    return SimpleNamespace(runId=f"run-{number}", isActive=lambda: False)


def a_handle(number: int) -> SimpleNamespace:
    return SimpleNamespace(id="query-1", _jsq=a_run(number), exception=lambda: None)


def a_query(queries: Queries, number: int) -> JobQuery:
    query = queries.register("orders", a_start(queries), (), AS_BEFORE)
    queries.settle(query, PySparkQuery(a_handle(number), MagicMock()))
    return query


def a_start(queries: Queries, run: Callable[[], Any] = lambda: None) -> PySparkStart:
    start = PySparkStart(MagicMock(), run)
    queries.known_spark = SmallSpark()
    return start


def test_a_query_that_is_about_to_start_again_is_not_missed() -> None:
    queries = Queries("/checkpoints")
    first = a_query(queries, 1)
    first.thread = object()
    again = queries.register("orders", a_start(queries), (), AS_BEFORE)
    assert queries.all() == [again]
    assert (again.query, again.thread) == (first.query, first.thread)


def test_any_handle_of_a_held_run_stands_for_the_run_that_went_on() -> None:
    queries = Queries("/checkpoints")
    query, hold = a_query(queries, 2), QueryHold(queries)
    query.held_runs.add("run-1")
    other = a_handle(1)
    assert hold.follow(other, "run-1")
    assert other._jsq is query.started.handle._jsq
    assert not hold.follow(other, "run-2")


def test_queries_that_are_held_are_listed_as_active_once() -> None:
    queries = Queries("/checkpoints")
    query, hold = a_query(queries, 1), QueryHold(queries)
    assert hold.with_held([]) == []
    hold._held = {"query-1": query}
    handle = query.started.handle
    assert hold.with_held([]) == [handle]
    assert hold.with_held([handle]) == [handle]


class SparkRun:
    """One run of a query: it ends its batch, then looks at the flag."""

    def __init__(self, name: str) -> None:
        self.runId, self.flagged, self.batch_ended = name, threading.Event(), threading.Event()

    def isAlive(self) -> bool:
        return not (self.flagged.is_set() and self.batch_ended.is_set())

    def isActive(self) -> bool:
        return not self.flagged.is_set()

    def streamingQuery(self) -> SimpleNamespace:
        state = MagicMock()
        state.set.side_effect = lambda _: self.flagged.set()
        return SimpleNamespace(
            state=lambda: state, queryExecutionThread=lambda: self, awaitProgressLock=MagicMock
        )


def a_running_query(queries: Queries, name: str) -> tuple[SparkRun, JobQuery]:
    first = SparkRun(f"{name}-1")
    handle = SimpleNamespace(
        id=name, runId=first.runId, _jsq=first, status={"isTriggerActive": True}, exception=lambda: None
    )
    run = lambda: SimpleNamespace(_jsq=SparkRun(f"{name}-2"))  # noqa: E731
    query = queries.register(name, a_start(queries, run), (), AS_BEFORE)
    queries.settle(query, PySparkQuery(handle, MagicMock()))
    query.thread = MagicMock()
    return first, query


WANTED: dict[str, Any] = {
    "check": lambda: None,
    "before_start": lambda _: None,
    "ends": lambda: False,
    "failed": lambda _: None,
}
"""A hold that nobody cancels, after which every query may go on."""


def a_request(alignment: Alignment) -> Request:
    return Request(
        request_id="r1",
        incarnation=I1,
        command="savepoint",
        state="sent",
        savepoint_id="sp-1",
        sent_at_ms=0,
        alignment=alignment,
    )


def until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_cancel_before_the_boundary_lets_queries_go_on_at_once_but_for_the_one_in_its_batch() -> None:
    queries, cancelled = Queries("/checkpoints"), threading.Event()
    first, fast = a_running_query(queries, "fast")
    batch, slow = a_running_query(queries, "slow")
    first.batch_ended.set()

    def look() -> None:
        if cancelled.is_set():
            raise InterruptedError

    def hold() -> None:
        with (
            contextlib.suppress(InterruptedError),
            QueryHold(queries).begin(**{**WANTED, "check": look}),
        ):
            raise AssertionError("held although a query is in its batch")

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    until(lambda: not first.isAlive())
    assert fast.started.handle._jsq is first
    cancelled.set()
    until(lambda: fast.started.handle._jsq is not first)
    assert slow.started.handle._jsq is batch
    batch.batch_ended.set()
    thread.join(10)
    assert not thread.is_alive()
    assert slow.started.handle._jsq is not batch


def test_cancel_while_a_planned_batch_runs_lets_the_query_go_on_behind_it(tmp_path: Path) -> None:
    """The agent runs that batch by itself: when it has ended, nobody else would start the query again."""
    queries, spark, runs = Queries(str(tmp_path)), SmallSpark(), list[bool]()
    begun, given_up, may_end = threading.Event(), threading.Event(), threading.Event()

    def run(_: object, once: bool) -> SmallStream:
        def batch(stream: SmallStream) -> None:
            if stream.once:
                begun.set()
                may_end.wait(10)
                commit(query, 1)

        runs.append(once)
        stream = SmallStream(batch, once=once, pause_s=0.005)
        stream.start()
        return stream

    start = SmallStart(spark, (), run)
    start.location, queries.known_spark = str(tmp_path), spark
    query = queries.register("orders", start, (), AS_BEFORE)
    queries.settle(query, start.run())
    commit(query, 0)
    plan(query, 1)

    def check() -> None:
        if begun.is_set():
            raise InterruptedError

    def ends() -> bool:
        given_up.set()
        return False

    def hold() -> None:
        with (
            contextlib.suppress(InterruptedError),
            QueryHold(queries).begin(**{**WANTED, "check": check, "ends": ends}),
        ):
            raise AssertionError("held although its batch runs")

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert given_up.wait(10)
    thread.join(0.3)  # one that does not wait for the batch has returned by then
    may_end.set()
    thread.join(10)
    assert not thread.is_alive()
    assert runs == [False, True, False]
    assert (query.is_active, query.quiet) == (True, False)
    query.started.stop()


def test_query_that_has_ended_is_in_no_aligned_cut(tmp_path: Path) -> None:
    board, driver_run = (
        JobBoard(MemoryStore(), "orders"),
        DriverRun(generation=G1, incarnation=I1, claim=a_claim(), prior=None, seen=None),
    )
    runtime = Runtime(board, SavepointRepository(MemoryStore(), "orders"), driver_run, DriverProcess())
    runtime.admission.taken_over, runtime.queries.root = True, str(tmp_path)
    runs = [a_running_query(runtime.queries, name)[0] for name in ("fast", "slow")]
    for name in ("fast", "slow"):
        (tmp_path / name / "commits").mkdir(parents=True)
        (tmp_path / name / "commits" / "0").touch()
    aligned, apart = a_request("aligned"), a_request("none")
    assert runtime.serving.refusal(aligned) is None
    for run in runs:
        run.batch_ended.set()
    with runtime.held.begin(**WANTED):
        runtime.held.require_all()
        runtime.held.leave_stopped(runtime.queries.all()[1].started.handle)  # by the script, meanwhile
        with refuses(QUERY_ENDED, match="found that slow ended"):
            runtime.held.require_all()
    assert "found that slow ended" in runtime.serving.refusal(aligned)
    assert runtime.serving.refusal(apart) is None


class SparkManager:
    """Knows whether a query has ended since it was reset."""

    def __init__(self, *, seen: bool) -> None:
        self.seen = seen

    def awaitAnyTermination(self, _timeout_ms: int) -> bool:
        return self.seen

    def resetTerminated(self) -> None:
        self.seen = False

    def listListeners(self) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("ended_before", "stopped_meanwhile"), [(False, False), (True, False), (False, True)]
)
def test_hold_ends_no_query_for_those_who_await_any_and_hides_no_end(
    *, ended_before: bool, stopped_meanwhile: bool
) -> None:
    queries, manager = Queries("/checkpoints"), SparkManager(seen=ended_before)
    hold = QueryHold(queries)
    run, query = a_running_query(queries, "fast")
    query.session.spark.streams._jsqm = manager
    run.batch_ended.set()
    with hold.begin(**WANTED):
        manager.seen = True  # the run that was held has ended
        if stopped_meanwhile:
            hold.leave_stopped(query.started.handle)
    assert manager.seen == (ended_before or stopped_meanwhile)


class Listener:
    """Of the JVM: Spark's own, or one of a JAR."""

    def __init__(self, name: str) -> None:
        self.name = name

    def getClass(self) -> Listener:
        return self

    def getName(self) -> str:
        return self.name


@pytest.mark.parametrize("ends_with", [None, QUERY_ENDED.error(names="x")])
def test_listeners_of_the_jvm_hear_nothing_of_a_hold_and_everything_behind_it(
    ends_with: FlinkstyleError | None,
) -> None:
    queries = Queries("/checkpoints")
    run, query = a_running_query(queries, "fast")
    own, of_spark = Listener("shop.Restarts"), Listener("org.apache.spark.sql.streaming.ui.Page")
    there, manager, heard = [own, of_spark], SparkManager(seen=False), []
    manager.listListeners = lambda: list(there)  # type: ignore[method-assign]
    manager.removeListener, manager.addListener = there.remove, there.append  # type: ignore[attr-defined]
    query.session.spark.streams._jsqm = manager
    bus = query.session.spark._jsc.sc.return_value.listenerBus.return_value
    bus.waitUntilEmpty = lambda _ms: heard.append(list(there))
    run.batch_ended.set()
    with (
        contextlib.nullcontext() if ends_with is None else refuses(QUERY_ENDED),
        QueryHold(queries).begin(**WANTED),
    ):
        assert there == [of_spark]
        if ends_with is not None:
            raise ends_with
    assert heard == [[of_spark]], "what Spark had sent is heard by nobody else"
    assert there == [of_spark, own]


def test_query_that_is_held_is_found_by_its_id() -> None:
    queries = Queries("/checkpoints")
    hold = QueryHold(queries)
    run, query = a_running_query(queries, "fast")
    run.batch_ended.set()
    get = held._get_held(lambda _self, _id: None, SimpleNamespace(held=hold, postponed_handles=list))
    assert get(None, "fast") is None  # Spark's own answer
    with hold.begin(**WANTED):
        assert get(None, "fast") is query.started.handle
    assert get(None, "fast") is None


def test_list_of_queries_and_a_look_for_one_wait_for_none_that_is_put_off() -> None:
    """A listener asks within Spark's start, which waits for it; a function asks in a batch."""

    def begun() -> object:
        raise AssertionError("it waits")

    postponed = SimpleNamespace(_jsq=StandIn("orders", "7", begun))
    new = SimpleNamespace(_jsq=StandIn("new", None, begun))
    running, began = SimpleNamespace(id="1", _jsq=a_run(1)), SimpleNamespace(id="2", _jsq=a_run(2))
    manager = type("Manager", (), {"active": property(lambda _: [running, began])})
    agent: Any = SimpleNamespace(
        held=QueryHold(Queries("/checkpoints")), postponed_handles=lambda: [postponed, new, began]
    )
    held._list_held(manager, agent)
    assert manager().active == [running, began, postponed, new]
    get = held._get_held(lambda _self, query_id: f"Spark's {query_id}", agent)
    assert (get(None, "7"), get(None, "2")) == (postponed, "Spark's 2")


def test_partitions_that_came_meanwhile_do_not_keep_a_held_query_from_going_on(clock: Clock) -> None:
    query = a_query_of_two_batches(committed=2)
    held_cut.guard_again(lambda _: a_view({0: 9, 1: 4}), query, lease_s=6.0, clock=clock)
    query.identities = {"0": SourceIdentity(cluster_id="another", topic_ids={"t": "id"})}
    with refuses(CLUSTER_MISMATCH):
        held_cut.guard_again(lambda _: a_view({0: 9}), query, lease_s=6.0, clock=clock)


@pytest.mark.parametrize("error", [ClusterUnreachableError, StoreUnavailableError])
def test_held_query_goes_on_once_kafka_and_store_can_be_reached_again(
    error: type[FlinkstyleError], clock: Clock
) -> None:
    query, reachable = a_query_of_two_batches(committed=2), threading.Event()

    def describe(_: object) -> ClusterView:
        if not reachable.is_set():
            raise error("out of reach", state_after="", remedy="")
        return a_view({0: 9})

    clock.at[clock.now_s + 5] = reachable.set
    held_cut.guard_again(describe, query, lease_s=6.0, clock=clock)
    assert reachable.is_set()
    reachable.clear()
    with pytest.raises(error):
        held_cut.guard_again(describe, query, lease_s=6.0, clock=clock)
