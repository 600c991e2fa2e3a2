"""A query of a job that reads nothing and was not started."""

from __future__ import annotations

from typing import Any

from airflow_flinkstyle.agent.job_query import JobQuery
from airflow_flinkstyle.storage.memory import MemoryStore
from tests.declared import AS_BEFORE


def a_query(name: str) -> JobQuery:
    nothing: Any = None
    return JobQuery(
        name=name,
        writer=nothing,
        run=lambda: nothing,
        checkpoint=MemoryStore(),
        location="x",
        sources=(),
        declared=AS_BEFORE,
    )
