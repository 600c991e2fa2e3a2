"""A driver of the jobs' world: the agent's own core in threads, on a small Spark that counts records.

What goes wrong is done to it by its script, by its Spark, or by the store that it reaches.
"""

# ruff: noqa: ANN401
from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core import runtime as runtime_module
from airflow_flinkstyle.agent.core.board import inbox, patience, takeover
from airflow_flinkstyle.agent.core.board.inbox import Take
from airflow_flinkstyle.agent.core.board.takeover import NotOursError
from airflow_flinkstyle.agent.core.process import EXIT_LEASE_LOST
from airflow_flinkstyle.agent.core.queries import stopping
from airflow_flinkstyle.agent.core.run import (
    admission,
    end,
    held_cut,
    same_batches,
    scratch_batches,
    taking,
)
from airflow_flinkstyle.agent.core.run.reasons import Failure, ScriptEnded, Signalled
from airflow_flinkstyle.agent.core.runtime import Runtime
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.clock import LeaseClock
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH, ClusterUnreachableError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.comparison_records import ComparedQuery
from airflow_flinkstyle.protocol.pulse import PULSES_VARIABLE
from airflow_flinkstyle.protocol.query_records import SinkLineage, Sinks
from airflow_flinkstyle.protocol.records import IncarnationRecord
from airflow_flinkstyle.protocol.signatures import ORDER_KEYS_VARIABLE
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from tests.small_spark import (
    SmallHandle,
    SmallQuery,
    SmallSpark,
    SmallSparkError,
    SmallStart,
    SmallStream,
    SmallTable,
    id_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import Handle, RunsToCompare, SparkQuery
    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import Outcome, Request
    from airflow_flinkstyle.storage.base import ObjectStore
    from tests.unit.jobs.conftest import World

QUERY, TOPIC = "orders", "orders"
TICKS, STUCK = "ticks", "more"
_CONFS = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"2"}}'
_SHORT = (
    *((inbox, "POLL_S", 0.01), (takeover, "GO_POLL_S", 0.01), (held_cut, "_POLL_S", 0.01)),
    *((patience, "RETRY_S", 0.01), (taking, "STORE_PATIENCE_S", 0.02)),
    *((admission, "_CHECK_EVERY_S", 0.01), (admission, "FIRST_PATIENCE_S", 0.02)),
    *((admission, "GUARD_PATIENCE_S", 0.02), (scratch_batches, "_NEWER_S", 0.02)),
    *((same_batches, "_POLL_S", 0.01), (end, "JVM_SEEN_S", 0.0)),
    *((runtime_module, "_AWAIT_POLL_S", 0.005), (stopping, "_POLL_S", 0.005)),
)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the agents of one test look often, and be patient for moments only."""
    for module, name, seconds in _SHORT:
        monkeypatch.setattr(module, name, seconds)


class Report:
    """What is told of a thread that failed: Python takes one that raises SystemExit for ended, pytest not."""

    @staticmethod
    def install() -> None:
        """Take the place of pytest's, for good: threads of the dead may end after their test."""
        if not isinstance(threading.excepthook, Report):
            threading.excepthook = Report(threading.excepthook)

    def __init__(self, report: Callable[[Any], object]) -> None:
        self._report = report

    def __call__(self, thrown: Any) -> None:
        if thrown.exc_type is not SystemExit:
            self._report(thrown)


@dataclass
class Mood:
    """How the next drivers behave, by script name."""

    fails_to_copy: bool = False
    fails_at_import: bool = False
    fails_in_batch: bool = False
    hangs_in_batch: bool = False
    fails_guard: bool = False
    own_checkpoint: str = ""
    """Its script names it, and plain Spark has run there."""
    out_of_reach: int = 0
    """How many drivers in a row cannot reach their brokers."""
    loses_reach: bool = False
    """Takes the job over, then cannot reach them."""
    slow_takes_s: float = 0.0
    slow_start_s: float = 0.0
    tells_no_sinks: bool = False
    tells_no_reading: bool = False
    """As agents of before."""
    sink: str = "kafka"
    """Another one has no transactional sink in it."""
    table: str = ""
    """Path of the Delta table that it writes to."""
    moves_sink: bool = False
    adds_query: bool = False
    """One that Spark does not start."""
    has_ticks: bool = False
    """Starts a query before the one that counts, which reads no Kafka."""
    dawdles: bool = False
    """Has not started the one that counts yet."""
    pace: Any = None
    """What Spark tells of its batches."""
    finds_no_room: bool = False
    """The cluster has taken it and never starts it."""
    finds_no_records: bool = False
    """Its rehearsal has nothing to read."""
    computes_otherwise: int = 0
    """In how many of ten rows it differs from what it is compared with."""
    differs_at: int | None = None
    """At which offset first."""


