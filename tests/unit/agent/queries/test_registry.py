"""Which starts are of one query, and which are refused: by name, checkpoint location, output and sources."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.declared import Declaration, DeclaredPlace, own_location
from airflow_flinkstyle.agent.core.errors import QUERY_NAME
from airflow_flinkstyle.agent.core.guards import checks
from airflow_flinkstyle.agent.core.queries.registry import Queries
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.query_records import QueryStatus
from airflow_flinkstyle.types import BatchId
from testbed.refusals import refuses
from tests.small_spark import SmallHandle, SmallQuery, SmallRun, SmallSpark, SmallStart
from tests.unit.agent.conftest import a_heartbeat

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.job_query import JobQuery

FIRST = Declaration(
    location="/own/1",
    sink=DeclaredPlace.of("json", {"path": "/out/1"}),
    sources=DeclaredPlace.of("kafka", {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}),
)
ANEW = replace(FIRST, location=None)
"""The same without a checkpoint location."""


def register(queries: Queries, name: str | None, said: Declaration = FIRST) -> JobQuery:
    queries.known_spark = spark = SmallSpark()
    return queries.register(name, SmallStart(spark), (), said)


def run(
    queries: Queries,
    name: str | None,
    said: Declaration = FIRST,
    *,
    active: bool = False,
    error: Exception | None = None,
) -> JobQuery:
    """Start a query; its run is over unless it is active."""
    query = register(queries, name, said)
    run = SmallRun()
    run.error = error
    if not active:
        run.end()
    queries.settle(query, SmallQuery(SmallHandle("q", run)))
    return query


def refusal(queries: Queries, name: str | None, said: Declaration) -> str:
    with refuses(QUERY_NAME) as refused:
        register(queries, name, said)
    assert ".queryName(...)" in refused.value.remedy
    return refused.value.problem


def test_only_query_may_be_without_a_name_and_is_started_again() -> None:
    queries = Queries("/checkpoints")
    assert run(queries, None).name == "query"
    assert run(queries, None).name == "query"
    assert run(queries, "query").name == "query"
    with refuses(QUERY_NAME, match="without a name beside second"):
        register(queries, "second")


def test_unnamed_query_beside_named_ones_is_refused() -> None:
    queries = Queries("s3://bucket/checkpoints/")
    assert run(queries, "first").location == "s3a://bucket/checkpoints/first"
    with refuses(QUERY_NAME, match="without a name beside first"):
        register(queries, None)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "two words"])
def test_query_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(BadInputError, match="query name"):
        register(Queries("/checkpoints"), name)


@pytest.mark.parametrize("name", [None, "orders"])
@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"location": "/own/2"}, "another checkpointLocation (/own/2, not /own/1)"),
        ({"location": None}, "another checkpointLocation (none, not /own/1)"),
        (
            {"sink": DeclaredPlace.of("json", {"path": "/out/2"})},
            "another output (json /out/2, not json /out/1)",
        ),
        (
            {"sink": DeclaredPlace.of("parquet", {"path": "/out/1"})},
            "another output (parquet /out/1, not json /out/1)",
        ),
        (
            {
                "sources": DeclaredPlace.of(
                    "kafka", {"kafka.bootstrap.servers": "b:9092", "subscribe": "refunds"}
                )
            },
            "other sources (kafka refunds b:9092, not kafka orders b:9092)",
        ),
    ],
)
@pytest.mark.parametrize("error", [None, ValueError("boom")])
def test_start_that_differs_is_another_query(
    name: str | None, changed: dict[str, object], found: str, error: Exception | None
) -> None:
    queries = Queries("/checkpoints")
    first = run(queries, name, error=error)
    assert found in refusal(queries, name, replace(FIRST, **changed))  # type: ignore[arg-type]
    assert queries.all() == [first]


def test_names_tell_queries_apart_whatever_they_share() -> None:
    queries = Queries("/checkpoints")
    assert [run(queries, name).name for name in ("a", "b", "a")] == ["a", "b", "a"]


@pytest.mark.parametrize("error", [None, ValueError("boom")])
def test_query_without_a_location_is_not_started_twice(error: Exception | None) -> None:
    """Plain Spark would begin anew; here the second run would leave out what the first has read."""
    queries = Queries("/checkpoints")
    run(queries, "orders", ANEW, error=error)
    assert "plain Spark would start from the beginning" in refusal(queries, "orders", ANEW)


def test_second_unnamed_query_beside_a_running_one_is_refused_and_a_named_one_left_to_spark() -> None:
    queries = Queries("/checkpoints")
    first = run(queries, None, active=True)
    assert "a second one while the first runs" in refusal(queries, None, FIRST)
    assert queries.all() == [first]

    queries = Queries("/checkpoints")
    first = run(queries, "orders", active=True)
    second = register(queries, "orders")
    queries.settle(second, None)  # what Spark says
    assert queries.all() == [first]
    assert "while the first runs" in refusal(queries, "orders", replace(FIRST, location="/own/2"))


@pytest.mark.parametrize("name", [None, "orders"])
def test_second_query_while_the_first_is_being_started_is_refused(name: str | None) -> None:
    """Two threads: the first one's would run without any savepoint knowing of it."""
    queries = Queries("/checkpoints")
    register(queries, name)
    assert "while the first is being started" in refusal(queries, name, FIRST)


