"""Hold the queries between two batches for a while, without their script noticing.

A query continues under a new handle of Spark's, which takes the old one's place inside the object that the
script holds. A wait of the script that the hold has ended begins again.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import QUERY_ENDED
from airflow_flinkstyle.agent.core.queries.stopping import (
    commit_planned,
    listeners_away,
    sessions_of,
    stop_at_boundary,
    wait_until_stopped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.queries.registry import Queries
    from airflow_flinkstyle.agent.core.spark import Handle, Spark

log = logging.getLogger(__name__)


class QueryHold:
    """At most one hold at a time; its count shows whether one has ended in between."""

    def __init__(self, queries: Queries) -> None:
        self.count = 0
        """Holds that have ended."""
        self._queries = queries
        self._held: dict[str, JobQuery] = {}
        self._free = threading.Event()
        self._free.set()
        # A stop by the script and a query that continues exclude each other.
        self._resume_lock = threading.Lock()

    @contextmanager
    def begin(
        self,
        *,
        check: Callable[[], None],
        before_start: Callable[[JobQuery], None],
        ends: Callable[[], bool],
        failed: Callable[[BaseException], None],
    ) -> Iterator[list[JobQuery]]:
        """Stop all queries with every planned batch committed; let those that ran continue afterwards.

        Args:
            check: Called in every round of a wait; raises to let the queries continue.
            before_start: Called for each query before it continues; raises if it must not.
            ends: Whether the run ends, so that no query may continue.
            failed: Called if one cannot continue; begins the end of the run before it returns.
        """
        queries = self._queries.all()
        with listeners_away(queries):
            yield from self._held_and_resumed(queries, check, before_start, ends, failed)

    def _held_and_resumed(
        self,
        queries: list[JobQuery],
        check: Callable[[], None],
        before_start: Callable[[JobQuery], None],
        ends: Callable[[], bool],
        failed: Callable[[BaseException], None],
    ) -> Iterator[list[JobQuery]]:
        begun_s = time.monotonic()
        begun: dict[str, JobQuery] = {}
        awaited: list[Spark] = []
        self._free.clear()
        try:
            resumed = [query for query in queries if query.is_active and not query.is_bounded]
            begun.update((query.started.id, query) for query in resumed)
            self._held = dict(begun)
            # Where one has ended, awaitAnyTermination returns at once, and must continue to do so.
            awaited += [spark for spark in sessions_of(queries) if not spark.has_seen_an_end()]
            stop_at_boundary(queries, check=check)
            for query in list(self._held.values()):
                commit_planned(query, check=check)
            check()
            yield queries
        finally:
            try:
                if not ends():
                    self._resume_queries(before_start, ends, failed)
                    if all(query.is_active for query in begun.values()):  # else one has really ended
                        for spark in awaited:
                            spark.forget_ends()
            finally:
                self._held, self.count = {}, self.count + 1
                self._free.set()
                log.info("The queries were held for %.2f s", time.monotonic() - begun_s)

    def _resume_queries(
        self,
        before_start: Callable[[JobQuery], None],
        ends: Callable[[], bool],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Let each continue once it has stopped: after a cancelled hold one may still be in its batch."""

        def resume_query(query_id: str, query: JobQuery) -> None:
            try:
                if query.is_active and not query.quiet:
                    query.silenced_runs.discard(query.started.run_id)
                    return  # its stop flag is not set yet
                if query.is_active:  # its planned batch, which a cancel does not end, and nothing follows
                    stop_at_boundary([query])
                else:
                    wait_until_stopped(query)
                if query.failure is None and not ends():  # a failure is raised to the script
                    before_start(query)
                    with self._resume_lock:
                        if query_id in self._held:
                            query.start_again()
            except Exception as error:
                log.exception("Query %s was held and cannot resume", query.name)
                failed(error)

        held = dict(self._held)
        with ThreadPoolExecutor(max_workers=len(held) or 1, thread_name_prefix="resume") as pool:
            list(pool.map(resume_query, held.keys(), held.values()))

    def require_all(self) -> None:
        """Check that every query is held.

        Raises:
            FlinkstyleError: ``QUERY_ENDED`` if one had ended before, or the script stopped it since.
        """
        if ended := [query.name for query in self._queries.all() if query.started.id not in self._held]:
            raise QUERY_ENDED.error(names=", ".join(ended))

    # --- what the script's listeners get --------------------------------------------------------

    def is_own_start(self, query_id: str) -> bool:
        """Return whether a query starts because the agent lets it continue, or runs its planned batch."""
        return any(query.quiet and query.started.id == query_id for query in self._queries.all())

    def is_own_end(self, query_id: str, run_id: str) -> bool:
        """Return whether the agent has ended a run, or started it for one batch only."""
        return any(
            query.started.id == query_id and (query.quiet or run_id in query.silenced_runs | query.held_runs)
            for query in self._queries.all()
        )

    # --- what the script asks -------------------------------------------------------------------

    def is_held(self, handle: Handle) -> bool:
        """Return whether a query only pauses, so that the script should take it for active."""
        return bool(self._held) and handle.id in self._held

    def leave_stopped(self, handle: Handle) -> None:
        """Note that the script stops a query: it does not continue."""
        if not self._free.is_set():
            with self._resume_lock:
                self._held.pop(handle.id, None)

    def was_only_held(self, handle: Handle, run_id: str) -> bool:
        """Wait for the end of a hold; True if the run ended by a hold, and the query has another run.

        The script's handle then leads to the new run.
        """
        self._free.wait()
        return self.follow(handle, run_id)

    def follow(self, handle: Handle, run_id: str) -> bool:
        """Let a handle of a run that was held lead to the query's new run; True if there is one."""
        query = next((query for query in self._queries.all() if run_id in query.held_runs), None)
        if query is None:
            return False
        query.started.stand_for(handle)
        return True

    def handle(self, query_id: str) -> Handle:
        """Return the script's own handle of a query that only pauses; None for any other."""
        query = self._held.get(query_id)
        return query.started.handle if query is not None else None

    def with_held(self, active: list[Handle]) -> list[Handle]:
        """Return the handles that Spark calls active, and those of queries that only pause."""
        found, held = {handle.id for handle in active}, dict(self._held)
        return active + [query.started.handle for query_id, query in held.items() if query_id not in found]

    def ends_were_holds(self, since_count: int) -> bool:
        """Wait for the end of a hold; True if queries ended since that count only to be held."""
        self._free.wait()
        return self.count != since_count and all(query.failure is None for query in self._queries.all())