class Mortal:
    """A store as one process reaches it: before each call it meets what happens to the process."""

    def __init__(self, store: Any, meet: Callable[[str, str], None]) -> None:
        self._store, self._meet = store, meet

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, call: Callable[..., Any], key: Any = "", *args: Any, **options: Any) -> Any:
        self._meet(name, str(key))
        return call(key, *args, **options)


class Driver(threading.Thread):
    """One incarnation: what its process does, what its script does, and what happens to it."""

    def __init__(self, world: World, pid: int, host: str, submission: Submission) -> None:
        super().__init__(daemon=True)
        self.world, self.generation, self.pid, self.host = world, int(submission.marker[-1]), pid, host
        self.submit = int(submission.argv[submission.argv.index("--submit") + 1])
        self.order_keys = tuple(submission.env[ORDER_KEYS_VARIABLE].split(","))
        self.pulses = submission.env.get(PULSES_VARIABLE) == "true"
        self.claim: Any = JobBoard(world.store, world.job).claim(self.generation)  # type: ignore[arg-type]
        self.mood = world.moods.get(self.claim.launch["spec"]["script"], Mood())
        self.cluster = "new" if self.claim.overrides else "old"
        self.checkpoint = LocalStore(Path(self.claim.checkpoint_location) / QUERY)
        self.killed, self.thawed = threading.Event(), threading.Event()
        self.thawed.set()
        self.clock, self.streams = _Clock(self.killed), list[SmallStream]()
        self.runtime: _Agent | None = None
        self.spark = _Session(self)
        self.out_of_reach = False
        store: Any = Mortal(world.store, self.meet)
        self.board, self.repository = JobBoard(store, world.job), SavepointRepository(store, world.job)

    # --- its process ----------------------------------------------------------------------------

    @property
    def incarnation(self) -> int | None:
        return None if self.runtime is None else self.runtime.driver_run.incarnation

    @property
    def has_ended(self) -> bool:
        """Whether it is dead, or has said its last word and only leaves."""
        return self.killed.is_set() or (self.runtime is not None and self.runtime.heartbeat_writer.ended)

    def run(self) -> None:
        """Do as the launcher does."""
        try:
            if self.mood.finds_no_room:
                self.killed.wait()
            else:
                self._run()
        except SystemExit:
            pass  # it was killed
        finally:
            self.kill()

    def _run(self) -> None:
        options: Any = {"submit": self.submit, "order_keys": self.order_keys, "clock": self.clock}
        try:
            driver_run = takeover.begin(self.board, self.generation, self, **options)  # type: ignore[arg-type]
        except (NotOursError, FlinkstyleError):
            return
        self.runtime = runtime = _Agent(self.board, self.repository, driver_run, self)
        runtime.open(pulses=self.pulses)
        try:
            self._script(runtime)
            runtime.await_queries(besides=self._meanwhile)
        except SystemExit:
            runtime.finish(ScriptEnded())
        except BaseException as error:  # noqa: BLE001
            runtime.finish(Failure.of(error))
        else:
            runtime.finish(ScriptEnded())
        runtime.close()

    def kill(self) -> None:
        """End it without a word, in the middle of whatever it does."""
        self.killed.set()
        if (runtime := self.runtime) is not None:
            runtime.heartbeat_writer.ended = True
            for event in (runtime.ending, runtime.ended, runtime.inbox.stopping):
                event.set()
        for stream in self.streams:
            stream.flagged.set()
        self.thawed.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until nothing of it runs."""
        super().join(timeout)
        for stream in self.streams:
            stream.join(timeout)

    def freeze(self) -> None:
        """Stop its process, as a host does that is short of memory."""
        self.thawed.clear()

    def require_alive(self) -> None:
        if self.killed.is_set():
            raise SystemExit

    def meet(self, action: str, key: str) -> None:
        """Meet what happens to a call of this process to the savepoint root."""
        self.thawed.wait()
        self.require_alive()
        world, writes = self.world, action not in ("get", "read", "head", "list")
        if not writes or f"{world.job}/savepoints/" not in key:
            return
        if world.takes_fail:
            raise StoreDeniedError.during(action, "the root", "the disk is full")
        if world.store_throttles:
            raise StoreUnavailableError.during(action, "the root", "SlowDown")
        if self.killed.wait(self.mood.slow_takes_s):
            raise SystemExit

    def record(self) -> IncarnationRecord:
        return IncarnationRecord(
            host=self.host, pid=self.pid, jvm_pid=self.pid, pid_started="x", started_at_ms=1
        )

    def jvm_is_gone(self) -> bool:
        self.require_alive()  # a dead process has no watchdog either
        return False

    def halt(self, code: int) -> None:
        if code != EXIT_LEASE_LOST:  # that lease is short, and this machine may be busy
            self.kill()
            raise SystemExit(code)

    def end_later(self, code: int, after_s: float) -> None:
        """Nothing: its script ends by itself."""

    # --- its script -----------------------------------------------------------------------------

    def _script(self, runtime: _Agent) -> None:
        runtime.ended.wait(self.mood.slow_start_s)
        if self.mood.fails_at_import:
            raise ImportError("no module named nonsense")
        if self.mood.has_ticks:
            self._start(runtime, TICKS)
        if not self.mood.dawdles:
            self._start(runtime, QUERY)
        if self.mood.adds_query:
            threading.Thread(target=self._start, args=(runtime, STUCK), daemon=True).start()

    def _start(self, runtime: _Agent, name: str) -> None:
        seen = StreamOptions()
        seen.query_name, seen.format = name, self.mood.sink
        own = self.mood.own_checkpoint or self.world.own_location
        if own:
            seen.set_options({"checkpointLocation": own})
        if self.mood.table:
            seen.set_options({"path": self.mood.table})
        runtime.start_query(_Start(self, name), seen)

    def _meanwhile(self) -> tuple[()]:
        """Do what the script does while its queries run."""
        runtime = self.runtime
        assert runtime is not None
        if self.world.tells_to_end:
            runtime.finish(Signalled())
        if self.world.script_ends:
            for query in runtime.queries.all():
                query.started.stop()
        return ()

    # --- its query ------------------------------------------------------------------------------

    def source(self, query: str) -> StreamingSource:
        if query == TICKS:
            return StreamingSource(position=0, name=None, provider="rate", options={})
        rules = [rule.options for rule in self.claim.overrides]
        servers = rules[0].get("kafka.bootstrap.servers", "old:9092") if rules else "old:9092"
        options = {"kafka.bootstrap.servers": servers, "kafka.isolation.level": "read_committed"}
        return StreamingSource(
            position=0, name=None, provider="kafka", options={**options, "subscribe": TOPIC}
        )

    def view(self, source: StreamingSource) -> ClusterView:
        """Look at the cluster; its brokers may be away."""
        if self.mood.fails_guard:
            raise CLUSTER_MISMATCH.error(what=str(source), expected=self.cluster, found="another")
        if self.mood.out_of_reach and not self.out_of_reach:
            self.mood.out_of_reach -= 1
            self.out_of_reach = True
        if self.out_of_reach:
            raise ClusterUnreachableError("no broker answered.", "Nothing.", "Start them.")
        return self.world.logs.view(self.cluster)

    def begin_stream(self, query: str, place: ObjectStore, *, once: bool, counts: bool = True) -> SmallStream:
        batch = self._tick if query == TICKS else self._batch
        stream = SmallStream(partial(batch, place, counts), once=once, pause_s=0.01)
        stream.pace = self.mood.pace
        self.streams.append(stream)
        stream.start()
        return stream

    def _batch(self, checkpoint: ObjectStore, counts: bool, stream: SmallStream) -> None:
        """Plan a batch if none is, count its records, commit it; nothing else between these two."""
        logs, mood = self.world.logs, self.mood
        stream.pace = mood.pace
        self.require_alive()
        if mood.loses_reach:
            raise SmallSparkError("no broker answered any more")
        committed, planned, at = self.logs(checkpoint)
        if planned <= committed:
            end = logs.end(self.cluster)
            if stream.once or end == at or self.world.reads_slowly:
                return
            planned = committed + 1
            text = f'v1\n{_CONFS}\n{{"{TOPIC}":{{"0":{end}}}}}'
            checkpoint.write(f"offsets/{planned}", text.encode())
        while mood.hangs_in_batch and not (self.killed.wait(0.005) or stream.interrupted.is_set()):
            pass
        if stream.interrupted.is_set():
            return
        if mood.fails_in_batch:
            raise SmallSparkError.of_python(ZeroDivisionError("in the first batch"))
        base, end = logs.base(self.cluster), self.position(planned, checkpoint)
        with logs.lock:
            self.require_alive()
            if counts:
                logs.counted.update(logs.records[at - base : end - base])
                logs.committed_by.append(self.generation)
                if mood.table:
                    SmallTable(Path(mood.table)).commit(id_of(checkpoint), planned, rows=end - at)
            checkpoint.write(f"commits/{planned}", b'v1\n{"nextBatchWatermarkMs":0}')
        rows = 0 if mood.finds_no_records else end - at
        stream.progress.append(
            {
                "batchId": planned,
                "numInputRows": rows,
                "durationMs": {"triggerExecution": 100},  # no "eventTime", as Spark 3.5
            }
        )

    def _tick(self, checkpoint: ObjectStore, counts: bool, stream: SmallStream) -> None:
        """Run a batch that reads no Kafka: the only one."""
        self.require_alive()
        if checkpoint.head("commits/0") is None:
            checkpoint.write("offsets/0", f"v1\n{_CONFS}\n0".encode())
            checkpoint.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')

    def logs(self, checkpoint: ObjectStore | None = None) -> tuple[int, int, int]:
        """Return committed batch, planned batch and committed position."""
        checkpoint = checkpoint or self.checkpoint
        done = [int(i.key.split("/")[1]) for i in checkpoint.list("commits/") if "/." not in i.key]
        planned = [int(i.key.split("/")[1]) for i in checkpoint.list("offsets/") if "/." not in i.key]
        committed = max(done, default=-1)
        at = self.position(committed, checkpoint) if done else self.world.logs.base(self.cluster)
        return committed, max(planned, default=-1), at

    def position(self, batch: int, checkpoint: ObjectStore | None = None) -> int:
        text = (checkpoint or self.checkpoint).read(f"offsets/{batch}").decode()
        return offset_log.parse(text).kafka_offsets("0")[TOPIC, 0]

    def sinks(self) -> Sinks | None:
        """Say where its sink is, which has a lineage if it is a transactional one."""
        if self.mood.tells_no_sinks:
            return None
        if self.mood.sink != "kafka":
            return Sinks()
        return written_by(self.generation, cluster="another" if self.mood.moves_sink else "out")

    # --- what tests have it do ------------------------------------------------------------------

    @property
    def agent(self) -> _Agent:
        assert self.runtime is not None
        return self.runtime

    def take(self, request: Request) -> None:
        """Take the savepoint of a request, and no more."""
        take = Take(replace(request, state="accepted"))
        taking.Taking(self.agent, self.agent.admission).take(take, stopped_at=None)

    def end(self, request: Request, outcome: Outcome) -> None:
        """End a request."""
        self.agent.inbox.end(request, outcome, "")

    def fail(self, code: str, text: str) -> None:
        """Say that it fails."""
        self.agent.heartbeat_writer.end("failed", error=(code, text))


class _Clock(LeaseClock):
    """The clock of a process that may be killed."""

    def __init__(self, killed: threading.Event) -> None:
        self._killed = killed

    def sleep(self, seconds: float) -> None:
        if self._killed.wait(seconds):
            raise SystemExit


class _Agent(Runtime):
    """The agent; its query's sink is a small one, and it may be of an earlier version."""

    def __init__(self, board: Any, repository: Any, driver_run: Any, driver: Driver) -> None:
        super().__init__(board, repository, driver_run, driver)
        self.driver = driver
        hears: Any = self.inbox
        poll = hears.poll
        hears.poll = lambda: None if driver.world.deaf else poll()

    def start_admitted(self, query: JobQuery, run: Callable[[], SparkQuery]) -> Handle:
        query.carried = self.driver.sinks()
        return super().start_admitted(query, run)

    def _note_sink(self, query_id: str) -> None:
        if not self.driver.killed.is_set():  # drivers share a process here, and what sinks tell in it
            super()._note_sink(query_id)

    def _query_statuses(self) -> Mapping[str, QueryStatus]:
        found = super()._query_statuses()
        if self.driver.mood.tells_no_reading:
            return {name: replace(status, reads={}) for name, status in found.items()}
        return found


