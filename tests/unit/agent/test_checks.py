from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent import aligned, barrier, capture, checks, takeover
from airflow_flinkstyle.agent.errors import QueryUnknownError
from airflow_flinkstyle.agent.queries import JobQuery, Queries
from airflow_flinkstyle.agent.sources import Source
from airflow_flinkstyle.kafka.errors import ClusterUnreachableError, OffsetBeyondEndError
from airflow_flinkstyle.protocol.records import Go
from airflow_flinkstyle.storage.memory import MemoryStore
from tests.unit.agent.views import a_view

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType


def a_query(name: str) -> JobQuery:
    nothing: Any = None
    return JobQuery(
        name=name, writer=nothing, run=lambda: nothing, checkpoint=MemoryStore(), location="x", sources=()
    )


def a_go(**changes: Any) -> Go:
    values: dict[str, Any] = {"savepoint_id": None, "carry_pending": False, "closed_at": None, "expected": {}}
    return Go(**{**values, **changes})


def test_planned_batch_that_is_refused_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink may have seen it: a carried one, one at a barrier, or one whose records were lost since."""
    query = a_query_of_two_batches(committed=1)
    before = {info.key: query.checkpoint.read(info.key) for info in query.checkpoint.list("")}
    monkeypatch.setattr(checks, "describe_source", lambda *_: a_view({0: 4}))
    with pytest.raises(OffsetBeyondEndError):
        checks.guard(None, query, {})
    assert {info.key: query.checkpoint.read(info.key) for info in query.checkpoint.list("")} == before


@pytest.mark.parametrize(
    ("module", "look", "left"),
    [
        (checks, lambda query: checks.guard(None, query, {}), "The query was not started"),
        (barrier, lambda query: barrier.look(None, query), "the queries go on uncut"),
        (capture, lambda query: capture._kafka_logs(None, query), "No savepoint was made"),
        (checks, lambda query: aligned.guard_again(None, query, lease_s=0.0), "The query does not go on"),
    ],
)
def test_kafka_that_cannot_be_reached_leaves_what_the_error_says(
    module: ModuleType, look: Callable[[JobQuery], object], left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_reach(*_: object) -> None:
        raise ClusterUnreachableError("Timeout.", left="The query was not started.", remedy="Check it.")

    monkeypatch.setattr(module, "describe_source", out_of_reach)
    monkeypatch.setattr(takeover, "RETRY_S", 0.0)
    with pytest.raises(ClusterUnreachableError) as refused:
        look(a_query_of_two_batches(committed=2))
    assert left in refused.value.left


def a_query_of_two_batches(*, committed: int) -> JobQuery:
    query = a_query("orders")
    query.sources = [Source(position=0, name=None, provider="kafka", options={})]
    header = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
    for batch, end in enumerate((3, 5)):
        query.checkpoint.write(f"offsets/{batch}", f'v1\n{header}\n{{"t":{{"0":{end}}}}}'.encode())
    for batch in range(committed):
        query.checkpoint.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    query.checkpoint.write("metadata", b'{"id":"7c2b1a3e-0000-4000-8000-000000000000"}')
    return query


def test_only_queries_whose_checkpoints_stand_in_the_location_go_on(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "metadata").write_text('{"id":"q"}')
    go = a_go(closed_at={"orders": 7, "dropped": 3})
    assert checks.queries_to_go_on(Queries(str(tmp_path)).checkpoint, go, None, None) == {"orders"}
    elsewhere = Queries(str(tmp_path / "fresh"))
    assert checks.queries_to_go_on(elsewhere.checkpoint, go, None, None) == set()


def test_query_under_another_name_is_refused_while_the_old_ones_state_waits() -> None:
    with pytest.raises(QueryUnknownError) as refused:
        checks.require_known(a_query("orders2"), {"orders"}, {"orders2"})
    assert "would start anew without the state of orders" in refused.value.problem
    assert "Keep the query's name" in refused.value.remedy


def test_known_queries_start_in_any_order_and_new_ones_after_them() -> None:
    checks.require_known(a_query("b"), {"a", "b"}, {"b"})
    checks.require_known(a_query("new"), {"a", "b"}, {"a", "b", "new"})
    checks.require_known(a_query("first"), set(), {"first"})
