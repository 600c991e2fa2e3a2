"""The agent of one driver process: starts queries in Spark's place, serves requests, ends the run."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.agent import capture, checks, compat, lineages, sinks, takeover
from airflow_flinkstyle.agent.aligned import AlignedCut
from airflow_flinkstyle.agent.batch_watch import BatchWatch, CommitSetting
from airflow_flinkstyle.agent.ending import Ending, Failure, RunEnd, ScriptEnded, Signalled, StopAsked
from airflow_flinkstyle.agent.errors import QueryEndedError, SupersededError
from airflow_flinkstyle.agent.heartbeat import Pulse, PulseThread, Watchdog
from airflow_flinkstyle.agent.hold import Hold
from airflow_flinkstyle.agent.inbox import Inbox, Take
from airflow_flinkstyle.agent.process import EXIT_DONE, end_later
from airflow_flinkstyle.agent.queries import JobQuery, Queries
from airflow_flinkstyle.agent.signals import JvmShutdownHook
from airflow_flinkstyle.agent.sources import sources_of
from airflow_flinkstyle.agent.takeover import NotOursError
from airflow_flinkstyle.agent.wrapping import refuse_unsupported
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.sinks import resume

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.agent.process import DriverProcess
    from airflow_flinkstyle.agent.takeover import Turn
    from airflow_flinkstyle.agent.untyped import Java, PySpark
    from airflow_flinkstyle.agent.wrapping import Remembered
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import Go, Heartbeat, Request
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository import SavepointRepository
    from airflow_flinkstyle.types import BatchId

LINGER_S = 10.0
"""How long the script may clean up after its queries have drained."""
_LOOK_EVERY_S = 1.0
_LOOK_S = 0.02
_STARTED_S = 30.0
T = TypeVar("T")
log = logging.getLogger(__name__)


class Runtime:
    """Everything the agent does between the script's first line and the driver's exit."""

    def __init__(
        self, board: JobBoard, repository: SavepointRepository, turn: Turn, process: DriverProcess
    ) -> None:
        self.board, self.repository, self.turn, self.process = board, repository, turn, process
        self.queries = Queries(turn.claim.checkpoint_location)
        self.held = Hold(self.queries)
        self.commits = BatchWatch(self.queries)
        self.pulse = Pulse(
            board,
            turn.generation,
            turn.incarnation,
            lease_s=turn.claim.lease_s,
            seen=turn.prior.version if turn.prior else None,
            queries=lambda: self.commits.with_groups(self.queries.beats()),
            before=turn.last_beat.queries if turn.last_beat else {},
        )
        self.inbox = Inbox(board, turn.generation, turn.incarnation, self)
        self.jvm: Java = None
        self.spark_version = ""
        self.taken_over = False
        self.relaunched = turn.seen is not None and turn.seen.value.generation == turn.generation
        self.manifest: Manifest | None = None
        """The newest savepoint of this lineage: restored here, or taken here."""
        self.ending, self.ended = threading.Event(), threading.Event()
        self.exit_code = EXIT_DONE
        self._go: Go  # once it was given
        self._expected: checks.Expected = {}
        self._origins: dict[str, lineages.Origin] = {}
        self._to_go_on: set[str] = set()
        self._taking = False
        self._starting = False
        self._gate = threading.Lock()  # a takeover and the begin of the end exclude each other
        self._takeover_lock, self.start_lock = threading.Lock(), threading.Lock()
        self._hook: JvmShutdownHook | None = None

    def open(self) -> None:
        """Show that this process is alive, and listen."""
        self.pulse.beat()
        Watchdog(self.pulse, self.process).start()
        PulseThread(self.pulse, self.process, news=self.queries.news).start()
        resume.listen(self._note_sink)
        self.inbox.start()

    # --- starting queries -----------------------------------------------------------------------

    def start_query(self, writer: PySpark, seen: Remembered, run: Callable[[], PySpark]) -> Java:
        """Start a query in Spark's place: the first one waits for the job to be this process's."""
        self.leave_if_ending()
        try:
            query = self._admit(writer, seen, run)
        except (NotOursError, SupersededError) as reason:
            self.leave(str(reason))
        except FlinkstyleError as error:
            self.finish(Failure.of(error))
        else:
            return self._start(query)
        return self.leave_if_ending()

    def _admit(self, writer: PySpark, seen: Remembered, run: Callable[[], PySpark]) -> JobQuery:
        """Check a query; returns once Spark may start it."""
        refuse_unsupported(seen)
        self._connect(writer)
        query = self.queries.register(seen.query_name, writer, run, sources_of(writer._df))  # noqa: SLF001
        query.trigger, query.sink = dict(seen.trigger), sinks.sink_of(self.queries.spark, seen)
        writer.queryName(query.name).option("checkpointLocation", query.location)
        with self._takeover_lock:
            self.leave_if_ending()
            if self.taken_over:
                self._guard(query)
            else:
                self._take_over(query)
        return query

    def _start(self, query: JobQuery) -> Java:
        with self.start_lock:  # not to be held while waiting for the end, which needs it
            if not self.ending.is_set():
                try:
                    self.queries.note_start(query)
                    query.query = query.run()
                finally:
                    self._starting = False
                return query.query
        return self.leave_if_ending()

    def _connect(self, writer: PySpark) -> None:
        with self.start_lock:
            if self.jvm is not None:
                return
            spark = writer._spark  # noqa: SLF001
            context = spark.sparkContext
            self.jvm, self.spark_version = spark._jvm, spark.version  # noqa: SLF001
            self.queries.spark = spark
            self.pulse.spark_is_up(spark_version=spark.version, application_id=context.applicationId)
            self._hook = JvmShutdownHook(context._gateway, lambda: self.finish(Signalled()))  # noqa: SLF001
            self.commits.begin(self.jvm, CommitSetting.of(spark))

    def _take_over(self, first: JobQuery) -> None:
        """Wait for go, restore, guard, and take ``current.json``; the order is the protocol's."""
        turn, board = self.turn, self.board
        if not self.relaunched:
            self._prepare(first)
        self._patiently(lambda: self.pulse.beat("standby"))
        self._go = go = self._wait_for_go()
        seen = turn.seen if self.relaunched else board.current()
        takeover.require_turn(seen, turn.generation, turn.claim)
        if seen is not None and seen.value.generation == turn.generation:
            self._go_on(go)
        else:
            takeover.require_predecessor(board, turn.claim, go, self._look)
            self._restore(go, first)
        self._origins = lineages.origins(go, self.manifest, self._followed(), turn.generation)
        self._to_go_on = checks.queries_to_go_on(self.queries.checkpoint, go, self.manifest, turn.last_beat)
        self._guard(first)
        with self._gate:
            self.leave_if_ending()
            self._taking = True
            try:
                self._patiently(lambda: takeover.take_current(board, turn, seen))
                self.taken_over = self._starting = True
                self._patiently(lambda: self.pulse.beat("running"))
            finally:
                self._taking = False

    def _prepare(self, first: JobQuery) -> None:
        """Copy a hot savepoint while waiting, so that little is left to copy in the window."""
        savepoint_id = self.turn.claim.prepare_savepoint_id
        if savepoint_id is not None and self.board.go(self.turn.generation) is None:
            manifest = self.repository.read(savepoint_id)
            compat.require_for_savepoint(self.queries.spark, manifest, first.name)
            checks.restore(manifest, self.repository, self.queries.checkpoint, complete=False)

    def _wait_for_go(self) -> Go:
        log.info("Waiting for go")
        looked_s = 0.0
        while (go := self._patiently(lambda: self.board.go(self.turn.generation))) is None:
            if time.monotonic() - looked_s > _LOOK_EVERY_S:
                looked_s = time.monotonic()
                self._look()
            self.leave_if_ending()
            time.sleep(takeover.GO_POLL_S)
        return go

    def _look(self) -> None:
        """Leave when told to stop, or when another generation took the job over."""
        self.leave_if_ending()
        current = self._patiently(self.board.current)
        takeover.require_turn(current, self.turn.generation, self.turn.claim)

    def _patiently(self, read: Callable[[], T]) -> T:
        return takeover.patiently(read, for_s=self.turn.claim.lease_s)

    def _restore(self, go: Go, first: JobQuery) -> None:
        if go.savepoint_id is not None:
            self.manifest = self.repository.read(go.savepoint_id)
            compat.require_for_savepoint(self.queries.spark, self.manifest, first.name)
            if go.rewind == "fork":
                newest = sinks.newest_batch(self.queries.spark, first.sink)
                self.manifest = sinks.counted_on(
                    self.manifest, first.name, newest, carry_pending=go.carry_pending
                )
            checks.restore(
                self.manifest,
                self.repository,
                self.queries.checkpoint,
                complete=True,
                carry_pending=go.carry_pending,
                claim_mode=go.claim_mode,
            )
        self._expected = checks.expected_identities(go, self.manifest, None)

    def _go_on(self, go: Go) -> None:
        """Go on from this generation's own newest checkpoint; the savepoint is not restored again."""
        self.relaunched = True
        # A claimed savepoint may have been disposed of since.
        self.manifest = self.repository.find(go.savepoint_id) if go.savepoint_id else None
        self._expected = checks.expected_identities(go, self.manifest, self.turn.last_beat)

    def _followed(self) -> Heartbeat | None:
        follows = self.turn.claim.follows
        slot = self._patiently(lambda: self.board.heartbeat(follows)) if follows is not None else None
        return slot.value if slot else None

    def _note_sink(self, query_id: str) -> None:
        """Write where a sink has opened before it writes there: whoever goes on must know of the place."""
        until_s = time.monotonic() + _STARTED_S
        while time.monotonic() < until_s and not self.queries.has_started(query_id):
            time.sleep(_LOOK_S)  # a first batch may be faster than the return of Spark's start
        self._patiently(self.pulse.beat)

    def _guard(self, query: JobQuery) -> None:
        checks.require_known(query, self._to_go_on, self.queries.names())
        spark = self.queries.spark
        newest = sinks.newest_batch(spark, query.sink)
        self.manifest = sinks.admit(query, newest, self._go, self.manifest, self.repository)
        compat.require_for_checkpoint(spark, query.name, query.checkpoint)
        last = self.turn.last_beat.queries.get(query.name) if self.turn.last_beat else None
        lineages.expect(query, self._origins.get(query.name), last)
        checks.guard(self.jvm, query, self._expected.get(query.name, {}))  # from then on heartbeats name it

    # --- what the script calls while it runs ----------------------------------------------------

    def leave_if_ending(self) -> None:
        """End the calling thread of the script once the run ends; a restart loop ends here."""
        if self.ending.is_set():
            self.ended.wait()
            sys.exit(self.exit_code)

    def hold(self) -> bool:
        """Return False at once, or True when everything has drained if it began to."""
        if not self.ending.is_set():
            return False
        self.ended.wait()
        return True

    def script_stops_spark(self) -> None:
        """Drain before the script stops its session; an exception on its way through is a failure."""
        if self.taken_over and not self.ending.is_set():
            error = sys.exc_info()[1]
            self.finish(Failure.of(error) if isinstance(error, Exception) else ScriptEnded())

    # --- requests -------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Return whether a request can be judged now.

        False in a takeover, before a relaunch's, and until the first query has started: until then a
        savepoint would be refused although the checkpoint has batches.
        """
        return not (self._taking or self._starting) and (self.taken_over or not self.relaunched)

    def refusal(self, request: Request) -> str | None:
        """Return why the request cannot be served; None if it can."""
        if request.command == "stop" and request.alignment == "none":
            return None
        if not self.taken_over:
            return "The driver waits for its turn and has run no batch yet: there is nothing to save."
        fresh = [query.name for query in self.queries.all() if query.look() is None]
        if fresh or not self.queries.all():
            return (
                f"Expected at least one committed batch, found none of {', '.join(fresh) or 'any query'}. "
                "The job runs on. Ask again once it has committed a batch."
            )
        ended = [query.name for query in self.queries.all() if not query.is_active]
        if request.alignment == "aligned" and ended:
            return str(QueryEndedError.of(ended))
        return None

    def begin_take(self, take: Take) -> None:
        """Take a savepoint in a thread while the queries run, or align them first."""
        threading.Thread(target=self._take, args=(take,), name="flinkstyle-take", daemon=True).start()

    def _take(self, take: Take) -> None:
        request = take.request
        try:
            if request.alignment == "aligned":
                manifest = AlignedCut(self, take).run()
            else:
                manifest = self.capture(request, stopped_at=None, cancelled=take.cancelled.is_set)
        except FlinkstyleError as error:
            withdrawn = take.cancelled.is_set()  # then it does not matter what else went wrong
            self.inbox.end(request, "cancelled" if withdrawn else "failed", f"{error.code}: {error}")
        except Exception as error:  # the job runs on, whatever went wrong with a savepoint
            log.exception("The savepoint failed")
            self.inbox.end(request, "failed", f"{type(error).__name__}: {error}")
        else:
            if manifest is not None:  # else the end of the run ends the request
                self._end_take(request, manifest)
        finally:
            take.done.set()

    def _end_take(self, request: Request, manifest: Manifest) -> None:
        batches = {query.name: query.batch_id for query in manifest.queries}
        detail = f"Savepoint {manifest.savepoint_id} at batches {batches}."
        self.inbox.end(request, "done", detail, savepoint_id=manifest.savepoint_id, batches=batches)

    def capture(
        self,
        request: Request,
        *,
        stopped_at: Mapping[str, BatchId] | None,
        cancelled: Callable[[], bool],
        runs_on: bool = False,
    ) -> Manifest:
        """Take the savepoint that a request asks for."""
        if request.savepoint_id is None:
            raise AssertionError(f"request {request.request_id} names no savepoint")
        self.manifest = capture.take(
            self.jvm,
            self.repository,
            self.queries.all(),
            savepoint_id=request.savepoint_id,
            spark_version=self.spark_version,
            generation=self.turn.generation,
            stopped_at=stopped_at,
            runs_on=runs_on,
            alignment=request.alignment,
            cut_id=request.cut_id,
            previous=self.manifest,
            cancelled=cancelled,
            progress=capture.ProgressWriter(self.board, self.turn.generation, request),
        )
        return self.manifest

    def begin_stop(self, request: Request) -> None:
        """Stop in a thread of its own."""
        asked = StopAsked(request)
        threading.Thread(target=self.finish, args=(asked,), name="flinkstyle-stop", daemon=True).start()

    def begin_failure(self, error: BaseException) -> None:
        """End the run as failed, in a thread of its own; returns once the end has begun."""
        why = Failure.of(error)
        threading.Thread(target=self.finish, args=(why,), name="flinkstyle-stop", daemon=True).start()
        self.ending.wait()

    # --- the end --------------------------------------------------------------------------------

    def finish(self, why: Ending) -> None:
        """End the run, once; whoever comes later waits until it has ended."""
        with self._gate:
            first = not self.ending.is_set()
            self.ending.set()
        if not first:
            self.ended.wait()
            return
        self.exit_code = RunEnd(self).run(why)
        self._end_script()

    def leave(self, reason: str) -> None:
        """End without a word in the store: the job is another driver's."""
        log.warning("Leaving job %s to its driver: %s", self.board.job, reason)
        self.pulse.ended = True
        self.ending.set()
        self._end_script()

    def _end_script(self) -> None:
        self.inbox.stopping.set()
        self.ended.set()
        end_later(self.exit_code, LINGER_S)

    def close(self) -> None:
        """Take back what was left with the JVM; the last call of the launcher."""
        if self._hook is not None and not self.process.jvm_is_gone():
            self._hook.remove()
