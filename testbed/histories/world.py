"""What a history happens in: hosts with their disks, savepoint roots, two Kafka clusters, and the drivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.base import Alive, DriverPages, Gone, Unknown
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.status import Sightings
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.fence.fences import FenceRecord
from airflow_flinkstyle.kafka.verdict import Exact
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.plan import plan_rewrite, planned_positions
from airflow_flinkstyle.rewrite.rows import SourceRef, SourceVerdicts
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import NextOffset
from testbed.histories.driver import SOURCE, TOPIC, Driver
from testbed.histories.oracle import Life, Oracle
from testbed.histories.places import Place, RootStore
from testbed.histories.troubles import Troubles
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.jobs.deployments.base import DriverState, Submission
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore
    from testbed.histories.machine import Fault, Machine
    from testbed.histories.oracle import Batch, Sink
    from testbed.histories.task import Task

_SHIFT = 100
"""The new cluster holds each record so many offsets earlier."""
_SHARED = "/shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is the same throughout a history."""

    queries: int = 1
    sink: Sink = "kafka"
    shared: bool = True
    """Checkpoints stand where every host reaches them; else on the disk of the host."""
    ahead_s: float = 0.0
    """How far the clock of host ``b`` is ahead."""


class World:
    """One history's world."""

    job = "orders"
    lease_s = 12.0
    beat_s = 3.0
    late_s = 100.0
    """Longer than a stop waits for a query that its script has not started."""

    def __init__(self, machine: Machine, setting: Setting) -> None:
        self.machine, self.setting = machine, setting
        self.queries = ("a", "b")[: setting.queries]
        self.sink: Sink = setting.sink
        self.oracle = Oracle(setting.sink)
        self.troubles = Troubles(machine)
        self.roots = {name: RootStore(name, machine, self.troubles) for name in ("r1", "r2")}
        self.lives = {name: Life(name) for name in self.roots}
        self.disks = {host: RootStore(f"disk-{host}", machine) for host in ("a", "b", _SHARED)}
        self.drivers: list[Driver] = []
        self.tasks: list[Task] = []
        self.next_fault: Fault | None = None
        """Of the next driver that is started."""
        self.kafka = Clusters(self)
        self.checkpoint_root = f"{_SHARED}/checkpoints" if setting.shared else "/disk/checkpoints"

    # --- places -----------------------------------------------------------------------------------

    def open(self, host: str, location: str, troubles: Troubles | None = None) -> ObjectStore:
        """Open a checkpoint location as a host reaches it; callers' calls may meet troubles of a store."""
        disk = self.disks[_SHARED if location.startswith(_SHARED) else host]
        return Place(disk, location, troubles)

    def open_shared(self, location: str) -> ObjectStore:
        """Open a checkpoint location that every host reaches; those on a host's own disk are the drivers'."""
        if not location.startswith(_SHARED):
            raise BadInputError(f"A shared disk was expected, found {location}.", "Nothing.", "Use another.")
        return Place(self.disks[_SHARED], location, self.troubles)

    def lose_disk(self, host: str) -> None:
        """Lose a host with all that runs on it and the disk; another one takes its name."""
        for driver in self.drivers:
            if driver.alive and driver.host == host:
                self.machine.kill(driver)
        self.disks[host] = RootStore(f"disk-{host}", self.machine)

    def delete_root(self, root: str) -> None:
        """Delete a job's folder below a root by hand: it begins a new life."""
        self.roots[root].delete_below(f"{self.job}/")
        self.lives[root] = Life(f"{root}, after it was deleted")

    # --- callers ----------------------------------------------------------------------------------

    def client(self, root: str, host: str) -> JobClient:
        """Make what a task on a host uses: it has seen nothing so far."""
        store = self.roots[root]
        return JobClient(
            view=JobView(
                board=JobBoard(store, self.job),
                repository=SavepointRepository(store, self.job),
                deployment=Deployment(self, root, host),
                signer=SIGNER,
                open_checkpoint=lambda location: self.open(host, location, self.troubles),
                poll_s=self.beat_s,
                base_env={},
                sightings=Sightings(),
            )
        )

    def spec(self, script: str, *, new: bool = False) -> JobSpec:
        """Return a version of the job."""
        rule = KafkaOverride(role="source", servers="old:9092", options={"kafka.bootstrap.servers": "new"})
        return JobSpec(
            name=self.job,
            script=script,
            overrides=(rule,) if new else (),
            checkpoint_root=self.checkpoint_root,
            lease_s=self.lease_s,
        )

    def target(self) -> SubmitTarget:
        """Return where drivers run: the host of who starts them."""
        return SubmitTarget(
            master="local[1]", python="/usr/bin/python3", spark_home="/spark", log_dir="/logs"
        )

    def switch(self, root: str) -> StoreProducerSwitch:
        """Return what holds the producers."""
        return StoreProducerSwitch(self.roots[root], f"{self.job}/switch.json")

    def journal(self, root: str, key: str, phases: tuple[str, ...]) -> CutoverJournal:
        """Return the journal of a cutover."""
        return CutoverJournal(self.roots[root], self.job, key, phases, signer=SIGNER)

    # --- batches ----------------------------------------------------------------------------------

    def log_of(self, batch: Batch, end: int) -> str:
        """Return an offset log that names the batch."""
        confs = (
            f'{{"batchWatermarkMs":0,"batchTimestampMs":{batch.number},'
            '"conf":{"spark.sql.shuffle.partitions":"2"}}'
        )
        return f'v1\n{confs}\n{{"{TOPIC}":{{"{SOURCE}":{end}}}}}'

    def stamped(self, log: OffsetLog) -> Batch:
        """Return the batch that an offset log names."""
        return self.oracle.batches[log.timestamp_ms]


