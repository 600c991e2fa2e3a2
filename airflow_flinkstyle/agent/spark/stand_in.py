"""The script's object for a query whose start is put off: it has the name, and waits for all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.spark.untyped import Java


class StandIn:
    """In the place of Spark's ``StreamingQueryWrapper`` until there is one."""

    def __init__(self, name: str, query_id: Java, begun: Callable[[], Java]) -> None:
        """Stand in for a query.

        Args:
            name: The query's.
            query_id: Its ``java.util.UUID``, known from a savepoint; None to wait for it.
            begun: Waits for Spark's start of it, and returns Spark's object.
        """
        self._name, self._query_id, self._begun = name, query_id, begun
        self.asked = ""
        """What the script asked of it first that only a running query can answer; empty if nothing."""

    def name(self) -> str:
        """Return the query's name."""
        return self._name

    def id(self) -> Java:
        """Return its id: every run of a checkpoint has the same."""
        return self._query_id if self._query_id is not None else self._begun().id()

    def is_known_as(self, query_id: str) -> bool:
        """Return whether its id is known to be this one, without waiting."""
        return self._query_id is not None and str(self._query_id) == query_id

    def __getattr__(self, name: str) -> Java:
        """Wait until Spark runs the query; it answers then."""
        self.asked = self.asked or name
        return getattr(self._begun(), name)


def stand_in_of(handle: Java) -> StandIn | None:
    """Return the stand-in behind a handle of the script; None if Spark has started the query."""
    return handle._jsq if isinstance(handle._jsq, StandIn) else None  # noqa: SLF001
