"""The agent of one driver process: starts queries in Spark's place, serves requests, ends the run."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.board.heartbeat import (
    HeartbeatThread,
    HeartbeatWriter,
    HistoryKeeper,
    PulseThread,
    Watchdog,
)
from airflow_flinkstyle.agent.core.board.inbox import Inbox
from airflow_flinkstyle.agent.core.board.patience import patiently
from airflow_flinkstyle.agent.core.board.takeover import NotOursError
from airflow_flinkstyle.agent.core.commits.batch_watch import BatchWatch, CommitSetting
from airflow_flinkstyle.agent.core.declared import declaration
from airflow_flinkstyle.agent.core.errors import SupersededError
from airflow_flinkstyle.agent.core.guards import checks, own_checkpoint, sinks
from airflow_flinkstyle.agent.core.guards.checks import require_replayable
from airflow_flinkstyle.agent.core.process import EXIT_DONE
from airflow_flinkstyle.agent.core.queries.hold import QueryHold
from airflow_flinkstyle.agent.core.queries.registry import Queries
from airflow_flinkstyle.agent.core.queries.schema_logs import SchemaLogs
from airflow_flinkstyle.agent.core.run.admission import Admission
from airflow_flinkstyle.agent.core.run.end import RunEnd
from airflow_flinkstyle.agent.core.run.postponed import Postponed
from airflow_flinkstyle.agent.core.run.reasons import Ending, Failure, ScriptEnded, Signalled
from airflow_flinkstyle.agent.core.run.rehearsal import RehearsalRun
from airflow_flinkstyle.agent.core.run.replay import Replaying
from airflow_flinkstyle.agent.core.run.serving import Serving
from airflow_flinkstyle.agent.core.run.taking import Taking
from airflow_flinkstyle.agent.core.stream_options import refuse_unsupported
from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.sinks import resume

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from airflow_flinkstyle.agent.core.board.takeover import DriverRun
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.process import Process
    from airflow_flinkstyle.agent.core.spark import (
        Handle,
        ShutdownHook,
        Spark,
        SparkQuery,
        SparkStart,
        StreamingSource,
    )
    from airflow_flinkstyle.agent.core.stream_options import StreamOptions
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

LINGER_S = 10.0
"""How long the script may clean up after its queries have drained."""
_POLL_S, _AWAIT_POLL_S = 0.02, 0.2
_STARTED_S = 30.0
log = logging.getLogger(__name__)


class Runtime:
    """Everything the agent does between the script's first line and the driver's exit."""

    def __init__(
        self, board: JobBoard, repository: SavepointRepository, driver_run: DriverRun, process: Process
    ) -> None:
        self.board, self.repository, self.driver_run, self.process = board, repository, driver_run, process
        last_statuses = driver_run.last_heartbeat.queries if driver_run.last_heartbeat else {}
        self.queries = Queries(driver_run.claim.checkpoint_location, last_statuses)
        self.schema_logs = SchemaLogs(board, repository, driver_run, self.queries)
        self.held = QueryHold(self.queries)
        self.commits = BatchWatch(self.queries)
        self.heartbeat_writer = HeartbeatWriter(
            board,
            driver_run.generation,
            driver_run.incarnation,
            lease_s=driver_run.claim.lease_s,
            seen=driver_run.prior.version if driver_run.prior else None,
            queries=self._query_statuses,
            before=last_statuses,
            has_committed=self.queries.has_committed,
            committed_before=bool(driver_run.last_heartbeat and driver_run.last_heartbeat.has_committed),
            clock=driver_run.clock,
        )
        self.admission = Admission(self)
        self.postponed = Postponed(self, self.admission, self, self._rehearse)
        self.replaying = Replaying(self, self)
        self.serving = Serving(self, self.admission, Taking(self, self.admission))
        self.inbox = Inbox(board, driver_run.generation, driver_run.incarnation, self.serving)
        self.spark_version = ""
        self.ending, self.ended = threading.Event(), threading.Event()
        self.exit_code = EXIT_DONE
        self.gate, self.start_lock = threading.Lock(), threading.Lock()
        self._hook: ShutdownHook | None = None
        self._history_keeper = HistoryKeeper(board, self.heartbeat_writer)

    def open(self, *, pulses: bool = False) -> None:
        """Show that this process is alive, also by pulses if that is asked for, and listen."""
        run = self.driver_run
        patiently(self.heartbeat_writer.beat, for_s=run.claim.lease_s, clock=run.clock)
        Watchdog(self.heartbeat_writer, self.process).start()
        HeartbeatThread(self.heartbeat_writer, self.process, news=self.queries.news).start()
        self._history_keeper.start()
        if pulses:
            PulseThread(self.board, self.heartbeat_writer).start()
        resume.listen(self._note_sink)
        self.inbox.start()

    def _query_statuses(self) -> Mapping[str, QueryStatus]:
        """Return the queries' status for the heartbeat, with the topics that they read now."""
        for query in self.queries.all():
            checks.follow(self.describe, query)
        if self.runs_job:
            self.heartbeat_writer.found_unregistered(self.queries.unregistered())
        return self.commits.with_groups(self.queries.statuses())

    # --- starting queries -----------------------------------------------------------------------

    def start_query(self, start: SparkStart, settings: StreamOptions) -> Handle:
        """Start a query in Spark's place: the first one waits until this process has taken the job over."""
        self.leave_if_ending()
        try:
            query = self._register(start, settings)
            with self._settled_if_not_started(query):
                self.replaying.require_allowed(query)
                self.admission.check_early(query)
                if (handle := self.postponed.postpone(query)) is not None:
                    return handle
                self.admission.admit(query)
                if (handle := self.replaying.begin(query)) is not None:
                    return handle
        except (NotOursError, SupersededError) as reason:
            self.leave(str(reason))
        except FlinkstyleError as error:
            self.finish(Failure.of(error))
        else:
            return self.start_admitted(query, start.run)
        return self.leave_if_ending()

    def start_now(self, query: JobQuery, run: Callable[[], SparkQuery]) -> None:
        """Start a query whose start was put off; the script's thread has not waited for it."""
        with self._settled_if_not_started(query):
            self.admission.admit(query)
        self.start_admitted(query, run)

    def run_to_end(self, action: Callable[[], None]) -> None:
        """Run an action that no thread of the script waits for; an error ends the run."""
        try:
            action()
        except (NotOursError, SupersededError) as reason:
            self.leave(str(reason))
        except Exception as error:
            log.exception("A query of the script could not be started in Spark")
            self.finish(Failure.of(error))

    def _rehearse(self, manifest: Manifest) -> RehearsalRun:
        asked = self.driver_run.claim.rehearse or Rehearse()
        return RehearsalRun(self, manifest, asked, self.admission.state_written)

    def schema_location(self, spark: Spark, location: str) -> str:
        """Return where a reader that is about to load a table of Delta finds the log of its schemas."""
        self.leave_if_ending()
        self.queries.known_spark = self.queries.known_spark or spark
        try:
            return self.schema_logs.at_load(location)
        except FlinkstyleError as error:
            self.finish(Failure.of(error))
        self.leave_if_ending()
        raise AssertionError  # the line above does not return

    def _register(self, start: SparkStart, settings: StreamOptions) -> JobQuery:
        """Note a query that the script starts, and give its writer the checkpoint's place."""
        refuse_unsupported(settings)
        self._connect(start.session)
        sources = start.sources()
        require_replayable(sources)
        declared = declaration(start.session, settings, sources)
        query = self.queries.register(settings.query_name, start, sources, declared)
        with self._settled_if_not_started(query):
            query.trigger, query.sink = dict(settings.trigger), sinks.sink_of(self.queries.spark, settings)
            query.output_mode = settings.output_mode or query.output_mode
            query.own_location = own_checkpoint.recorded_location(query.session, declared.named)
            start.place(query.name, query.location)
            self.schema_logs.at_start(query)
        return query

    @contextmanager
    def _settled_if_not_started(self, query: JobQuery) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.queries.settle(query, None)
            raise

    def leave_unstarted(self, query: JobQuery) -> None:
        """Note that an admitted query is not started: a replay has nothing to run of it."""
        self.queries.settle(query, None)
        self.admission.starting = False

    def start_admitted(self, query: JobQuery, run: Callable[[], SparkQuery]) -> Handle:
        """Start a query that was admitted, unless the run ends."""
        started = None
        with self.start_lock:  # released before waiting for the end, which needs it
            if not self.ending.is_set():
                try:
                    self.queries.note_start(query)
                    started = run()
                finally:
                    self.queries.settle(query, started)
                    self.admission.starting = False
                return started.handle
        return self.leave_if_ending()

    def _connect(self, spark: Spark) -> None:
        with self.start_lock:
            if self._hook is not None:
                return
            self.queries.known_spark = spark
            self.spark_version = spark.version
            self.heartbeat_writer.spark_is_up(
                spark_version=spark.version, application_id=spark.application_id, ui_url=spark.ui_url
            )
            self._hook = spark.on_shutdown(lambda: self.finish(Signalled()))
            self.commits.begin(CommitSetting.of(spark))
            spark.require_executor_timeout()  # the watch runs; one that is no time is refused

    def describe(self, source: StreamingSource) -> ClusterView:
        """Describe the Kafka cluster of a source, as Spark reaches it."""
        return self.queries.spark.describe(source)

    def _note_sink(self, query_id: str) -> None:
        """Record where a sink has opened before it writes there: the next driver must know of the place."""
        wait = CLOCK.wait(_STARTED_S, every_s=_POLL_S)
        while not self.queries.has_started(query_id) and wait.again():
            pass  # a first batch may begin before Spark's start returns
        driver_run = self.driver_run
        patiently(self.heartbeat_writer.beat, for_s=driver_run.claim.lease_s, clock=driver_run.clock)

    # --- what the script calls while it runs ----------------------------------------------------

    def leave_if_ending(self) -> None:
        """End the calling thread of the script once the run ends; a restart loop ends here."""
        if self.ending.is_set():
            self.ended.wait()
            sys.exit(self.exit_code)

    def await_turn(self) -> None:
        """Let a thread that needs running queries wait for the takeover; it may end there.

        In a replay it waits until the end of the run.
        """
        self.postponed.await_turn()
        self.replaying.await_end()
        self.leave_if_ending()

    def await_queries(self, besides: Callable[[], Collection[object]] = tuple) -> None:
        """Wait for the queries that the script left running, and for its threads."""
        self.await_turn()
        while not self.ending.is_set():
            queries = self.queries.all()
            failed = next((query.failure for query in queries if query.failure is not None), None)
            if failed is not None:
                raise failed
            # In this order: a held query is not active, and becomes active before it is no longer held.
            if not besides() and not any(self.held.is_held(q.started.handle) or q.is_active for q in queries):
                return
            time.sleep(_AWAIT_POLL_S)

    @property
    def runs_job(self) -> bool:
        """Whether the job is this driver's."""
        return self.admission.taken_over

    def postponed_handles(self) -> list[Handle]:
        """Return the script's handles of queries whose start is put off, and of those that are replayed."""
        return self.postponed.handles() + self.replaying.handles()

    def wait_if_draining(self) -> bool:
        """Return False at once; if the run ends, return True once everything has drained."""
        if not self.ending.is_set():
            return False
        self.ended.wait()
        return True

    def script_stops_spark(self) -> None:
        """Drain before the script stops its session; an exception on its way through is a failure."""
        error = sys.exc_info()[1]
        if not isinstance(error, Exception):
            self.await_turn()
        if self.admission.taken_over and not self.ending.is_set():
            self.finish(Failure.of(error) if isinstance(error, Exception) else ScriptEnded())

    def script_leaves(self, code: int) -> int:
        """End the run if the script calls ``os._exit(0)`` and no query runs; returns the exit code."""
        if not code:
            self.await_turn()
        if code or any(query.is_active for query in self.queries.started_and_waiting()[0]):
            return code  # no end is recorded: a watcher relaunches the job where it is
        self.finish(ScriptEnded())
        return self.exit_code

    # --- the end --------------------------------------------------------------------------------

    def finish(self, why: Ending) -> None:
        """End the run, once; a later call waits until it has ended."""
        if isinstance(why, ScriptEnded):
            self.postponed.await_turn()  # for a script that does not wait itself
            self.replaying.await_end()
        with self.gate:
            first = not self.ending.is_set()
            self.ending.set()
        if not first:
            self.ended.wait()
            return
        self.exit_code = RunEnd(self, self.admission).run(why)
        self._end_script()

    def begin_end(self, why: Ending) -> None:
        """End the run in a thread of its own; returns once the end has begun."""
        threading.Thread(target=self.finish, args=(why,), name="flinkstyle-stop", daemon=True).start()
        self.ending.wait()

    def leave(self, reason: str) -> None:
        """End and write nothing to the store: the job is another driver's."""
        log.warning("Leaving job %s to its driver: %s", self.board.job, reason)
        self.heartbeat_writer.ended = True
        self.ending.set()
        self._end_script()

    def _end_script(self) -> None:
        self.inbox.stopping.set()
        self.ended.set()
        self.process.end_later(self.exit_code, LINGER_S)

    def close(self) -> None:
        """Remove the JVM's shutdown hook, and write the history; the launcher's last call."""
        self._history_keeper.finish()
        if self._hook is not None and not self.process.jvm_is_gone():
            self._hook.remove()
