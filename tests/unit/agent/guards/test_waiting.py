"""Queries that the script has not started yet are told of, and saved, as their checkpoints stand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.guards import checks, waiting
from airflow_flinkstyle.agent.core.run import taking
from airflow_flinkstyle.agent.core.run.serving import Serving
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import Declared, QueryStatus, Sinks, SourceIdentity
from airflow_flinkstyle.protocol.records import Request
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, QuerySnapshot
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import BatchId
from testbed.memory_store import MemoryStore
from tests.declared import AS_BEFORE
from tests.manifests import a_manifest
from tests.small_spark import SmallHandle, SmallQuery, SmallRun, SmallSpark, SmallStart, queries_at
from tests.unit.agent.conftest import G1, I1, a_heartbeat
from tests.unit.agent.job_queries import a_query

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.guards.waiting import WaitingQuery
    from airflow_flinkstyle.agent.core.queries.registry import Queries

LOG = SourceIdentity(cluster_id="c", topic_ids={"orders": "t"})
SAID = Declared(location="l", sink="s", sources="r")
BEAT = QueryStatus(
    query_id="old",
    batch_id=BatchId(0),
    batch_committed_at_ms=5,
    sources={"0": LOG},
    sink="kafka",
    declared=SAID,
)
QUERY_ID = "7c2b1a3e-0000-4000-8000-000000000000"


def a_checkpoint(*, planned: int = 1, committed: int = 1) -> MemoryStore:
    store = MemoryStore()
    store.write("metadata", f'{{"id":"{QUERY_ID}"}}'.encode())
    header = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
    for batch in range(planned):
        store.write(f"offsets/{batch}", f'v1\n{header}\n{{"orders":{{"0":3}}}}'.encode())
    for batch in range(committed):
        store.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    return store


def look(checkpoint: MemoryStore, beat: QueryStatus = BEAT) -> WaitingQuery:
    (found,) = waiting.read_checkpoints(
        {"b"}, lambda _: checkpoint, {"b": beat}, a_heartbeat(queries={"b": beat}), origins={}
    )
    return found


def test_it_is_told_of_as_its_checkpoint_stands() -> None:
    assert look(a_checkpoint()).status == replace(BEAT, query_id=QUERY_ID, waiting=True)
    further = look(a_checkpoint(planned=3, committed=2)).status
    assert (further.batch_id, further.batch_committed_at_ms) == (1, None)  # it died before it said so
    planned = look(a_checkpoint(planned=2), replace(BEAT, sinks=Sinks())).status
    assert planned.sinks == Sinks(under_way=True)


def test_what_a_run_goes_on_from_is_told_by_whoever_knows_most() -> None:
    followed = a_heartbeat(queries={"b": BEAT, "c": BEAT})
    position = KafkaPosition(cluster_id="new", topic_ids={"orders": "n"}, offsets=Offsets(), log_range={})
    saved = QuerySnapshot(
        name="b", query_id="q", batch_id=BatchId(3), checkpoint_location="x", planned_offsets=None,
        pinned_confs={}, kafka={"0": position}, sink="json", files=(),
    )  # fmt: skip
    known = waiting.recorded(None, a_manifest(saved), followed)
    assert known["b"].sources == {"0": SourceIdentity(cluster_id="new", topic_ids={"orders": "n"})}
    assert known["b"].sink == "json"
    assert known["c"].declared is None  # said by another generation's script
    assert waiting.recorded(followed, a_manifest(saved), None)["b"] == BEAT


def test_it_is_named_beside_the_started_ones_until_it_is_started() -> None:
    queries = queries_at("/checkpoints")
    first = queries.register("a", SmallStart(SmallSpark()), (), AS_BEFORE)
    queries.take_over(first, [look(a_checkpoint())])
    assert [name for name, beat in queries.statuses().items() if beat.waiting] == ["b"]
    second = queries.register("b", SmallStart(SmallSpark()), (), AS_BEFORE)
    assert queries.statuses()["b"].waiting
    queries.settle(second, SmallQuery(SmallHandle("q", SmallRun())))
    assert not queries.statuses()["b"].waiting
    assert queries.started_and_waiting() == ([second], [])


@pytest.mark.parametrize(
    ("stopped_at", "planned"), [(None, 1), ({"b": BatchId(0)}, 1), ({"b": BatchId(0)}, 2)]
)
def test_it_is_saved_as_its_checkpoint_stands(stopped_at: dict[str, BatchId] | None, planned: int) -> None:
    repository = SavepointRepository(MemoryStore(), "job")
    manifest = taking.take_all(
        None,
        repository,
        [],
        [look(a_checkpoint(planned=planned))],
        savepoint_id="sp-1",
        spark_version="4.2.0",
        generation=G1,
        stopped_at=stopped_at,
        previous=None,
        cancelled=lambda: False,
        progress=lambda _: None,
    )
    (query,) = manifest.queries
    assert (query.name, query.query_id, query.batch_id, query.sink) == ("b", QUERY_ID, 0, "kafka")
    assert (query.planned_offsets is not None) == (planned == 2)


def asked(queries: Queries, admission: object, **changes: Any) -> tuple[bool, str | None]:
    """Return whether a request is judged at once, and how."""
    request = Request(
        request_id="r", incarnation=I1, command="stop_with_savepoint", state="sent", savepoint_id="sp",
        sent_at_ms=0, **changes,
    )  # fmt: skip
    parts: tuple[Any, ...] = (SimpleNamespace(queries=queries), admission, None)
    serving = Serving(*parts)
    return serving.is_ready(request), serving.refusal(request)


def test_aligned_cut_waits_for_it_and_is_refused_then() -> None:
    queries = queries_at("/checkpoints")
    first = queries.register("a", SmallStart(SmallSpark()), (), AS_BEFORE)
    queries.take_over(first, [look(a_checkpoint())])
    first.checkpoint = a_checkpoint()
    queries.settle(first, SmallQuery(SmallHandle("q", SmallRun())))
    admission = SimpleNamespace(is_settled=lambda: True, taken_over=True)
    assert asked(queries, admission) == (True, None)
    ready, refusal = asked(queries, admission, alignment="aligned")
    assert not ready
    ready, refusal = asked(queries, admission, alignment="aligned", hold_s=0.0)
    assert ready
    assert refusal is not None
    assert "has not started b" in refusal

    queries.take_over(first, [look(a_checkpoint(committed=0))])
    assert "found none of b" in str(asked(queries, admission)[1])
    assert not asked(queries, admission)[0], "a run died in its first batch"
    assert asked(queries, admission, hold_s=0.0)[0]


def test_dropped_queries_are_named_by_a_setting_and_must_not_be_started() -> None:
    spark = SmallSpark()
    spark.settings[waiting.DROPPED] = "a, b,"
    assert waiting.dropped_queries(spark) == {"a", "b"}
    assert waiting.dropped_queries(SmallSpark()) == set()
    checks.require_not_dropped(a_query("c"), {"a", "b"})
    with pytest.raises(BadInputError, match="found b"):
        checks.require_not_dropped(a_query("b"), {"a", "b"})
