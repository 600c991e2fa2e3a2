"""The jobs below one savepoint root, read once for all viewers.

Nothing is read while nobody views the page. A request never waits for the store: it gets what was read last,
and begins the next reading in the background if that is old. How soon the next one may begin depends on what
the last cost, so that the store gets at most ``MOST_PER_MINUTE`` requests a minute, however many viewers. The
views of single jobs have a budget of their own, so that a large table does not shut them.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.store_threads import StoreThreads
from airflow_flinkstyle.jobs.status import Sightings
from airflow_flinkstyle.plugin.cache.pieces import Pieces
from airflow_flinkstyle.plugin.views.documents import error_document
from airflow_flinkstyle.plugin.views.job_reader import JobReader
from airflow_flinkstyle.protocol.board import is_job_name
from airflow_flinkstyle.storage.breaker import Breaker
from airflow_flinkstyle.storage.keys import is_name
from airflow_flinkstyle.storage.meter import BURST_MINUTES, Meter, MeteredStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.storage.base import ObjectStore

ROUND_S = 10.0
"""The least time between two readings of all jobs."""
NAMES_S = 60.0
"""How long the names of the jobs count."""
SELDOM_JOBS = 100
"""Jobs whose savepoints and migrations are read again in one reading, those read longest ago first."""
MOST_NOT_JOBS = 5
"""Folders named on the page whose names no job can have."""
_THREADS = 8
_NOTHING_YET: dict[str, Any] = {
    "loading": True,
    "jobs": [],
    "not_jobs": [],
    "read_at_ms": None,
    "error": None,
}
log = logging.getLogger(__name__)


class RootWatch:
    """Holds what was read last of one root; safe to ask from many threads."""

    def __init__(
        self,
        connect: Callable[[], ObjectStore],
        meter: Meter | None = None,
        *,
        breaker: Breaker | None = None,
    ) -> None:
        """Begin with nothing read.

        Args:
            connect: Opens the store, or returns the one before while the connection is the same; called in
                the background, again after a while and after an error.
            meter: How often the table may ask.
            breaker: What is known of the store's service.
        """
        self.meter = meter or Meter()
        """Of the table."""
        self.views = Meter(burst_minutes=BURST_MINUTES)
        self.pieces = Pieces(self.views)
        self._connect, self._breaker = connect, breaker or Breaker()
        self._threads = StoreThreads("flinkstyle table", _THREADS)
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._store: ObjectStore | None = None
        self._sightings = Sightings()
        self._readers: dict[str, JobReader] = {}
        self._proved: set[str] = set()
        """The names of folders that are jobs."""
        self._view_readers: dict[str, JobReader] = {}
        self._not_jobs: list[str] = []
        self._names_at_s = float("-inf")
        self._newest: dict[str, Any] | None = None
        self._next_s, self._reading = float("-inf"), False

    def jobs(self) -> dict[str, Any]:
        """Return the jobs as read last (``loading``: not yet), and when; ``reading``: again.

        ``requests`` were made to the store since the API server began.
        """
        now_s = time.monotonic()
        with self._lock:
            begin = not self._reading and now_s >= self._next_s
            self._reading = self._reading or begin
        if begin:
            threading.Thread(target=self._read, name="flinkstyle-page", daemon=True).start()
        newest = self._newest or _NOTHING_YET
        return {**newest, "reading": self._reading, "requests": self.meter.requests + self.views.requests}

    def request_reading(self) -> bool:
        """Let the next request begin a reading at once; return whether the store may be asked so soon."""
        allowed = self.meter.may_ask()
        if allowed:
            with self._lock:
                self._next_s = float("-inf")
        return allowed

    def reader(self, job: str) -> JobReader | None:
        """Return the reader of a job below the root; None if there is none of that name."""
        readers = self._view_readers  # with the store of now: another one has readers of its own
        known = readers.get(job)
        if known is None and is_name(job):
            store = self.store(self.views)
            if _is_job(store, job):
                known = readers.setdefault(job, JobReader(store, job, self._sightings))
        return known

    def store(self, meter: Meter) -> ObjectStore:
        """Return the store as opened last, and counted by a meter.

        Raises:
            FlinkstyleError: If the connection cannot be used.
        """
        with self._opening:
            if self._store is None:
                self._store = self._connect()
            metered: Any = MeteredStore(self._store, meter)
            return metered  # type: ignore[no-any-return]

    # --- one reading --------------------------------------------------------------------------

    def _read(self) -> None:
        begun_s, asked = time.monotonic(), self.meter.requests
        before = self._newest or _NOTHING_YET
        found: dict[str, Any] = {**before, "loading": False, "error": None}
        try:
            self._find_jobs(begun_s)
            found["not_jobs"] = self._not_jobs
            if before["loading"]:  # what each job does is shown before its savepoints are read
                now = {**found, "jobs": self._rows(begun_s, seldom_too=0), "read_at_ms": now_ms()}
                with self._lock:
                    self._newest = now
            found["jobs"] = self._rows(begun_s, seldom_too=None if before["loading"] else SELDOM_JOBS)
        except FlinkstyleError as error:
            found["error"] = error_document(error)
            log.warning("The Savepoints page cannot read a savepoint root: %s", error)
        except Exception:
            log.exception("The Savepoints page cannot read a savepoint root")
            found["error"] = {
                "code": "UNEXPECTED",
                "problem": "The jobs could not be read for an unexpected reason.",
                "state_after": "What is shown was read before.",
                "remedy": "The API server's log has the details.",
            }
        cost = self.meter.requests - asked
        with self._lock:
            # An error keeps the time of the last good reading, so that the page can say how old it is.
            at_ms = now_ms() if found["error"] is None else before["read_at_ms"]
            self._newest = {**found, "read_at_ms": at_ms}
            self._next_s = begun_s + max(ROUND_S, cost * 60 / self.meter.per_minute)
            self._reading = False

    def _find_jobs(self, now_s: float) -> None:
        if now_s - self._names_at_s < NAMES_S:
            return
        self._renew()
        store = self.store(self.meter)
        folders = [name for name in store.folders() if not name.startswith((".", "_"))]
        names = [name for name in folders if is_job_name(name)]
        self._not_jobs = [name for name in folders if not is_name(name)][:MOST_NOT_JOBS]
        known = self._readers
        self._readers = {name: known.get(name) or JobReader(store, name, self._sightings) for name in names}
        self._proved &= set(names)
        # A job of the name of one that was removed begins at generation 1 again: nothing of that one is kept.
        self._view_readers = {name: one for name, one in self._view_readers.items() if name in names}
        self._names_at_s = now_s

    def _renew(self) -> None:
        """Forget what was read if the connection leads elsewhere by now: the buttons use it as it is."""
        with self._opening:
            before, self._store = self._store, self._connect()
            is_other = before is not None and before is not self._store
        if is_other:
            log.info("The Savepoints page reads %s from now on", self.store(self.meter).uri)
            self._readers, self._view_readers, self._proved = {}, {}, set()
            self.pieces.forget()

    def _rows(self, now_s: float, *, seldom_too: int | None) -> list[dict[str, Any]]:
        """Read each job's row, and for ``seldom_too`` jobs (None: all) also what changes seldom."""
        readers = [self._readers[name] for name in sorted(self._readers)]
        oldest = set(sorted(self._readers, key=lambda name: self._readers[name].seldom_at_s)[:seldom_too])

        def row(reader: JobReader) -> dict[str, Any] | None:
            found = reader.row(now_s, seldom_too=reader.job in oldest)
            return found if self._is_of_a_job(found) else None

        rows = [found for found in self._threads.map(row, readers) if found is not None]
        self._readers = {found["job"]: self._readers[found["job"]] for found in rows}
        if not self._breaker.may_ask:  # the store is away, not each job: what was read before is shown
            self._breaker.admit("be read", self.store(self.meter).uri)
        return rows

    def _is_of_a_job(self, row: dict[str, Any]) -> bool:
        """Return whether a folder is a job's: one that has run is; others take one more request."""
        name = row["job"]
        if name in self._proved or row["generation"] is not None or _is_job(self.store(self.meter), name):
            self._proved.add(name)
            return True
        return False


def _is_job(store: ObjectStore, name: str) -> bool:
    return not {"runs", "savepoints"}.isdisjoint(store.folders(f"{name}/"))
