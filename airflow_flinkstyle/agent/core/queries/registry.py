"""The queries of the job, by name: where their checkpoints are, what they read, how far they are."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.declared import difference, difference_since_relaunch
from airflow_flinkstyle.agent.core.errors import QUERY_NAME_MISSING, query_name_taken
from airflow_flinkstyle.agent.core.job_query import JobQuery
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.board import check_name
from airflow_flinkstyle.storage.keys import below
from airflow_flinkstyle.types import ONLY_QUERY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.agent.core.declared import Declaration
    from airflow_flinkstyle.agent.core.guards.waiting import WaitingQuery
    from airflow_flinkstyle.agent.core.spark import Spark, SparkQuery, SparkStart, StreamingSource
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.storage.base import ObjectStore

MOST_NAMED = 16
"""Of queries that were started past the agent."""
NEWS_S = 60.0
"""How long after its start a query's first commit is polled for often."""


class Queries:
    """Every query that the script has started, or is about to start."""

    def __init__(self, checkpoint_location: str, before: Mapping[str, QueryStatus] | None = None) -> None:
        """Args: ``before``: their last status of an earlier incarnation of this generation."""
        self._before = before or {}
        self.root = checkpoint_location.rstrip("/")
        self.known_spark: Spark | None = None
        """The session of the first query; before that one in which the script has read a table."""
        self._lock = threading.Lock()
        self._known: dict[str, JobQuery] = {}
        self._waiting: Sequence[WaitingQuery] = ()
        self._is_unnamed = False
        """Whether the script has started a query without a name."""

    @property
    def spark(self) -> Spark:
        """The same, for callers that know that the script has made one."""
        assert self.known_spark is not None  # noqa: S101  # for mypy
        return self.known_spark

    def checkpoint(self, query: str) -> ObjectStore:
        """Open a query's checkpoint: it is in a folder of the query's name."""
        return self.spark.open(below(self.root, query))

    def place(self) -> ObjectStore:
        """Open the checkpoint location, in which the queries' checkpoints are."""
        return self.spark.open(self.root)

    def names_in_checkpoint(self) -> list[str]:
        """Return the folders at the checkpoint location: one for each query that has run there."""
        return list(self.place().folders())

    def all(self) -> list[JobQuery]:
        """Return the queries that passed the guard and were started, by name."""
        return self.started_and_waiting()[0]

    def has_started(self, query_id: str) -> bool:
        """Return whether Spark's start of the query with this id has returned."""
        return any(query.started.id == query_id for query in self.all())

    def unregistered(self) -> tuple[str, ...]:
        """Return what Spark runs beside the queries that PySpark started: names, or ids of those without.

        A helper in a JAR can start one in the JVM. It is in no savepoint, and no stop waits for its batch.
        """
        with self._lock:
            known = list(self._known.values())
        if not known or any(query.starting for query in known):
            return ()  # Spark may know it before its start has returned
        ours = {query.query.id for query in known if query.query is not None}
        others = [name or query_id for query_id, name in self.spark.active() if query_id not in ours]
        return tuple(sorted(others)[:MOST_NAMED])

    def take_over(self, first: JobQuery, waiting: Sequence[WaitingQuery]) -> None:
        """Note that the job is this process's now, with the queries that it continues."""
        with self._lock:
            first.admitted, self._waiting = True, waiting

    def started_and_waiting(self) -> tuple[list[JobQuery], list[WaitingQuery]]:
        """Return the queries of one moment: those that were started, and those that wait for it."""
        with self._lock:
            started = {name: query for name, query in sorted(self._known.items()) if query.query is not None}
            return list(started.values()), [one for one in self._waiting if one.name not in started]

    def names(self) -> set[str]:
        """Return the names that the script has used so far, those about to start included."""
        with self._lock:
            return set(self._known)

    def note_start(self, query: JobQuery) -> None:
        """Note what the query starts from, in the thread that starts it."""
        query.before = query.read_committed()
        query.started_s, query.started_at_ms = time.monotonic(), now_ms()
        query.thread = query.start.thread_settings()

    def statuses(self) -> dict[str, QueryStatus]:
        """Return their status for the heartbeat, by name."""
        with self._lock:
            known = sorted(self._known.items())
        waiting = {query.name: query.status for query in self.started_and_waiting()[1]}
        return waiting | {
            name: query.status() for name, query in known if query.query is not None or query.admitted
        }

    def has_committed(self) -> bool:
        """Return whether a query has committed a batch since it was started, as of the last read."""
        return any(query.committed not in (None, query.before) for query in self.all())

    def news(self) -> bool:
        """Return whether a query has committed its first batch since it was started, not yet noted."""
        since_s = time.monotonic() - NEWS_S
        waiting = [q for q in self.all() if q.committed == q.before and q.started_s > since_s]
        return any(query.read_committed() != query.before for query in waiting)

    def register(
        self,
        name: str | None,
        start: SparkStart,
        sources: Sequence[StreamingSource],
        declared: Declaration,
    ) -> JobQuery:
        """Note a query before it starts; its checkpoint is in a folder of its name.

        Raises:
            FlinkstyleError: ``QUERY_NAME`` if it has no name although the job has several queries, or is
                another query than the one that was started before under its name.
        """
        with self._lock:
            chosen = self._name(name)
            known = self._known.get(chosen)
            self._require_same(chosen, known, declared, is_named=name is not None)
            query = JobQuery(
                name=chosen,
                start=start,
                checkpoint=self.checkpoint(chosen),
                location=as_spark_writes(below(self.root, chosen)),
                sources=sources,
                declared=declared,
                ran=known.ran if known else None,
                identities=known.identities if known else {},
                lost=known.lost if known else {},
                known_id=known.known_id if known else "",
                carried=known.carried if known else None,
            )
            if known is not None and known.query is not None:
                if known.is_active:
                    return query  # Spark itself refuses a second one of the name
                # Its last run counts until this one has started: no stop and no savepoint may miss the query.
                query.query, query.thread = known.query, known.thread
            self._known[chosen] = query
            return query

    def settle(self, query: JobQuery, started: SparkQuery | None) -> None:
        """Note what Spark's start of a registered query returned; None if it failed."""
        with self._lock:
            query.starting = query.admitted = False
            if started is not None:
                query.query, query.ran = started, query.declared
                self._known[query.name] = query

    def _require_same(
        self, name: str, known: JobQuery | None, declared: Declaration, *, is_named: bool
    ) -> None:
        before = self._before.get(name)
        found = None
        if known is not None and known.starting:
            found = "a second one while the first is being started"
        elif known is not None and known.ran is not None:
            found = difference(known.ran, declared)
            if known.is_active and (found is not None or not is_named):
                found = "a second one while the first runs"
        elif before is not None and before.declared is not None:
            found = difference_since_relaunch(before.declared, declared)
        if found is not None:
            raise query_name_taken(name, found)

    def _name(self, name: str | None) -> str:
        if name is None:
            others = self._known.keys() - {ONLY_QUERY}
            self._is_unnamed = True
        elif self._is_unnamed:
            others = {name} - {ONLY_QUERY}
        else:
            others = set()
        if others:
            raise QUERY_NAME_MISSING.error(others=", ".join(sorted(others)))
        return ONLY_QUERY if name is None else check_name("query name", name)


def as_spark_writes(location: str) -> str:
    """Return a location with the scheme by which Spark opens it."""
    return "s3a://" + location.removeprefix("s3://") if location.startswith("s3://") else location
