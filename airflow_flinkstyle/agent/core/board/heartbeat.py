"""The heartbeat: the agent's state in the store, its lease, its pulse, and the history of its numbers.

The thread that keeps the lease does nothing else. It writes through a client of its own, which gives up early
enough to try again within the lease. It writes the last known status of the queries, and another thread reads
their checkpoints: a listing that hangs must not end a healthy job.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import SupersededError
from airflow_flinkstyle.agent.core.process import EXIT_DONE, EXIT_JVM_GONE, EXIT_LEASE_LOST, HALT_PATIENCE_S
from airflow_flinkstyle.clock import LEASE_CLOCK, now_ms
from airflow_flinkstyle.errors import FlinkstyleError, MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.history import History, Sample, totals
from airflow_flinkstyle.protocol.pulse import Pulse, write_pulse
from airflow_flinkstyle.protocol.records import MOST_URL_CHARACTERS, Heartbeat, beat_interval_s
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    StoreDeniedError,
    StoreError,
)
from airflow_flinkstyle.storage.open import impatient

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.agent.core.process import Process
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import AgentState
    from airflow_flinkstyle.types import Generation, Incarnation

ANSWERS_PER_LEASE = 8
"""A call of the heartbeat's client waits at most that part of the lease to connect, and for an answer."""
WATCH_INTERVAL_S = 0.25
_ENDING_S = WATCH_INTERVAL_S + HALT_PATIENCE_S
"""So long before its lease is over a driver begins to end: its successor counts on it that it has."""
SAMPLE_S = 15.0
"""Between two samples for the history."""
WRITE_S = 300.0
"""Between two writes of the history: 12 requests an hour; a driver that dies takes so much of the plots."""
FIRST_WRITE_S = 30.0
FINISH_S = 2.0
"""How long the driver's exit waits for the last write of the history."""
ANSWER_S = 10.0
_MOST_WAITING = 960
"""Samples kept while the store is away: four hours."""
log = logging.getLogger(__name__)


