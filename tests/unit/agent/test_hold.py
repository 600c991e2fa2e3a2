"""What a script is told of queries that are held; the objects here stand for Spark's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent import aligned
from airflow_flinkstyle.agent.hold import Hold
from airflow_flinkstyle.agent.queries import Queries
from airflow_flinkstyle.kafka.errors import ClusterMismatchError, PartitionSetError

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.queries import JobQuery


def a_run(number: int) -> SimpleNamespace:
    return SimpleNamespace(runId=f"run-{number}", isActive=lambda: False)


def a_handle(number: int) -> SimpleNamespace:
    return SimpleNamespace(id="query-1", _jsq=a_run(number))


def a_query(queries: Queries, number: int) -> JobQuery:
    query = queries.register("orders", None, lambda: None, ())
    query.query = a_handle(number)
    return query


def test_a_query_that_is_about_to_start_again_is_not_missed() -> None:
    queries = Queries("/checkpoints")
    first = a_query(queries, 1)
    first.local_properties = object()
    again = queries.register("orders", None, lambda: None, ())
    assert queries.all() == [again]
    assert (again.query, again.local_properties) == (first.query, first.local_properties)


def test_any_handle_of_a_held_run_stands_for_the_run_that_went_on() -> None:
    queries = Queries("/checkpoints")
    query, hold = a_query(queries, 2), Hold(queries)
    query.held_runs.add("run-1")
    other = a_handle(1)
    assert hold.follow(other, "run-1")
    assert other._jsq is query.query._jsq
    assert not hold.follow(other, "run-2")


def test_queries_that_are_held_are_listed_as_active_once() -> None:
    queries = Queries("/checkpoints")
    query, hold = a_query(queries, 1), Hold(queries)
    assert hold.with_held([]) == []
    hold._held = {"query-1": query}
    assert hold.with_held([]) == [query.query]
    assert hold.with_held([query.query]) == [query.query]


def test_partitions_that_came_meanwhile_do_not_keep_a_held_query_from_going_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def guard(error: Exception) -> None:
        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr(aligned, "guard", refuse)

    query = a_query(Queries("/checkpoints"), 1)
    guard(PartitionSetError.between("source 0", missing={("orders", 2)}, unknown=()))
    aligned.guard_again(None, query)
    guard(ClusterMismatchError("found another cluster", left="", remedy=""))
    with pytest.raises(ClusterMismatchError):
        aligned.guard_again(None, query)
