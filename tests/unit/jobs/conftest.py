"""A job without a JVM: a driver that keeps the protocol in a thread, and two Kafka logs in memory.

The driver writes a real checkpoint, its savepoints are real ones; what it counts is kept apart, to judge.
"""

# ruff: noqa: ANN401
from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.board.agreement import Agreement
from airflow_flinkstyle.agent.core.board.held import HeldWatch
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.clock import CLOCK, LEASE_CLOCK, Clock
from airflow_flinkstyle.errors import FlinkstyleError, SignatureError
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.base import Alive, DriverPages, Gone, Submission
from airflow_flinkstyle.jobs.errors import MirrorBehindError
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.errors import ClusterUnreachableError, GroupInUseError
from airflow_flinkstyle.kafka.fence.fences import FenceRecord
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.verdict import Exact, Refused
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.errors import CheckpointFoundError, PredecessorError, ToldToEndError
from airflow_flinkstyle.protocol.places import own_place
from airflow_flinkstyle.protocol.query_records import QueryStatus, Reading, SinkLineage, Sinks, SourceIdentity
from airflow_flinkstyle.protocol.records import (
    End,
    Heartbeat,
    IncarnationRecord,
    KafkaOverride,
    TakeoverOrder,
)
from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal, RehearsedQuery
from airflow_flinkstyle.protocol.signatures import ORDER_KEYS_VARIABLE
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.plan import plan_rewrite, planned_positions
from airflow_flinkstyle.rewrite.rows import SourceRef, SourceVerdicts
from airflow_flinkstyle.rewrite.rules import PROVED
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import TakeCancelledError
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError, StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import NextOffset
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore

QUERY, TOPIC, SHIFT = "orders", "orders", 100
_CONFS = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"2"}}'


