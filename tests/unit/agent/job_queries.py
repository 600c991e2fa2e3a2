"""Queries of a job: one that reads nothing, one of a Kafka topic, one with a batch that was only planned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from airflow_flinkstyle.agent.core.job_query import JobQuery
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.agent.spark.starts import PySparkQuery, PySparkStart
from testbed.memory_store import MemoryStore
from tests.declared import AS_BEFORE
from tests.unit.agent.drivers import commit, plan


def a_query(name: str) -> JobQuery:
    nothing: Any = None
    return JobQuery(
        name=name,
        start=nothing,
        checkpoint=MemoryStore(),
        location="x",
        sources=(),
        declared=AS_BEFORE,
    )


def a_query_of_two_batches(*, committed: int) -> JobQuery:
    query = a_query("orders")
    query.sources = [StreamingSource(position=0, name=None, provider="kafka", options={})]
    header = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
    for batch, end in enumerate((3, 5)):
        query.checkpoint.write(f"offsets/{batch}", f'v1\n{header}\n{{"t":{{"0":{end}}}}}'.encode())
    for batch in range(committed):
        query.checkpoint.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    query.checkpoint.write("metadata", b'{"id":"7c2b1a3e-0000-4000-8000-000000000000"}')
    return query


def pending(*, commits: bool, error: Exception | None = None) -> tuple[JobQuery, list[bool]]:
    """Return a query whose batch 1 was planned only, and what it is started with."""
    query, once = a_query("orders"), []
    commit(query, 0)
    plan(query, 1)

    def await_termination(_: int) -> bool:
        if error is not None:
            raise error
        if commits:
            commit(query, 1)
        return True

    def trigger(**usual: Any) -> None:
        once.append(bool(usual.get("once")))

    writer, query.thread = MagicMock(), MagicMock()
    writer.trigger.side_effect = trigger
    handle = SimpleNamespace(runId="run-1", id="q", _jsq=None, exception=lambda: error)
    query.query = PySparkQuery(handle, MagicMock())
    again = SimpleNamespace(_jsq=SimpleNamespace(awaitTermination=await_termination))
    query.start = PySparkStart(writer, lambda: again)
    return query, once