class Deployment:
    """Drivers as one host sees them; fulfils ``Deployment``."""

    name = "processes"

    def __init__(self, world: World, root: str, host: str) -> None:
        self._world, self._root, self._host = world, root, host

    def require_able(self) -> None:
        """Say yes."""

    def submit(self, submission: Submission) -> dict[str, str]:
        """Start one."""
        world = self._world
        world.machine.point()
        trouble = world.troubles.at("submit", "submit")
        if trouble is not None and not trouble[1]:
            raise trouble[0]
        driver = Driver(world, self._root, self._host, len(world.drivers) + 1, submission)
        driver.fault, world.next_fault = world.next_fault, None
        world.drivers.append(driver)
        world.machine.spawn(driver, driver.run)
        if trouble is not None:
            raise trouble[0]
        return {"pid": str(driver.pid), "host": self._host}

    def find(self, submission: Submission) -> dict[str, str] | None:
        """Find one that runs here."""
        if self._world.troubles.at("look", "look") is not None:
            return None
        for driver in self._world.drivers:
            if driver.alive and driver.host == self._host and driver.marker == submission.marker:
                return {"pid": str(driver.pid), "host": self._host}
        return None

    def native_id(self, record: Any) -> dict[str, str]:  # noqa: ANN401
        """Name one by its record."""
        return {"pid": str(record.jvm_pid), "host": record.host}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Look at one."""
        if native_id["host"] != self._host:
            return Unknown("it runs on another host")
        if (trouble := self._world.troubles.at("look", "look")) is not None:
            return Unknown(str(trouble[0]))
        return Alive() if self._driver(native_id).alive else Gone()

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Kill one that runs here."""
        if native_id["host"] != self._host:
            return Unknown("it runs on another host")
        if (trouble := self._world.troubles.at("look", "look")) is not None and not trouble[1]:
            return Unknown(str(trouble[0]))
        self._world.machine.kill(self._driver(native_id))
        return Gone() if trouble is None else Unknown(str(trouble[0]))

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return nothing."""
        return f"(no log of {native_id}, {lines} lines)"

    def pages(self, native_id: Mapping[str, str]) -> DriverPages:
        """Return none."""
        return DriverPages(cluster=native_id["pid"])

    def _driver(self, native_id: Mapping[str, str]) -> Driver:
        return self._world.drivers[int(native_id["pid"]) - 1]


class Clusters:
    """One partition on two Kafka clusters, and a mirror that never lags; fulfils ``KafkaSide``."""

    old_cluster_id, new_cluster_id = "old", "new"

    def __init__(self, world: World) -> None:
        self._world = world
        self.records = 0
        self.on_old = 0
        """Of these the old cluster has: producers are moved for good."""
        self.root = "r1"
        """Whose switch producers obey."""

    def produce(self, count: int) -> None:
        """Let producers write, where their switch lets them."""
        found = self._world.roots[self.root].content(f"{self._world.job}/switch.json")
        position = "" if found is None else found.decode()
        if '"hold"' in position:
            return
        self.records += count
        if '"release_new"' not in position:
            self.on_old = self.records

    @property
    def is_held(self) -> bool:
        """Whether producers are told to wait."""
        found = self._world.roots[self.root].content(f"{self._world.job}/switch.json")
        return found is not None and b'"hold"' in found

    def base(self, cluster: str) -> int:
        """Return the first offset of a cluster's log."""
        return _SHIFT if cluster == "old" else 0

    def end(self, cluster: str) -> int:
        """Return the offset behind the last record that a cluster has."""
        return self.on_old + _SHIFT if cluster == "old" else self.records

    def who_writes(self, topics: Collection[str], window_s: float) -> str | None:
        """Return None: producers obey."""
        self._world.troubles.come("kafka", "who_writes")
        return None

    def await_mirrored(self, sources: Mapping[str, Collection[str]], timeout_s: float) -> None:
        """Return at once."""
        self._world.troubles.come("kafka", "await_mirrored")

    def _view(self) -> ClusterView:
        end = NextOffset(self.end("new"))
        log = LogRange(start=NextOffset(0), end=end, last_stable=end)
        return ClusterView(
            cluster_id="new", topics={TOPIC: TopicView(topic_id="new-id", partitions={0: log})}
        )

    def plan(self, manifest: Manifest, *, preview: bool = False) -> OffsetRewritePlan:
        """Translate by the shift."""
        self._world.troubles.come("kafka", "plan")
        verdicts = {}
        for query in manifest.queries:
            at = query.kafka[SOURCE].offsets[TOPIC, 0]
            planned = {
                tp: Exact(NextOffset(end - _SHIFT)) for tp, end in planned_positions(query, SOURCE).items()
            }
            verdicts[SourceRef(query=query.name, source=SOURCE)] = SourceVerdicts(
                verdicts={(TOPIC, 0): Exact(NextOffset(at - _SHIFT))}, planned=planned, settled=not preview
            )
        return plan_rewrite(manifest, self._view(), verdicts, {})

    def apply(self, plan: OffsetRewritePlan, manifest: Manifest, repository: SavepointRepository) -> Manifest:
        """Write the rewritten savepoint."""
        self._world.troubles.come("kafka", "apply")
        return apply_plan(plan, manifest, repository, live=self._view())

    def unread(self, manifest: Manifest) -> int:
        """Count what is behind a rewritten savepoint."""
        self._world.troubles.come("kafka", "unread")
        return sum(
            self.end("new") - position.offsets[TOPIC, 0]
            for query in manifest.queries
            for position in query.kafka.values()
        )

    def commit_for(self, group: str, plan: OffsetRewritePlan) -> str:
        """Do nothing."""
        self._world.troubles.come("kafka", "commit_for")
        return f"{group}: {plan.savepoint_id}"

    @property
    def watch(self) -> Clusters:
        """An eye on the old cluster: itself."""
        return self

    @property
    def fence(self) -> Fence:
        """A fence that is none."""
        return Fence(self._world.troubles)

    def ends(self, topics: Collection[str]) -> Offsets:
        """Return where the old logs end."""
        self._world.troubles.come("kafka", "ends")
        return Offsets({(topic, 0): NextOffset(self.end("old")) for topic in topics})

    def late_writes(self, ends: Offsets) -> str | None:
        """Tell whether somebody wrote since."""
        self._world.troubles.come("kafka", "late_writes")
        return None if ends == self.ends([TOPIC]) else "records arrived"


class Fence:
    """Producers are only watched; fulfils ``Fence``."""

    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles

    def plan(self, topics: Collection[str]) -> FenceRecord:
        """Return what it would add: nothing."""
        self._troubles.come("kafka", "plan")
        return FenceRecord(kind="passive", cluster_id="old", topics=tuple(topics))

    def put(self, record: FenceRecord) -> None:
        """Do nothing."""
        self._troubles.come("kafka", "put")

    def lift(self, record: FenceRecord) -> None:
        """Do nothing."""
        self._troubles.come("kafka", "lift")

    def missing(self, record: FenceRecord) -> tuple[()]:
        """Return nothing."""
        self._troubles.come("kafka", "missing")
        return ()