class Logs:
    """One partition on two clusters; the new one holds each record 100 offsets earlier."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.mirrored = 0
        self.mirror_runs = True
        self.refuse = False
        self.writes_late = False  # a producer that ignores the switch
        self.strayed = 0  # records that somebody wrote to the old cluster and no mirror sees
        self.fenced = self.group_has_members = False
        self.loses_planned = False  # the end of a planned batch has no place on the new cluster
        self.gone: set[str] = set()  # clusters that do not answer
        self.groups: dict[str, int] = {}
        self.counted: Counter[int] = Counter()
        self.committed_by: list[int] = []  # generation of each commit
        self.lock = threading.Lock()

    def produce(self, count: int) -> None:
        with self.lock:
            self.records += range(len(self.records), len(self.records) + count)
            if self.mirror_runs:
                self.mirrored = len(self.records)

    def end(self, cluster: str) -> int:
        return len(self.records) + (SHIFT if cluster == "old" else 0)

    def base(self, cluster: str) -> int:
        return SHIFT if cluster == "old" else 0

    # KafkaSide

    def who_writes(self, topics: Any, window_s: float) -> str | None:
        assert list(topics) == [TOPIC]
        if self.writes_late:
            self.produce(1)
        return f"Records arrived on {TOPIC}-0." if self.writes_late else None

    def await_mirrored(self, topics: Any, timeout_s: float) -> None:
        if self.mirrored < len(self.records):
            raise MirrorBehindError("MirrorMaker was expected to catch up.", "Nothing.", "Start it.")

    def view(self, side: str = "new", topics: Any = (TOPIC,)) -> ClusterView:
        end, cluster_id = self.end(side), getattr(self, f"{side}_cluster_id")
        log = LogRange(start=self.base(side), end=end, last_stable=end)
        found = {topic: TopicView(topic_id=f"{side}-id", partitions={0: log}) for topic in topics}
        return ClusterView(cluster_id=cluster_id, topics=found)

    # what the look beforehand asks of it: topics keep their names, and no position is to be proved

    mirror, strategies = None, PROVED
    old, new = (KafkaCluster(name=n, config={"bootstrap.servers": f"{n}:9092"}) for n in ("old", "new"))

    def request(self) -> ProofRequest:
        return ProofRequest(positions={}, mirror=None, rename={}, isolation="read_uncommitted")

    def target_topics(self, topics: Any) -> list[str]:
        return sorted(topics)

    def to_prove(self, sources: Any) -> set[str]:
        return set()

    def plan(self, manifest: Any, *, preview: bool = False) -> Any:
        position = manifest.queries[0].kafka["0"].offsets[TOPIC, 0]
        verdict = Refused("not on the target", None) if self.refuse else Exact(position - SHIFT)
        ends = planned_positions(manifest.queries[0], "0")
        planned = {tp: Exact(end - SHIFT) for tp, end in ends.items() if not self.loses_planned}
        found = SourceVerdicts(verdicts={(TOPIC, 0): verdict}, planned=planned, settled=not preview)
        return plan_rewrite(manifest, self.view(), {SourceRef(query=QUERY, source="0"): found}, {})

    def apply(self, plan: Any, manifest: Any, repository: Any) -> Any:
        return apply_plan(plan, manifest, repository, live=self.view())

    def unread(self, manifest: Any) -> int:
        return self.end("new") - manifest.queries[0].kafka["0"].offsets[TOPIC, 0]

    def commit_for(self, group: str, manifest: Any) -> str:
        if self.group_has_members:
            raise GroupInUseError(f"Group {group} should have no members.", "Nothing.", "Stop them.")
        self.groups[group] = manifest.queries[0].kafka["0"].offsets[TOPIC, 0]
        return f"Group {group}: 1 partition committed."

    # the watch on the old cluster, and its fence

    new_cluster_id = "new"

    @property
    def old_cluster_id(self) -> str:
        if "old" in self.gone:
            raise ClusterUnreachableError("Cluster old was expected to answer.", "Nothing.", "Start it.")
        return "old"

    @property
    def watch(self) -> Logs:
        return self

    @property
    def fence(self) -> LoggedFence:
        return LoggedFence(self)

    def ends(self, topics: Any) -> Offsets:
        return Offsets({(topic, 0): NextOffset(self.end("old") + self.strayed) for topic in topics})

    def late_writes(self, ends: Any) -> str | None:
        now = self.ends([TOPIC])
        return None if now == ends else f"records arrived on {TOPIC}-0 ({ends} to {now})"


class LoggedFence:
    """A fence around the old log."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs

    def plan(self, topics: Any) -> FenceRecord:
        return FenceRecord(kind="acl", cluster_id="old", topics=tuple(topics))

    def put(self, record: Any) -> None:
        assert not self.logs.writes_late, "a fence refuses what an obedient producer is still flushing"
        self.logs.fenced = True

    def lift(self, record: Any) -> None:
        self.logs.fenced = False

    def missing(self, record: Any) -> tuple[()]:
        return ()


@dataclasses.dataclass
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
    moves_sink: bool = False
    adds_query: bool = False
    """One that Spark does not start."""
    pace: Any = None
    """What Spark tells of its batches."""
    finds_no_room: bool = False
    """The cluster has taken it and never starts it."""
    finds_no_records: bool = False
    """Its rehearsal has nothing to read."""


class _Leave(Exception):
    pass


