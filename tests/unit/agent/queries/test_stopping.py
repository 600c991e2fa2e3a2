"""Queries stop between two batches, and the batch that an earlier driver left is committed first."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest

from airflow_flinkstyle.agent.core.errors import PlannedBatchOpenError
from airflow_flinkstyle.agent.core.queries.stopping import (
    commit_planned,
    stop_at_boundary,
    wait_until_stopped,
)
from airflow_flinkstyle.agent.spark.starts import PySparkQuery
from tests.unit.agent.drivers import commit
from tests.unit.agent.job_queries import a_query, pending

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.job_query import JobQuery


class SparkRun:
    """One run of a query in Spark, whose batch ends when the test says so, or never."""

    def __init__(self, *, in_batch: bool = True) -> None:
        self.flagged, self.batch_ended, self.stopped = threading.Event(), threading.Event(), False
        self.in_batch = in_batch
        self.looks = 0

    def streamingQuery(self) -> SimpleNamespace:
        state = MagicMock()
        state.set.side_effect = lambda _: self.flagged.set()
        return SimpleNamespace(
            state=lambda: state, queryExecutionThread=lambda: self, awaitProgressLock=MagicMock
        )

    def isAlive(self) -> bool:
        self.looks += 1
        return not (self.stopped or (self.flagged.is_set() and self.batch_ended.is_set()))

    def getStackTrace(self) -> str:
        return "its frames"

    def stop(self) -> None:
        self.stopped = True


def running(run: SparkRun, name: str = "orders", jvm: object = None) -> JobQuery:
    query = a_query(name)
    handle = SimpleNamespace(runId="run-1", _jsq=run, status={"isTriggerActive": run.in_batch})
    query.query = PySparkQuery(handle, jvm or MagicMock())
    return query


def test_query_that_is_in_a_batch_is_waited_for_and_not_interrupted() -> None:
    run, ends_at = SparkRun(), 5

    def look() -> None:
        if run.looks == ends_at:
            run.batch_ended.set()

    stop_at_boundary([running(run)], check=look)
    assert run.looks > ends_at
    assert run.flagged.is_set()
    assert not run.stopped


def test_query_that_sleeps_until_its_next_trigger_is_woken_once_it_was_seen_to_sleep_for_a_while() -> None:
    run = SparkRun(in_batch=False)
    stop_at_boundary([running(run)])
    assert run.stopped
    assert run.looks == 3, "a batch may have been about to begin"


def test_query_that_is_seen_to_sleep_by_its_stack_is_woken_at_once() -> None:
    run, jvm = SparkRun(in_batch=False), MagicMock()
    stack = "at org.apache.spark.util.SystemClock.waitTillTime(Clock.scala:73)"
    jvm.py4j.Protocol.getThrowableAsString.return_value = stack
    stop_at_boundary([running(run, jvm=jvm)])
    assert run.stopped
    assert run.looks == 1


def test_all_are_told_before_any_is_waited_for_and_one_that_was_not_started_is_left_out() -> None:
    first, second = SparkRun(), SparkRun()

    def look() -> None:
        assert second.flagged.is_set()
        first.batch_ended.set()
        second.batch_ended.set()

    stop_at_boundary([running(first), a_query("late"), running(second, "second")], check=look)
    assert first.flagged.is_set()


def test_wait_that_is_given_up_leaves_the_query_to_end_its_batch() -> None:
    run = SparkRun()

    def look() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        wait_until_stopped(running(run), check=look)
    assert not run.stopped


def test_batch_that_was_planned_is_committed_by_a_run_of_one_batch() -> None:
    query, once = pending(commits=True)
    assert commit_planned(query) == 1
    assert once == [True, False], "the script may start the same writer again"
    assert query.held_runs == {"run-1"}


def test_query_without_a_planned_batch_is_not_started() -> None:
    query = a_query("orders")
    assert commit_planned(query) is None
    commit(query, 0)
    assert commit_planned(query) == 0
    assert query.query is None


def test_batch_that_is_not_committed_by_that_run_is_refused() -> None:
    query, _ = pending(commits=False)
    with pytest.raises(PlannedBatchOpenError, match="found one that is planned only") as refused:
        commit_planned(query)
    assert query.location in refused.value.state_after
    assert refused.value.retryable, "the next driver runs it"