class HeartbeatWriter:
    """Writes the heartbeat; every write that succeeds confirms the lease."""

    def __init__(
        self,
        board: JobBoard,
        generation: Generation,
        incarnation: Incarnation,
        *,
        lease_s: float,
        seen: str | None,
        queries: Callable[[], Mapping[str, QueryStatus]],
        before: Mapping[str, QueryStatus],
        has_committed: Callable[[], bool] = lambda: False,
        committed_before: bool = False,
        clock: Clock = LEASE_CLOCK,
    ) -> None:
        own_client = impatient(board.store, answer_s=lease_s / ANSWERS_PER_LEASE)
        self.board, self.generation, self.incarnation = (
            JobBoard(own_client, board.job),
            generation,
            incarnation,
        )
        self.lease_s = lease_s
        self.interval_s = beat_interval_s(lease_s)
        self.clock = clock
        self.confirmed_at_s = clock.now_s
        self.ended = False
        self._version = seen
        self._queries, self._has_committed = queries, has_committed
        self._known: Mapping[str, QueryStatus] = {}
        self._reads_begun, self._newest_read = 0, 0
        self._before = before
        """The status that an earlier incarnation wrote, repeated for queries that this one has not started
        yet: if it dies first, its successor must know of them. Not in ``closed``, which is exact."""
        self._lock = threading.Lock()
        self._newest = Heartbeat(
            incarnation=incarnation,
            state="starting",
            beat=0,
            written_at_ms=0,
            spark_version="",
            application_id="",
            python_version=platform.python_version(),
            queries={},
            has_committed=committed_before,
        )

    @property
    def state(self) -> AgentState:
        """The state last written."""
        return self._newest.state

    @property
    def newest_beat(self) -> int:
        """The number of the heartbeat last written; 0 before the first."""
        return self._newest.beat

    @property
    def known(self) -> Mapping[str, QueryStatus]:
        """The last known status of the queries, by name."""
        return self._known

    def spark_is_up(self, *, spark_version: str, application_id: str, ui_url: str | None = None) -> None:
        """Add Spark's version, its application and its UI to every later heartbeat."""
        if ui_url is not None and len(ui_url) > MOST_URL_CHARACTERS:
            ui_url = None
        with self._lock:
            self._newest = replace(
                self._newest, spark_version=spark_version, application_id=application_id, ui_url=ui_url
            )

    def drop(self, names: Collection[str]) -> None:
        """Name in every later heartbeat the queries that the job has dropped."""
        with self._lock:
            self._newest = replace(self._newest, dropped=tuple(sorted(names)))

    def found_unregistered(self, names: Collection[str]) -> None:
        """Name in every later heartbeat the queries that were started past the agent."""
        names = tuple(sorted(names))
        with self._lock:
            if names != self._newest.unregistered:
                log.warning("Queries that were started past PySpark: %s", ", ".join(names) or "none any more")
            self._newest = replace(self._newest, unregistered=names)

    def precopied(self, savepoint_id: str) -> None:
        """Name in every later heartbeat the savepoint that this driver has copied ahead."""
        with self._lock:
            self._newest = replace(self._newest, precopied=savepoint_id)

    def require_writable(self, queries: Mapping[str, QueryStatus]) -> None:
        """Check that a heartbeat can hold this status of the queries.

        Raises:
            MessageFormatError: If not: a job that was taken over then could not receive any request.
        """
        replace(self._newest, queries={**self._before, **queries}).to_bytes()

    def beat(self, state: AgentState | None = None) -> None:
        """Read the queries' status and write a heartbeat, with another state if one is given.

        Raises:
            SupersededError: If another incarnation has written since.
        """
        self.read_queries()
        self._write(state)

    def renew(self) -> None:
        """Write a heartbeat with the last known status of the queries: reading them may hang.

        Raises:
            SupersededError: If another incarnation has written since.
        """
        self._write(None)

    def read_queries(self) -> None:
        """Read the queries' status for the next write; an older read that ends later is dropped."""
        with self._lock:
            self._reads_begun += 1
            number = self._reads_begun
        queries = dict(self._queries())
        with self._lock:
            if number > self._newest_read:
                self._newest_read, self._known = number, queries

    def end(
        self,
        state: AgentState,
        *,
        request_id: str | None = None,
        savepoint_id: str | None = None,
        error: tuple[str, str] | None = None,
        transient: bool = False,
    ) -> None:
        """Write the last heartbeat: the one write that ends a run."""
        self.read_queries()
        self._write(
            state,
            last=True,
            request_id=request_id,
            savepoint_id=savepoint_id,
            error=error,
            transient=transient,
        )

    def _write(
        self,
        state: AgentState | None,
        *,
        last: bool = False,
        request_id: str | None = None,
        savepoint_id: str | None = None,
        error: tuple[str, str] | None = None,
        transient: bool = False,
    ) -> None:
        with self._lock:
            if self.ended:
                return
            queries = dict(self._known)
            begun_s = self.clock.now_s
            state = state or self._newest.state  # as it is now: another thread may have changed it
            heartbeat = replace(
                self._newest,
                state=state,
                beat=self._newest.beat + 1,
                written_at_ms=now_ms(),
                queries=queries if state == "closed" else {**self._before, **queries},
                request_id=request_id,
                savepoint_id=savepoint_id,
                error=error,
                transient=transient,
                has_committed=self._newest.has_committed or self._has_committed(),
            )
            self._version = self._put(heartbeat)
            self._newest, self.confirmed_at_s, self.ended = heartbeat, begun_s, last

    def _put(self, heartbeat: Heartbeat) -> str:
        try:
            return self.board.beat(self.generation, heartbeat, seen=self._version)
        except (ObjectChangedError, ObjectExistsError):
            found = self.board.heartbeat(self.generation)
            if found is None or found.value.incarnation != self.incarnation:
                raise self._superseded(found.value.incarnation if found else None) from None
            # An earlier write of ours took effect although it seemed to fail.
            return self.board.beat(self.generation, heartbeat, seen=found.version)

    def _superseded(self, by: Incarnation | None) -> SupersededError:
        return SupersededError(
            f"Incarnation {self.incarnation} of generation {self.generation} expected its own heartbeat, "
            f"found that of incarnation {by}.",
            state_after="The other driver's heartbeat is unchanged.",
            remedy="Nothing is to be done: the newer driver runs the job.",
        )

    def lease_is_lost(self) -> bool:
        """Return whether the driver must end, its lease unconfirmed; never once the run has ended."""
        lasts_s = self.lease_s - min(_ENDING_S, self.lease_s / 4)
        return not self.ended and self.clock.now_s - self.confirmed_at_s > lasts_s

    def is_current(self) -> bool:
        """Return whether ``current.json`` still names this incarnation."""
        current = self.board.current()
        return current is not None and (
            (current.value.generation, current.value.incarnation) == (self.generation, self.incarnation)
        )