class Driver(threading.Thread):
    """One incarnation: the agent's side of the protocol, in the order of the contract."""

    def __init__(self, world: World, pid: int, host: str, submission: Submission) -> None:
        super().__init__(daemon=True)
        self.world, self.generation, self.pid = world, int(submission.marker[-1]), pid
        self.host = host
        self.submit = int(submission.argv[submission.argv.index("--submit") + 1])
        self.order_keys = tuple(submission.env[ORDER_KEYS_VARIABLE].split(","))
        generation = self.generation
        self.board = JobBoard(world.store, world.job)
        self.killed, self.version, self.beats = threading.Event(), None, 0
        self.claim = self.board.claim(generation)
        self.mood = world.moods.get(self.claim.launch["spec"]["script"], Mood())
        self.cluster = "new" if self.claim.overrides else "old"
        self.checkpoint = LocalStore(Path(self.claim.checkpoint_location) / QUERY)
        self.application_id, self.precopied = "", None
        self.began: int | None = None
        record = IncarnationRecord(host=host, pid=pid, jvm_pid=pid, pid_started="x", started_at_ms=1)
        self.process: Any = SimpleNamespace(record=lambda: record)
        self.incarnation: Any = None

    def run(self) -> None:
        if self.mood.finds_no_room:
            self.killed.wait()
            return
        with contextlib.suppress(_Leave, takeover.NotOursError, ObjectChangedError, ObjectExistsError):
            self.driver_run = takeover.begin(
                self.board, self.generation, self.process, submit=self.submit, order_keys=self.order_keys
            )
            self.incarnation = self.driver_run.incarnation
            self.version = self.driver_run.prior.version if self.driver_run.prior else None
            try:
                self.live()
            except (CheckpointFoundError, PredecessorError, SignatureError) as error:
                self.beat("failed", error=(error.code, str(error)))
            except ConnectionError as error:
                self.beat("failed", error=("CLUSTER_UNREACHABLE", str(error)), transient=True)
            except RuntimeError as error:
                self.beat("failed", error=("SCRIPT_FAILED", str(error)))
        self.killed.set()

    def pause(self, seconds: float = 0.005) -> None:
        if self.killed.wait(seconds):
            raise _Leave

    def require_may_take_over(self) -> None:
        takeover.require_may_take_over(self.board.current(), self.generation, self.claim)

    def wait(self) -> None:
        """Look at what a driver looks at while it waits."""
        self.pause()
        self.require_may_take_over()
        self.obey(standby=True)
        named = self.board.precopy(self.generation)
        if named is not None and named.savepoint_id != self.precopied:
            if self.mood.fails_to_copy:
                raise RuntimeError("no space left on the device")
            self.precopied = named.savepoint_id
            self.beat("standby")

    def guard(self, order: TakeoverOrder, *, is_first: bool) -> None:
        """Refuse what an agent refuses before it takes the job."""
        expected = order.expected.get(QUERY, {}).get("0")
        if self.mood.fails_guard or (expected and expected.cluster_id != self.cluster):
            raise RuntimeError("CLUSTER_MISMATCH")
        own = self.mood.own_checkpoint
        if own and is_first and own not in self.claim.leave_checkpoints:
            raise CheckpointFoundError.of(self.world.job, QUERY, own, "batch 17 committed", ran=())
        if self.mood.out_of_reach:
            self.mood.out_of_reach -= 1
            raise ConnectionError("no broker answered")

    def live(self) -> None:
        self.pause(self.mood.slow_start_s)
        if self.mood.fails_at_import:
            raise RuntimeError("ImportError: no module named nonsense")
        self.application_id = "app"
        place_id = own_place(LocalStore(Path(self.claim.checkpoint_location)), self.board, self.generation)
        if self.claim.is_drill:
            self.beat("standby")
            self.drill()
            self.beat("closed")
            return
        if self.claim.rehearse is not None:
            self.rehearse()
        self.beat("standby")
        untold_s, asked_s = None, LEASE_CLOCK.now_s
        while (order := takeover.signed_order(self.board, self.driver_run)) is None:
            self.wait()
            untold_s, asked_s = asked_s, LEASE_CLOCK.now_s
        seen = self.driver_run.seen
        if seen is None or seen.value.generation != self.generation:
            seen = self.board.current()
        takeover.require_may_take_over(seen, self.generation, self.claim)
        if seen is None or seen.value.generation != self.generation:
            takeover.require_predecessor(self.board, self.driver_run, order, self.wait)
            if order.savepoint_id:
                manifest = self.world.repository.read(order.savepoint_id)
                restore_query(manifest, manifest.queries[0], self.world.repository, self.checkpoint)
        self.guard(order, is_first=seen is None)
        if order.while_held is not None and (seen is None or seen.value.generation != self.generation):
            watch = HeldWatch(self.board, order.while_held, untold_s=untold_s, clock=LEASE_CLOCK)
            while not watch.look():
                self.wait()
        self.pause()
        self.began = self.logs()[0]
        takeover.take_current(self.board, self.driver_run, seen, place_id)
        self.beat("running")
        self.loop()

    def rehearse(self) -> None:
        """Say what came of a rehearsal."""
        rows = 0 if self.mood.finds_no_records else 7
        told = Rehearsal(
            incarnation=self.incarnation, savepoint_id=self.claim.prepare_savepoint_id,
            queries={QUERY: RehearsedQuery(batches=1, input_rows=rows)},
            not_tested=() if rows else (QUERY,), seconds=1.0, ended_at_ms=1,
        )  # fmt: skip
        self.board.write_rehearsal(self.generation, told)

    def drill(self) -> None:
        """Restore a copy, and say what came of its batches."""
        while self.mood.hangs_in_batch:
            self.pause()
            self.obey(standby=True)
        savepoint_id, failure = self.claim.prepare_savepoint_id, None
        manifest = self.world.repository.read(savepoint_id)
        copy = LocalStore(Path(f"{self.claim.checkpoint_location}.rehearsal") / QUERY)
        restore_query(manifest, manifest.queries[0], self.world.repository, copy)
        if self.mood.fails_in_batch:
            failure = ("SCRIPT_FAILED", "ZeroDivisionError: in the first batch")
        ran = RehearsedQuery(batches=2, restore_s=0.5, input_rows=7, seconds=(0.1, 0.2))
        told = Rehearsal(
            incarnation=self.incarnation, savepoint_id=savepoint_id, queries={QUERY: ran},
            failure=failure, seconds=1.0, ended_at_ms=1,
        )  # fmt: skip
        self.board.write_rehearsal(self.generation, told)
        if failure is not None:
            raise RuntimeError(failure[1])

    def logs(self) -> tuple[int, int, int]:
        """Return committed batch, planned batch and committed position."""
        done = [int(i.key.split("/")[1]) for i in self.checkpoint.list("commits/") if "/." not in i.key]
        planned = [int(i.key.split("/")[1]) for i in self.checkpoint.list("offsets/") if "/." not in i.key]
        committed = max(done, default=-1)
        at = self.position(committed) if done else self.world.logs.base(self.cluster)
        return committed, max(planned, default=-1), at

    def position(self, batch: int) -> int:
        text = self.checkpoint.read(f"offsets/{batch}").decode()
        return offset_log.parse(text).kafka_offsets("0")[TOPIC, 0]

    def loop(self) -> None:
        if self.mood.loses_reach:
            raise ConnectionError("no broker answered any more")
        if self.checkpoint.head("metadata") is None:
            self.checkpoint.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        for _ in itertools.count():
            current = self.board.current()
            if current is None or current.value.generation != self.generation:
                raise _Leave
            self.batch()
            self.beat("running")
            self.obey(standby=False)
            if self.world.script_ends or self.world.tells_to_end:
                told = (ToldToEndError.code, "SIGTERM") if self.world.tells_to_end else None
                self.beat("closed", error=told)
                raise _Leave
            self.pause()

    def batch(self, until: int | None = None) -> None:
        logs = self.world.logs
        committed, planned, at = self.logs()
        if planned <= committed:
            end = logs.end(self.cluster) if until is None else until
            if end == at or (until is None and self.world.reads_slowly):
                return
            planned = committed + 1
            text = f'v1\n{_CONFS}\n{{"{TOPIC}":{{"0":{end}}}}}'
            self.checkpoint.write(f"offsets/{planned}", text.encode())
        while self.mood.hangs_in_batch:
            self.beat("running")
            self.pause()
        if self.mood.fails_in_batch:
            raise RuntimeError("ZeroDivisionError: in the first batch")
        base, end = logs.base(self.cluster), self.position(planned)
        with logs.lock:
            logs.counted.update(logs.records[at - base : end - base])
            logs.committed_by.append(self.generation)
            self.checkpoint.write(f"commits/{planned}", b'v1\n{"nextBatchWatermarkMs":0}')

    def obey(self, *, standby: bool) -> None:
        slot = self.board.request(self.generation)
        if slot is None or slot.value.command == "none":
            return
        request = slot.value
        if self.board.end(self.generation, request.request_id) is not None or self.world.deaf:
            return
        if request.incarnation != self.incarnation or request.state == "cancelled":
            outcome = "cancelled" if request.state == "cancelled" else "lost"
            self.end(request, outcome)
            return
        if self.world.refuses:
            self.end(request, "refused", detail="nothing to save yet")
            return
        if request.state == "sent":
            self.board.put_request(self.generation, dataclasses.replace(request, state="accepted"), seen=slot)
        self.pause(self.mood.slow_takes_s)
        if request.drain:
            self.batch(until=self.world.logs.end(self.cluster))
        if request.cut_id is None or self.cut_with_others(request):
            self.serve(request, standby=standby)

    def serve(self, request: Any, *, standby: bool) -> None:
        savepoint_id, failed = None, None
        if request.command != "stop" and not standby:
            if self.world.takes_fail or self.world.store_throttles:
                failed = "the disk is full" if self.world.takes_fail else "SlowDown"
                if request.command == "savepoint" or request.on_failed_savepoint == "keep_running":
                    self.end(request, "failed", detail=failed, transient=self.world.store_throttles)
                    return
            else:
                savepoint_id = self.take(request)
        if request.command == "savepoint":
            self.end(request, "done", savepoint_id=savepoint_id)
            return
        self.beat("draining")
        self.pause()
        error = ("STORE", failed) if failed else None
        self.beat("closed", request_id=request.request_id, savepoint_id=savepoint_id, error=error)
        self.end(request, "done", savepoint_id=savepoint_id)
        raise _Leave

    def cut_with_others(self, request: Any) -> bool:
        """Run to the barrier of all and save; False if the cut is abandoned, and the job goes on."""

        def require_wanted() -> None:
            self.pause(0)
            if self.board.request(self.generation).value.state == "cancelled":
                raise TakeCancelledError.of(f"job {self.world.job}")

        agreement = Agreement(
            self.world.store, self.world.job, request.cut_id,
            hold_s=request.hold_s, require_wanted=require_wanted,
        )  # fmt: skip
        place = (self.cluster, TOPIC, 0)
        try:
            self.batch(until=agreement.barrier({place: self.logs()[2]})[place])
            if self.world.takes_fail:
                raise StoreUnavailableError("The store", "failed", "midway.")
            self.take(request)
            if request.command != "savepoint":
                slot = self.board.request(self.generation)
                closing = dataclasses.replace(slot.value, state="closing")
                self.board.put_request(self.generation, closing, seen=slot)
                agreement.require_complete()
        except FlinkstyleError as error:
            agreement.abandon(str(error))
            self.end(request, "failed", detail=str(error))
            return False
        return True

    def take(self, request: Any) -> str:
        if self.world.leaves_planned:  # as a driver that dies in a batch
            committed, _, _ = self.logs()
            end = self.world.logs.end(self.cluster) - self.world.planned_lacks
            text = f'v1\n{_CONFS}\n{{"{TOPIC}":{{"0":{end}}}}}'
            self.checkpoint.write(f"offsets/{committed + 1}", text.encode())
        log = KafkaLog(
            cluster_id=self.cluster,
            topic_ids={TOPIC: f"{self.cluster}-id"},
            log_range={TOPIC: {0: (self.world.logs.base(self.cluster), self.world.logs.end(self.cluster))}},
        )
        label = SavepointLabel(
            savepoint_id=request.savepoint_id,
            taken_at_ms=time.time_ns() // 1_000_000,
            spark_version="4.2.0",
            taken_from_generation=self.generation,
            alignment=request.alignment,
            cut_id=request.cut_id,
        )
        sources = [
            QuerySource(
                name=QUERY,
                checkpoint=self.checkpoint,
                kafka={"0": log},
                sink=self.mood.sink,
                sinks=self.sinks(),
            )
        ]
        return take_savepoint(self.world.repository, sources, label).savepoint_id

    def end(
        self,
        request: Any,
        outcome: Any,
        *,
        savepoint_id: str | None = None,
        detail: str = "",
        transient: bool = False,
    ) -> None:
        end = End(
            request_id=request.request_id,
            outcome=outcome,
            savepoint_id=savepoint_id,
            detail=detail,
            ended_at_ms=1,
            transient=transient,
        )
        self.board.create_end(self.generation, end)

    def beat(self, state: Any, **last: Any) -> None:
        queries = {}
        if self.checkpoint.head("metadata") is not None:
            committed, _, _ = self.logs()
            query_id = json.loads(self.checkpoint.read("metadata"))["id"]
            queries[QUERY] = QueryStatus(
                query_id=query_id,
                batch_id=None if committed < 0 else committed,
                batch_committed_at_ms=time.time_ns() // 1_000_000,
                sources={
                    "0": SourceIdentity(cluster_id=self.cluster, topic_ids={TOPIC: f"{self.cluster}-id"})
                },
                sink=self.mood.sink,
                sinks=self.sinks(),
                reads={} if self.mood.tells_no_reading else {"0": self.reading()},
                pace=self.mood.pace,
                own_location=self.world.own_location,
            )
        if self.mood.adds_query:
            queries["more"] = QueryStatus(
                query_id=None, batch_id=None, batch_committed_at_ms=None, sources={}
            )
        self.beats += 1
        heartbeat = Heartbeat(
            incarnation=self.incarnation,
            state=state,
            precopied=self.precopied,
            beat=self.beats,
            written_at_ms=time.time_ns() // 1_000_000,
            spark_version="4.2.0",
            application_id=self.application_id,
            queries=queries,
            has_committed=self.began is not None and self.logs()[0] > self.began,
            **last,
        )
        self.version = self.board.beat(self.generation, heartbeat, seen=self.version)

    def reading(self) -> Reading:
        rules = [rule.options for rule in self.claim.overrides]
        servers = rules[0].get("kafka.bootstrap.servers", "old:9092") if rules else "old:9092"
        return Reading(servers=servers, isolation="read_committed")

    def sinks(self) -> Sinks | None:
        if self.mood.tells_no_sinks:
            return None
        if self.mood.sink != "kafka":
            return Sinks()
        return written_by(self.generation, cluster="another" if self.mood.moves_sink else "out")