class _Session(SmallSpark):
    """The script's session."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver.view)
        self.driver = driver
        self.settings.update(driver.claim.launch["spec"].get("conf") or {})

    def open(self, location: str) -> Any:
        return Mortal(super().open(location), partial(self._meet, location.rpartition("/")[2]))

    def _meet(self, query: str, action: str, key: str) -> None:
        self.driver.require_alive()
        told = self.driver.agent.heartbeat_writer.known
        if query == STUCK and STUCK in told and key == "offsets/":  # the last look before its start
            self.driver.killed.wait()
            self.driver.require_alive()
        if self.driver.mood.fails_to_copy and action not in ("get", "read", "head", "list"):
            raise OSError("no space left on the device")

    def open_by_hadoop(self, location: str) -> Any:
        if location != self.driver.mood.own_checkpoint:
            return super().open_by_hadoop(location)
        return _plain_spark(location)

    def active(self) -> list[tuple[str, str | None]]:
        """Return a query that was started past the agent just now, if that is to be the reason to refuse."""
        asked = threading.current_thread() is self.driver.agent.inbox
        return [("beside", "beside")] if self.driver.world.refuses and asked else []

    def compare(self, runs: RunsToCompare) -> ComparedQuery:
        """Find as many rows changed as the new version's script says; that of the old one differs in none."""
        new = self.driver.world.board.claim(runs.asked.new or self.driver.generation)
        mood = self.driver.world.moods.get(new.launch["spec"]["script"], Mood())
        changed, first = mood.computes_otherwise, None
        if mood.differs_at is not None:
            copy = LocalStore(Path(runs.old.copy))
            later = [n for n in list_batches(copy, "commits") if self._ends_behind(copy, n, mood.differs_at)]
            first = min((n for n in later if n > runs.query.batch_id), default=None)
            changed = 0 if first is None else 1
        return ComparedQuery(old_rows=10, new_rows=10, equal=10 - changed, changed=changed, first_batch=first)

    def _ends_behind(self, copy: LocalStore, batch: int, offset: int) -> bool:
        return self.driver.position(batch, copy) > offset