class HeartbeatThread(threading.Thread):
    """Keeps the lease in the background, and writes sooner when a query commits its first batch."""

    def __init__(self, writer: HeartbeatWriter, process: Process, *, news: Callable[[], bool]) -> None:
        super().__init__(name="flinkstyle-heartbeat", daemon=True)
        self._writer, self._process = writer, process
        self._reader = QueryReaderThread(writer, news=news)
        self._tick_s = min(0.5, writer.interval_s)

    def run(self) -> None:
        """Write heartbeats until the run ends; end the process when another driver runs the job."""
        writer = self._writer
        written_s = writer.clock.now_s
        self._reader.start()
        pause = threading.Event()
        while not writer.ended:
            pause.wait(self._tick_s)
            try:
                begun_s = writer.clock.now_s
                if begun_s - written_s < writer.interval_s and not self._reader.found.is_set():
                    continue
                self._reader.found.clear()
                writer.renew()
                written_s = begun_s  # a write that failed is tried again at the next tick
                if writer.state in ("running", "draining") and not writer.is_current():
                    log.error("current.json names another driver")
                    self._process.halt(EXIT_DONE)
            except SupersededError:
                log.exception("Superseded")
                self._process.halt(EXIT_DONE)
            except Exception:  # only the lease decides when this thread has to give up
                log.warning("The heartbeat could not be written", exc_info=True)


class QueryReaderThread(threading.Thread):
    """Reads the queries' checkpoints, which may hang, so that the thread that keeps the lease need not."""

    def __init__(self, writer: HeartbeatWriter, *, news: Callable[[], bool]) -> None:
        super().__init__(name="flinkstyle-queries", daemon=True)
        self.found = threading.Event()
        self._writer, self._news = writer, news
        self._tick_s = min(0.5, writer.interval_s)

    def run(self) -> None:
        """Read until the run ends: once per heartbeat, and when a query has committed its first batch."""
        writer = self._writer
        read_s = writer.clock.now_s
        pause = threading.Event()
        while not writer.ended:
            pause.wait(self._tick_s)
            try:
                is_new = self._news()
                if writer.clock.now_s - read_s < writer.interval_s and not is_new:
                    continue
                read_s = writer.clock.now_s
                writer.read_queries()
            except Exception:  # the next heartbeat repeats the last known status
                log.warning("The status of the queries could not be read", exc_info=True)
            else:
                if is_new:
                    self.found.set()


class Watchdog(threading.Thread):
    """Ends the process when its lease is lost or its JVM is gone; calls no store, so nothing can hold it."""

    def __init__(self, writer: HeartbeatWriter, process: Process) -> None:
        super().__init__(name="flinkstyle-watchdog", daemon=True)
        self._writer, self._process = writer, process

    def run(self) -> None:
        """Watch until the process ends."""
        pause = threading.Event()
        while True:
            pause.wait(WATCH_INTERVAL_S)
            if self._process.jvm_is_gone():
                os._exit(EXIT_JVM_GONE)
            if self._writer.lease_is_lost():
                log.error("The lease of %.1f s could not be confirmed", self._writer.lease_s)
                self._process.halt(EXIT_LEASE_LOST)


