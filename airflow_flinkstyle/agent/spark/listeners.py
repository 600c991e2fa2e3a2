"""A script's listeners of queries: what the agent does to a query is not told to them.

A listener that ends Spark when a query terminates would take a job down that is only held for a savepoint.
Listeners that Scala or a setting registers are taken away meanwhile (``session``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.spark.agent import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.spark.agent import Agent
    from airflow_flinkstyle.agent.spark.untyped import PySpark


def wrap_listeners(agent: Agent) -> None:
    """Wrap how a script registers listeners, and takes them away."""
    from pyspark.sql.streaming.query import StreamingQueryManager

    known: dict[int, tuple[PySpark, PySpark]] = {}
    """By the identity of the script's listener: itself, so that it is not another's meanwhile, and ours."""

    def add(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, listener: PySpark) -> PySpark:
            known.setdefault(id(listener), (listener, discreet(agent, listener)))
            return original(self, known[id(listener)][1])

        return call

    def remove(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, listener: PySpark) -> PySpark:
            return original(self, known.pop(id(listener), (listener, listener))[1])

        return call

    replace(StreamingQueryManager, "addListener", add)
    replace(StreamingQueryManager, "removeListener", remove)


class _OwnActs:
    """Which events of a listener are of the agent's making."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._tried: set[str] = set()
        """Ids of copies that the agent runs before the job is this driver's."""

    def is_start(self, event: PySpark) -> bool:
        if not self._agent.runs_job:
            self._tried.add(str(event.id))
        return self.is_of_copy(event) or self._agent.held.is_own_start(str(event.id))

    def is_of_copy(self, event: PySpark) -> bool:
        return str(event.id) in self._tried

    def is_end(self, event: PySpark) -> bool:
        ended = event.exception is None and self._agent.held.is_own_end(str(event.id), str(event.runId))
        return self.is_of_copy(event) or ended


def discreet(agent: Agent, listener: PySpark) -> PySpark:
    """Return a listener that hands on to the script's what the script, or Spark, has done."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    own = _OwnActs(agent)

    class Discreet(StreamingQueryListener):
        def onQueryStarted(self, event: PySpark) -> None:
            _tell(listener.onQueryStarted, event, unless=own.is_start(event))

        def onQueryProgress(self, event: PySpark) -> None:
            _tell(listener.onQueryProgress, event, unless=own.is_of_copy(event.progress))

        def onQueryIdle(self, event: PySpark) -> None:
            _tell(listener.onQueryIdle, event, unless=own.is_of_copy(event))

        def onQueryTerminated(self, event: PySpark) -> None:
            _tell(listener.onQueryTerminated, event, unless=own.is_end(event))

    return Discreet()


def _tell(hear: Callable[[Any], None], event: PySpark, *, unless: bool) -> None:
    if not unless:
        hear(event)
