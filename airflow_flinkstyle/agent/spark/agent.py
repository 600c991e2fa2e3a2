"""What the wrappers of PySpark's classes call, and how they take a method's place."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.core.queries.hold import QueryHold
    from airflow_flinkstyle.agent.core.spark import Spark, SparkStart
    from airflow_flinkstyle.agent.core.stream_options import StreamOptions
    from airflow_flinkstyle.agent.spark.untyped import PySpark


class Agent(Protocol):
    """What the wrappers call."""

    def start_query(self, start: SparkStart, settings: StreamOptions) -> PySpark:
        """Start a query in place of Spark."""

    def schema_location(self, spark: Spark, location: str) -> str:
        """Return where a reader finds the log of schemas that the script keeps at ``location``."""

    def await_turn(self) -> None:
        """Wait until the queries that the script has started run; return at once if no start was put off."""

    def postponed_handles(self) -> list[PySpark]:
        """Return the script's handles of queries whose start is put off, or that are replayed."""

    def wait_if_draining(self) -> bool:
        """Return False at once; if the run ends, return True once everything has drained."""

    def script_stops_spark(self) -> None:
        """Drain before the script stops its session."""

    def script_leaves(self, code: int) -> int:
        """End the run if the script calls ``os._exit(0)`` and no query runs; returns the exit code."""

    @property
    def runs_job(self) -> bool:
        """Whether this driver has taken the job over: queries that run before that are the agent's own."""

    @property
    def held(self) -> QueryHold:
        """Holds queries for a while, and knows which ones."""


def replace(cls: PySpark, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a method with a wrapper of it."""
    original = getattr(cls, name)
    setattr(cls, name, functools.wraps(original)(wrapper(original)))