class HistoryKeeper(threading.Thread):
    """Samples the pace of the queries from the heartbeat, and adds it to the job's history now and then.

    In a thread of its own: the lease never waits for it. A query has a pace only once it runs, so a driver
    that waits beside another one adds nothing.
    """

    def __init__(self, board: JobBoard, writer: HeartbeatWriter) -> None:
        super().__init__(name="flinkstyle-history", daemon=True)
        self._board = JobBoard(impatient(board.store, answer_s=ANSWER_S), board.job)
        self._writer = writer
        self._ending = threading.Event()
        self._waiting: list[Sample] = []
        self._history, self._version = History(), ""
        """As this thread wrote or read it last; the version is empty before that."""

    def run(self) -> None:
        """Sample and write until the run ends, and once more after it."""
        waited_s, write_at_s = 0.0, FIRST_WRITE_S
        while not self._ending.wait(SAMPLE_S):
            waited_s += SAMPLE_S
            self.sample()
            if waited_s >= write_at_s:
                if not self.write():
                    return
                write_at_s = waited_s + WRITE_S
        self.sample()
        self.write()

    def finish(self) -> None:
        """Write the remaining samples, if the store answers soon: the run has ended."""
        self._ending.set()
        if self.is_alive():
            self.join(FINISH_S)

    def sample(self) -> None:
        """Note how fast the job is now."""
        sample = totals((status.pace for status in self._writer.known.values()), now_ms=now_ms())
        if sample is not None:
            self._waiting = [*self._waiting, sample][-_MOST_WAITING:]

    def write(self) -> bool:
        """Add the waiting samples to the history in the store; return False if it may not be written at all.

        Two requests the first time, one each time after it: the thread knows what it wrote last.
        """
        if not self._waiting:
            return True
        try:
            self._add()
        except StoreDeniedError as error:
            log.warning("The job's history is not kept: %s Plots will be empty.", error)
            return False
        except (StoreError, FlinkstyleError) as error:  # tried again with the next samples
            self._version = ""
            log.info("The job's history could not be written for now: %s", error)
        return True

    def _add(self) -> None:
        if not self._version:
            self._read()
        history = self._history.with_samples(self._waiting)
        try:
            version = self._board.write_history(history, seen=self._version)
        except (ObjectChangedError, ObjectExistsError):  # another driver wrote, or our answer was lost
            self._read()
            history = self._history.with_samples(self._waiting)
            version = self._board.write_history(history, seen=self._version)
        self._history, self._version, self._waiting = history, version, []

    def _read(self) -> None:
        try:
            found = self._board.history()
        except (MessageFormatError, ProtocolVersionError) as error:
            log.warning("The job's history cannot be read; a new one begins: %s", error)
            self._history, self._version = History(), self._board.history_version()
            return
        self._history = found.value if found is not None else History()
        self._version = found.version if found is not None else ""


class PulseThread(threading.Thread):
    """Writes a pulse for each heartbeat; one listing shows the pulses of all jobs.

    In a thread of its own: the lease never waits.
    """

    def __init__(self, board: JobBoard, writer: HeartbeatWriter) -> None:
        super().__init__(name="flinkstyle-pulse", daemon=True)
        self._store, self._job = impatient(board.store, answer_s=writer.interval_s), board.job
        self._writer = writer
        self._tick_s = min(0.5, writer.interval_s / 2)

    def run(self) -> None:
        """Write until the run ends, or the store denies it to this driver."""
        writer, pause, last_pulse = self._writer, threading.Event(), 0
        while not writer.ended:
            pause.wait(self._tick_s)
            number = writer.newest_beat
            if number == last_pulse or writer.state not in ("running", "draining"):
                continue
            pulse = Pulse(generation=writer.generation, incarnation=writer.incarnation, beat=number)
            try:
                write_pulse(self._store, self._job, pulse)
                last_pulse = number
            except StoreDeniedError as error:
                log.warning("No pulses: a watcher of all jobs reads this job's heartbeat instead. %s", error)
                return
            except FlinkstyleError as error:  # the next tick tries again
                log.info("The pulse could not be written: %s", error.problem)