class _Start(SmallStart):
    """The start of one of its queries."""

    def __init__(self, driver: Driver, query: str) -> None:
        def run(_: ObjectStore, once: bool) -> SmallStream:
            # Past the store that a dead process no longer reaches: count and commit are one moment.
            place = LocalStore(Path(driver.claim.checkpoint_location) / query)
            return driver.begin_stream(query, place, once=once)

        super().__init__(driver.spark, (driver.source(query),), run)
        self.driver, self.query = driver, query

    def try_out(
        self, name: str, location: str, output_mode: str, *, once: bool, rows: str | None = None
    ) -> SmallQuery:
        checkpoint = self.session.open(location)
        stream = self.driver.begin_stream(self.query, checkpoint, once=once, counts=False)
        return SmallQuery(SmallHandle(id_of(checkpoint), stream))


def _plain_spark(location: str) -> Any:
    """Return a place in which plain Spark has committed batch 17."""
    place: Any = MemoryStore()
    place.write("metadata", json.dumps({"id": "of plain Spark"}).encode())
    for log in ("offsets", "commits"):
        place.write(f"{log}/17", b"v1\n{}")
    place.qualified = location
    return place


def written_by(generation: int, *, cluster: str = "out") -> Sinks:
    """Return what a run says of its sink: it has a number of shards of its own."""
    lineage = SinkLineage(
        lineage="out", shards=generation, control_topic="c", cluster_id=cluster, completed_batch=0,
        markers={0: 0},
    )  # fmt: skip
    return Sinks(lineages=(lineage,))
