from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent import checks
from airflow_flinkstyle.agent.errors import QueryUnknownError
from airflow_flinkstyle.agent.queries import JobQuery, Queries
from airflow_flinkstyle.agent.sources import Source
from airflow_flinkstyle.kafka.errors import OffsetBeyondEndError
from airflow_flinkstyle.protocol.records import Go
from airflow_flinkstyle.storage.memory import MemoryStore
from tests.unit.agent.test_guard import a_view

if TYPE_CHECKING:
    from pathlib import Path


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
    query = a_query("orders")
    query.sources = [Source(position=0, name=None, provider="kafka", options={})]
    for batch, end in enumerate((3, 5)):
        query.checkpoint.write(f"offsets/{batch}", f'v1\n{{"conf":{{}}}}\n{{"t":{{"0":{end}}}}}'.encode())
    query.checkpoint.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    before = {info.key: query.checkpoint.read(info.key) for info in query.checkpoint.list("")}
    monkeypatch.setattr(checks, "describe_source", lambda *_: a_view({0: 4}))
    with pytest.raises(OffsetBeyondEndError):
        checks.guard(None, query, {})
    assert {info.key: query.checkpoint.read(info.key) for info in query.checkpoint.list("")} == before


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