def test_start_that_spark_refused_leaves_its_name_free() -> None:
    queries = Queries("/checkpoints")
    queries.settle(register(queries, "orders", replace(FIRST, sink=DeclaredPlace.of("delta", {}))), None)
    assert queries.statuses() == {}
    assert run(queries, "orders").ran == FIRST


def after_a_relaunch(said: Declaration) -> Queries:
    """Return the queries of a driver whose predecessor ran one called ``orders``."""
    beat = QueryStatus(
        query_id="q", batch_id=None, batch_committed_at_ms=None, sources={}, declared=said.recorded()
    )
    return Queries("/checkpoints", {"orders": beat})


def test_relaunched_driver_compares_with_what_its_predecessor_started() -> None:
    assert "another checkpointLocation (/own/2)" in refusal(
        after_a_relaunch(FIRST), "orders", replace(FIRST, location="/own/2")
    )
    other = DeclaredPlace.of("json", {"path": "/out/2"})
    assert "another output (json /out/2)" in refusal(
        after_a_relaunch(ANEW), "orders", replace(ANEW, sink=other)
    )
    assert "other sources (json /out/2)" in refusal(
        after_a_relaunch(ANEW), "orders", replace(ANEW, sources=other)
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (FIRST, FIRST),
        (FIRST, replace(FIRST, sink=DeclaredPlace.of("json", {"path": "/out/today"}))),
        (ANEW, ANEW),
    ],
)
def test_relaunched_driver_goes_on_where_a_plain_script_would(before: Declaration, now: Declaration) -> None:
    assert register(after_a_relaunch(before), "orders", now).name == "orders"


def test_relaunched_driver_compares_its_own_starts_among_themselves() -> None:
    queries = after_a_relaunch(FIRST)
    run(queries, "orders", replace(FIRST, sink=DeclaredPlace.of("json", {"path": "/out/today"})))
    assert "another output" in refusal(queries, "orders", FIRST)


def test_driver_of_a_release_that_recorded_nothing_is_gone_on_from() -> None:
    beat = QueryStatus(query_id="q", batch_id=None, batch_committed_at_ms=None, sources={})
    assert register(Queries("/checkpoints", {"orders": beat}), "orders").name == "orders"


def test_run_that_was_refused_for_its_names_stays_refused() -> None:
    """Its script may skip what it has done and begin with the query that was refused."""
    checks.require_not_refused(None)
    checks.require_not_refused(a_heartbeat(state="failed", error=("SCRIPT_FAILED", "boom")))
    with refuses(QUERY_NAME, match="another output"):
        checks.require_not_refused(a_heartbeat(state="failed", error=("QUERY_NAME", "found another output")))


def test_heartbeat_names_a_query_before_it_runs_without_showing_where_it_reads() -> None:
    queries = Queries("/checkpoints")
    query = register(queries, "orders", replace(FIRST, location="s3a://key:secret@bucket/own"))
    assert queries.statuses() == {}
    query.admitted = True
    record = a_heartbeat(queries=queries.statuses())
    assert type(record).from_bytes(record.to_bytes()) == record
    assert record.queries["orders"].declared == query.declared.recorded()
    assert b"secret" not in record.to_bytes()


@pytest.mark.parametrize(
    ("option", "default", "name", "own"),
    [
        ("/own/", None, None, "/own"),
        ("s3a://bucket//own", "/default", "orders", "s3a://bucket/own"),
        (None, "/default/", "orders", "/default/orders"),
        (None, "/default", None, None),
        (None, None, "orders", None),
    ],
)
def test_own_location_is_where_plain_spark_would_look_again(
    option: str | None, default: str | None, name: str | None, own: str | None
) -> None:
    seen = StreamOptions()
    seen.query_name = name
    seen.set_options({} if option is None else {"CheckpointLocation": option})
    assert own_location(seen, default) == own


def test_options_that_do_not_say_what_is_read_may_change() -> None:
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}
    changed = {"startingOffsets": "latest", "maxOffsetsPerTrigger": "9", "kafka.sasl.jaas.config": "secret"}
    assert DeclaredPlace.of("kafka", options) == DeclaredPlace.of("kafka", {**options, **changed})
    assert DeclaredPlace.of("kafka", options) != DeclaredPlace.of(
        "kafka", {**options, "subscribe": "refunds"}
    )
    assert DeclaredPlace.of("rate", {"rowsPerSecond": "1"}) != DeclaredPlace.of(
        "rate", {"rowsPerSecond": "2"}
    )


def test_queries_have_committed_once_one_is_behind_where_it_started() -> None:
    queries = Queries("/checkpoints")
    query = run(queries, "orders")
    query.before = query.committed = BatchId(4)
    assert not queries.has_committed(), "it was restored there"
    query.committed = BatchId(5)
    assert queries.has_committed()
    query.before = query.committed = None
    assert not queries.has_committed()
