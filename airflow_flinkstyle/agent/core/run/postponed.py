"""Starts of a driver that rehearses: each query is rehearsed at once, and started after the takeover.

So the script continues after its first start, and every query that it starts is rehearsed. It holds stand-ins
meanwhile, and waits where it needs a query that runs.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from airflow_flinkstyle.agent.core.errors import QueryUnknownError
from airflow_flinkstyle.agent.core.guards import checks, waiting
from airflow_flinkstyle.agent.core.run.reasons import Drilled

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.admission import Admission
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.run.rehearsal import RehearsalRun
    from airflow_flinkstyle.agent.core.spark import Handle, SparkQuery, StartSettings
    from airflow_flinkstyle.savepoint.manifest import Manifest

_OTHERS_S = 10.0
"""How long the savepoint's other queries are waited for, each time the script has started one."""
_POLL_S = 0.05


class Starter(Protocol):
    """Starts queries, and ends the run if that fails."""

    def start_now(self, query: JobQuery, run: Callable[[], SparkQuery]) -> None:
        """Admit a query and start it in Spark; the first one takes the job over."""

    def run_to_end(self, action: Callable[[], None]) -> None:
        """Run an action that no thread of the script waits for; an error ends the run."""


@dataclass(frozen=True, slots=True)
class _Start:
    """One postponed start."""

    query: JobQuery
    handle: Handle
    """The script's, with a stand-in."""
    settings: StartSettings
    """As they were when the script called."""


class Postponed:
    """The starts that wait for the takeover; none in a driver that does not rehearse."""

    def __init__(
        self,
        driver: Driver,
        admission: Admission,
        starter: Starter,
        begin: Callable[[Manifest], RehearsalRun],
    ) -> None:
        """Args: ``begin``: returns the rehearsals on a savepoint."""
        self._driver, self._admission, self._starter, self._begin = driver, admission, starter, begin
        self._lock = threading.Lock()
        """One rehearsal at a time; it also guards the attributes below."""
        self._rehearsal: RehearsalRun | None = None
        self._manifest: Manifest | None = None
        self._starts: list[_Start] = []
        self._newest_s = 0.0
        self._takes_more: bool | None = None
        """None before the first start."""
        self._over = threading.Event()
        self._leader: threading.Thread | None = None
        """The thread that runs the postponed starts."""

    def postpone(self, query: JobQuery) -> Handle:
        """Rehearse a start; returns a handle for the script, or None if the query is to be started now.

        Raises:
            FlinkstyleError: ``REHEARSAL_FAILED`` if the rehearsal failed.
        """
        with self._lock:
            if self._takes_more is None:
                self._takes_more = self._begins()
            if not self._takes_more or self._rehearsal is None:
                return None
            try:
                start = self._rehearsed(query, self._rehearsal)
            except BaseException:
                if not self._starts:  # a script that catches the error has nothing to wait for
                    self._takes_more = self._rehearsal = None
                raise
            self._starts.append(start)
            self._newest_s = time.monotonic()
            if len(self._starts) == 1:
                run = self._starter.run_to_end
                self._leader = threading.Thread(
                    target=run, args=(self._lead,), name="flinkstyle-standby", daemon=True
                )
                self._leader.start()
        return start.handle

    def _rehearsed(self, query: JobQuery, rehearsal: RehearsalRun) -> _Start:
        rehearsal.try_out(query)
        if not self._starts and not self._driver.driver_run.claim.is_drill:
            self._admission.prepare(self._of(), query)
        return _Start(query, self._handle(query), query.session.start_settings())

    def handles(self) -> list[Handle]:
        """Return the script's handles of postponed queries that do not run yet."""
        return [start.handle for start in list(self._starts) if start.query.query is None]

    def await_turn(self) -> None:
        """Wait until all postponed queries run, or the run ends; return at once if there are none.

        The thread that starts them does not wait for itself: it asks Spark for its queries too.
        """
        if threading.current_thread() is self._leader:
            return
        while self._takes_more is not None and self._rehearsal is not None:
            if self._driver.ending.is_set() or self._over.wait(_POLL_S):
                return

    def _begins(self) -> bool:
        if self._driver.driver_run.claim.rehearse is None:
            return False
        self._manifest = manifest = self._admission.to_prepare()
        self._rehearsal = self._begin(manifest) if manifest is not None else None
        return self._rehearsal is not None

    def _of(self) -> Manifest:
        assert self._manifest is not None  # noqa: S101  # for mypy
        return self._manifest

    def _handle(self, query: JobQuery) -> Handle:
        snapshot = self._of().query(query.name)

        def begun() -> None:
            self.await_turn()
            self._driver.leave_if_ending()

        return query.session.stand_in(query.name, snapshot.query_id if snapshot is not None else None, begun)

    # --- in a thread of its own ------------------------------------------------------------------

    def _lead(self) -> None:
        """Wait for the savepoint's other queries, then take the job over and start them all."""
        self._await_others()
        if self._driver.driver_run.claim.is_drill:
            self._driver.begin_end(Drilled())
            return
        self._admission.await_order()  # with the session's settings as the script has set them by now
        for start in self._starts:
            with start.settings.again():
                self._starter.start_now(start.query, partial(start.query.start.run, start.handle))
        self._over.set()

    def _await_others(self) -> None:
        """Return once no more starts are postponed; a rehearsal that failed ends the run instead."""
        rehearsal = self._rehearsal
        assert rehearsal is not None  # noqa: S101  # for mypy
        while True:
            self._driver.leave_if_ending()
            with self._lock:
                late = time.monotonic() - self._newest_s > _OTHERS_S
                missing = set(rehearsal.missing()) - waiting.dropped_queries(self._driver.queries.spark)
                if rehearsal.failure is None and (late or not missing):
                    self._takes_more = False
                    return self._conclude(rehearsal, missing)
            time.sleep(_POLL_S)

    def _conclude(self, rehearsal: RehearsalRun, missing: set[str]) -> None:
        """Record the results; a query under a new name is refused while the old run continues."""
        known, in_script = {one.name for one in self._of().queries}, self._driver.queries.names()
        for start in self._starts:
            try:
                checks.require_known(start.query, known, in_script)
            except QueryUnknownError as error:
                raise rehearsal.failed(start.query.name, error) from error
        for name in sorted(missing):
            rehearsal.leave_out(name, self._why_missing())
        rehearsal.conclude()

    def _why_missing(self) -> str:
        for start in self._starts:
            if asked := start.query.session.asked_of(start.handle):
                return f"the script asks query {start.query.name} for {asked} before it starts it"
        return f"the script has not started it within {_OTHERS_S:g} s of the start before"
