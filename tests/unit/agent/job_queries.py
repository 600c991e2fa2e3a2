"""Queries of a job that were not started: one that reads nothing, and one of a Kafka topic."""

from __future__ import annotations

from typing import Any

from airflow_flinkstyle.agent.core.job_query import JobQuery
from airflow_flinkstyle.agent.core.spark import StreamingSource
from testbed.memory_store import MemoryStore
from tests.declared import AS_BEFORE


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
