"""What a script sees of its running queries: one that is held between two batches seems to run on.

One whose start is put off until the takeover seems to run, too; a call that needs Spark's query waits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.spark.agent import replace
from airflow_flinkstyle.agent.spark.stand_in import stand_in_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.core.queries.hold import QueryHold
    from airflow_flinkstyle.agent.spark.agent import Agent
    from airflow_flinkstyle.agent.spark.untyped import PySpark

_SHORTEST_S = 0.001


def wrap_held(agent: Agent) -> None:
    """Wrap what a script asks of its running queries."""
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

    _await_again(StreamingQuery, "awaitTermination", agent, _this_query)
    _await_again(StreamingQueryManager, "awaitAnyTermination", agent, _any_query)
    replace(StreamingQuery, "stop", lambda original: _stop_for_good(original, agent))
    _active_while_held(StreamingQuery, agent)
    _list_held(StreamingQueryManager, agent)
    replace(StreamingQueryManager, "get", lambda original: _get_held(original, agent))


def _this_query(handle: PySpark, hold: QueryHold) -> Callable[[], bool]:
    run_id = handle.runId
    return lambda: hold.was_only_held(handle, run_id)


def _any_query(_manager: PySpark, hold: QueryHold) -> Callable[[], bool]:
    count = hold.count
    return lambda: hold.ends_were_holds(count)


def _await_again(
    cls: PySpark, name: str, agent: Agent, begin: Callable[[PySpark, QueryHold], Callable[[], bool]]
) -> None:
    """Await a query again that was only held; return when everything has drained if the run ends."""

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, timeout: float | None = None) -> PySpark:
            until_s = time.monotonic() + (timeout or 0)
            while True:
                agent.await_turn()
                result, error, was_only_held = None, None, begin(self, agent.held)
                try:
                    result = original(self, timeout)
                except Exception as raised:  # noqa: BLE001  # raised again below
                    error = raised
                again = result is not False and was_only_held()
                if agent.wait_if_draining():
                    return result  # an error while it drains is the agent's to handle, not the script's
                if not again:
                    break
                if timeout is not None:
                    timeout = max(_SHORTEST_S, until_s - time.monotonic())
            if error is not None:
                raise error
            return result

        return call

    replace(cls, name, wrapper)


def _stop_for_good(original: Callable[..., Any], agent: Agent) -> Callable[..., Any]:
    def call(self: PySpark) -> PySpark:
        agent.held.leave_stopped(self)
        agent.held.follow(self, self.runId)
        return original(self)

    return call


def _active_while_held(cls: PySpark, agent: Agent) -> None:
    original = cls.isActive.fget

    def is_active(self: PySpark) -> bool:
        if stand_in_of(self) is not None or agent.held.is_held(self):
            return True
        if any(one is self for one in agent.postponed_handles()):  # replayed: it may be between two batches
            return True
        agent.held.follow(self, self.runId)
        return bool(original(self))

    cls.isActive = property(is_active)


def _list_held(cls: PySpark, agent: Agent) -> None:
    """List queries whose start is put off too, and wait for nothing.

    A listener or a function of a batch may ask, and Spark's start, or the end of the run, waits for those.
    """
    original = cls.active.fget

    def active(self: PySpark) -> list[PySpark]:
        postponed = agent.postponed_handles()  # before Spark's own: what begins meanwhile is in both
        active = agent.held.with_held(original(self))
        found = {handle.id for handle in active} if postponed else set()
        return active + [one for one in postponed if stand_in_of(one) is not None or one.id not in found]

    cls.active = property(active)


def _get_held(original: Callable[..., Any], agent: Agent) -> Callable[..., Any]:
    def call(self: PySpark, id: str) -> PySpark:  # Spark's name
        held = agent.held.handle(id)
        if held is not None:
            return held
        for handle in agent.postponed_handles():
            if (stand_in := stand_in_of(handle)) is not None and stand_in.is_known_as(id):
                return handle
        return original(self, id)

    return call
