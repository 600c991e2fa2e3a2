"""A job without a JVM: drivers that are the agent's own core, and two Kafka logs in memory.

The driver writes a real checkpoint, its savepoints are real ones; what it counts is kept apart, to judge.
"""

# ruff: noqa: ANN401
from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.clock import CLOCK, Clock
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.base import Alive, DriverPages, Gone
from airflow_flinkstyle.jobs.errors import MIRROR_BEHIND
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.errors import GROUP_IN_USE, ClusterUnreachableError
from airflow_flinkstyle.kafka.fence.fences import FenceRecord
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.verdict import Exact, Refused
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import (
    KafkaOverride,
)
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.plan import plan_rewrite, planned_positions
from airflow_flinkstyle.rewrite.rows import SourceRef, SourceVerdicts
from airflow_flinkstyle.rewrite.rules import PROVED
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import NextOffset
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore
from testbed.waiting import scaled
from tests.unit.jobs.drivers import QUERY, TOPIC, Driver, Mood, Report, hurry

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.errors import FlinkstyleError

SHIFT = 100


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
            raise MIRROR_BEHIND.with_text("MirrorMaker was expected to catch up.", "Nothing.", "Start it.")

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

    def denials(self, topics: Any) -> list[Any]:
        return []

    def target_topics(self, topics: Any) -> list[str]:
        return sorted(topics)

    def to_prove(self, sources: Any) -> set[str]:
        return set()

    def plan(self, manifest: Any, *, preview: bool = False) -> Any:
        position = manifest.query(QUERY).kafka["0"].offsets[TOPIC, 0]
        verdict = Refused("not on the target", None) if self.refuse else Exact(position - SHIFT)
        ends = planned_positions(manifest.query(QUERY), "0")
        planned = {tp: Exact(end - SHIFT) for tp, end in ends.items() if not self.loses_planned}
        found = SourceVerdicts(verdicts={(TOPIC, 0): verdict}, planned=planned, settled=not preview)
        return plan_rewrite(manifest, self.view(), {SourceRef(query=QUERY, source="0"): found}, {})

    def apply(self, plan: Any, manifest: Any, repository: Any) -> Any:
        return apply_plan(plan, manifest, repository, live=self.view())

    def unread(self, manifest: Any) -> int:
        return self.end("new") - manifest.query(QUERY).kafka["0"].offsets[TOPIC, 0]

    def commit_for(self, group: str, plan: Any) -> str:
        if self.group_has_members:
            raise GROUP_IN_USE.with_text(f"Group {group} should have no members.", "Nothing.", "Stop them.")
        self.groups[group] = plan.positions(SourceRef(query=QUERY, source="0"))[TOPIC, 0]
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


class World:
    """A store, two Kafka logs, and a deployment whose drivers are threads; fulfils ``Deployment``."""

    name = "threads"

    def __init__(self, folder: Path, job: str = "orders-job", store: MemoryStore | None = None) -> None:
        Report.install()
        self.job = job
        self.folder, self.store = folder, store or MemoryStore()
        self.repository = SavepointRepository(self.store, self.job)
        self.logs, self.moods = Logs(), {}
        self.drivers: dict[int, Driver] = {}
        self.submissions: list[Any] = []
        self.refused: FlinkstyleError | None = None
        self.deaf = self.takes_fail = self.refuses = self.reads_slowly = self.script_ends = False
        self.store_throttles = self.tells_to_end = False
        self.own_location: str | None = None  # which the script names

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
        driver.kill()
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
                driver.kill()
                driver.join(5)

    def kill_all(self) -> None:
        """End every driver."""
        for driver in self.drivers.values():
            driver.kill()
        for driver in self.drivers.values():
            driver.join(5)

    def alive(self) -> list[int]:
        """Return the generations with a living driver."""
        return sorted(d.generation for d in self.drivers.values() if not d.has_ended)

    def until(self, condition: Any, timeout_s: float = 10.0) -> None:
        begun_s = time.monotonic()
        while not condition():
            assert time.monotonic() - begun_s < scaled(timeout_s), "it never came true"
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
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hurry(monkeypatch)
    world = World(tmp_path)
    yield world
    world.kill_all()


@pytest.fixture
def mood():
    return Mood