def written_by(generation: int, *, cluster: str = "out") -> Sinks:
    """Return what a run says of its sink: it has a number of shards of its own."""
    lineage = SinkLineage(
        lineage="out", shards=generation, control_topic="c", cluster_id=cluster, completed_batch=0,
        markers={0: 0},
    )  # fmt: skip
    return Sinks(lineages=(lineage,))


class World:
    """A store, two Kafka logs, and a deployment whose drivers are threads; fulfils ``Deployment``."""

    name = "threads"

    def __init__(self, folder: Path, job: str = "orders-job", store: MemoryStore | None = None) -> None:
        self.job = job
        self.folder, self.store = folder, store or MemoryStore()
        self.repository = SavepointRepository(self.store, self.job)
        self.logs, self.moods = Logs(), {}
        self.drivers: dict[int, Driver] = {}
        self.submissions: list[Any] = []
        self.refused: FlinkstyleError | None = None
        self.deaf = self.takes_fail = self.refuses = self.reads_slowly = self.script_ends = False
        self.store_throttles = self.leaves_planned = self.tells_to_end = False
        self.own_location: str | None = None  # which the script names
        self.planned_lacks = 0  # records that came behind the batch which is left planned

    @property
    def board(self) -> JobBoard:
        return JobBoard(self.store, self.job)

    def client(self, clock: Clock = CLOCK) -> JobClient:
        return JobClient(
            view=JobView(
                board=self.board,
                repository=self.repository,
                deployment=self,
                signer=SIGNER,
                poll_s=0.01,
                clock=clock,
                base_env={},
            )
        )

    def spec(self, script: str = "v1.py", *, new: bool = False) -> JobSpec:
        rule = KafkaOverride(role="source", servers="old:9092", options={"kafka.bootstrap.servers": "new"})
        return JobSpec(
            name=self.job,
            script=script,
            overrides=(rule,) if new else (),
            checkpoint_root=str(self.folder / "checkpoints"),
            lease_s=0.3,
        )

    def target(self) -> SubmitTarget:
        return SubmitTarget(master="local[1]", python="/usr/bin/python3", log_dir=str(self.folder / "logs"))

    # Deployment

    def require_able(self) -> None:
        if self.refused is not None:
            raise self.refused

    def submit(self, submission: Any) -> dict[str, str]:
        return self.submit_on("here", submission)

    def submit_on(self, host: str, submission: Any) -> dict[str, str]:
        pid = len(self.drivers) + 1
        self.submissions.append(submission)
        self.drivers[pid] = Driver(self, pid, host, submission)
        self.drivers[pid].start()
        return {"pid": str(pid)}

    def find(self, submission: Any) -> dict[str, str] | None:
        for pid, driver in self.drivers.items():
            if driver.generation == int(submission.marker[-1]) and not driver.killed.is_set():
                return {"pid": str(pid)}
        return None

    def native_id(self, record: Any) -> dict[str, str]:
        return {"pid": str(record.jvm_pid)}

    def state(self, native_id: Any) -> Any:
        driver = self.drivers[int(native_id["pid"])]
        return Gone() if driver.killed.is_set() else Alive()

    def end(self, native_id: Any) -> Any:
        driver = self.drivers[int(native_id["pid"])]
        driver.killed.set()
        driver.join(5)
        return Gone()

    def log_tail(self, native_id: Any, *, lines: int = 30) -> str:
        return "the end of the log"

    def pages(self, native_id: Any) -> DriverPages:
        return DriverPages(cluster=f"https://cluster/drivers/{native_id['pid']}")

    # tests

    def kill(self, generation: int) -> None:
        """kill -9 every driver of a generation."""
        for driver in self.drivers.values():
            if driver.generation == generation:
                driver.killed.set()
                driver.join(5)

    def alive(self) -> list[int]:
        """Return the generations with a living driver."""
        return sorted(d.generation for d in self.drivers.values() if not d.killed.is_set())

    def until(self, condition: Any, timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.005)

    def start(self, records: int = 10) -> JobClient:
        """Start the first version on the old cluster and wait until it has counted all records."""
        client = self.client()
        self.logs.produce(records)
        handle = client.starts.start(self.spec(), self.target(), claim_key="start")
        client.drivers.wait_running(handle.generation, timeout_s=10)
        self.until(lambda: len(self.logs.counted) == records)
        self.until(lambda: client.view.status().heartbeat.batches())
        return client

    def judge(self) -> None:
        """Require that every record is counted exactly once, once the job has caught up."""
        self.until(lambda: sum(self.logs.counted.values()) >= len(self.logs.records))
        lost = [record for record in self.logs.records if record not in self.logs.counted]
        twice = [record for record, times in self.logs.counted.items() if times > 1]
        assert (lost, twice) == ([], [])


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    yield world
    for driver in world.drivers.values():
        driver.killed.set()
    for driver in world.drivers.values():
        driver.join(5)


@pytest.fixture
def mood():
    return Mood
