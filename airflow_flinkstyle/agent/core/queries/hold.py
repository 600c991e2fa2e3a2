"""Hold the queries between two batches for a while, without their script noticing.

A query continues under a new handle of Spark's, which takes the old one's place inside the object that the
script holds. What the script awaits meanwhile is awaited again.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import QueryEndedError
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
    """At most one hold at a time; its count tells whether one happened in between."""

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
        look: Callable[[], None],
        before_start: Callable[[JobQuery], None],
        ends: Callable[[], bool],
        failed: Callable[[BaseException], None],
    ) -> Iterator[list[JobQuery]]:
        """Stop all queries with every planned batch committed; let those that ran continue afterwards.

        Args:
            look: Called while a query is waited for; raises to let them continue.
            before_start: Called for each query before it continues; raises if it must not.
            ends: Whether the run ends, so that none may continue.
            failed: Called if one cannot continue; begins the end of the run before it returns.
        """
        queries = self._queries.all()
        with listeners_away(queries):
            yield from self._held_and_resumed(queries, look, before_start, ends, failed)

    def _held_and_resumed(
        self,
        queries: list[JobQuery],
        look: Callable[[], None],
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
            stop_at_boundary(queries, look=look)
            for query in list(self._held.values()):
                commit_planned(query, look=look)
            look()
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
        """Let each continue once it has stopped: one that was not waited for may still be in its batch."""

        def resume_query(query_id: str, query: JobQuery) -> None:
            try:
                if query.is_active:
                    query.silenced_runs.discard(query.started.run_id)
                    return  # it was not told to stop yet
                wait_until_stopped(query)
                if query.failure is None and not ends():  # the script learns of a failure when it looks
                    before_start(query)
                    with self._resume_lock:
                        if query_id in self._held:
                            query.start_again()
            except Exception as error:
                log.exception("Query %s was held and cannot resume", query.name)
                failed(error)

        held = dict(self._held)
        with ThreadPoolExecutor(max_workers=len(held) or 1, thread_name_prefix="go-on") as pool:
            list(pool.map(resume_query, held.keys(), held.values()))

    def require_all(self) -> None:
        """Check that every query is held.

        Raises:
            QueryEndedError: If one had ended before, or the script stopped it since.
        """
        if ended := [query.name for query in self._queries.all() if query.started.id not in self._held]:
            raise QueryEndedError.of(ended)

    # --- what the script's listeners hear -------------------------------------------------------

    def is_own_start(self, query_id: str) -> bool:
        """Return whether a query starts because the agent lets it continue, or runs its planned batch."""
        return any(query.quiet and query.started.id == query_id for query in self._queries.all())

    def is_own_end(self, query_id: str, run_id: str) -> bool:
        """Return whether a run has ended because the agent told it to, or was for one batch of its own."""
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

    def went_on(self, handle: Handle, run_id: str) -> bool:
        """Wait for the end of a hold; True if a run was only held and the query continues, or failed, anew.

        The script's handle is then that of the new run.
        """
        self._free.wait()
        return self.follow(handle, run_id)

    def follow(self, handle: Handle, run_id: str) -> bool:
        """Let any handle of a run that was held stand for the run that went on; True if there is one."""
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
        """Return what Spark calls active, and the queries that only pause."""
        found, held = {handle.id for handle in active}, dict(self._held)
        return active + [query.started.handle for query_id, query in held.items() if query_id not in found]

    def any_went_on(self, seen: int) -> bool:
        """Wait for the end of a hold; True if queries ended since count ``seen`` only to be held."""
        self._free.wait()
        return self.count != seen and all(query.failure is None for query in self._queries.all())
