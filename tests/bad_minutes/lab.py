"""One run: a job between two bad ways to one S3 server, and the callers that operate it."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs import relaunch, view
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.deployments.base import Alive, Gone, Unknown
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES as WINDOW
from airflow_flinkstyle.jobs.migration.cutover import Cutover
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.status import Closed, Running, Sightings
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.savepoint.manifest import Manifest
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from testbed.bad_s3 import BadS3, Weather
from testbed.keys import SIGNER
from testbed.waiting import PATIENCE_S
from tests.bad_minutes import driver
from tests.bad_minutes.kafka import PretendedKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.protocol.records import IncarnationRecord
    from airflow_flinkstyle.storage.base import ObjectStore
    from testbed.s3 import S3Server

T = TypeVar("T")
JOB, HOSTS = "orders-job", ("one", "two")
PHASES = ("start", "take", "stop", "relaunch", "migrate")
LEASE_S = 3.0
ANSWER_S, LATE_S = 0.5, 1.1
"""How long clients wait for an answer, twice; and how long a late one takes."""
MOST_BAD_S, CLEARS_UP_S, STUCK_S = 4.0, 4.0, PATIENCE_S
"""A bad spell; when a phase's bad minute ends at the latest; how soon all must be right then."""
QUICK = CutoverSettings(
    standby_timeout_s=12,
    hold_timeout_s=2,
    steady_window_s=0.01,
    caught_up_timeout_s=2,
    stop_timeout_s=12,
    takeover_timeout_s=12,
    first_commit_timeout_s=12,
)
log = logging.getLogger(__name__)


class StuckError(Exception):
    """Something did not come right in time once all was well again."""


def shorten_waits() -> None:
    """Shorten what the package waits for by rule, as the lab's lease is shorter than a real one."""
    view.CLAIM_GRACE_S, view.START_GRACE_S = 4.0, 8.0
    relaunch.RETRY_S, relaunch.MOST_RETRY_S = 0.2, 0.4


class Processes:
    """Drivers as processes, each on the host that started it."""

    def __init__(self, start: Callable[[driver.DriverCommand], Any]) -> None:
        self._start, self._lock = start, threading.Lock()
        self._started: list[tuple[driver.DriverCommand, Any]] = []

    def start(self, command: driver.DriverCommand) -> int:
        with self._lock:
            process = self._start(command)
            self._started.append((command, process))
            return int(process.pid)

    def lives(self, pid: int) -> bool:
        with self._lock:
            return any(process.pid == pid and process.is_alive() for _, process in self._started)

    def find(self, generation: int, host: str) -> int | None:
        with self._lock:
            for command, process in self._started:
                if (command.generation, command.host) == (generation, host) and process.is_alive():
                    return int(process.pid)
            return None

    def kill(self, pid: int) -> None:
        with self._lock:
            for _, process in self._started:
                if process.pid == pid:
                    process.kill()
                    process.join(10)

    def alive(self) -> list[int]:
        with self._lock:
            return [int(process.pid) for _, process in self._started if process.is_alive()]

    @property
    def count(self) -> int:
        return len(self._started)


class Host:
    """One worker's way to run drivers: it sees its own only. Fulfils ``Deployment``."""

    name = "lab"

    def __init__(self, lab: Lab, host: str) -> None:
        self.lab, self.host, self.sightings = lab, host, Sightings()

    def require_able(self) -> None:
        """Drivers stay here."""

    def submit(self, submission: Submission) -> Mapping[str, str]:
        return self._id(self.lab.launch(self.host, submission))

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        pid = self.lab.processes.find(_argument(submission, "--generation"), self.host)
        return None if pid is None else self._id(pid)

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        return {"host": record.host, "pid": str(record.jvm_pid)}

    def state(self, native_id: Mapping[str, str]) -> Alive | Gone | Unknown:
        if native_id["host"] != self.host:
            return Unknown(f"it was started on {native_id['host']}, this is {self.host}")
        return Alive() if self.lab.processes.lives(int(native_id["pid"])) else Gone()

    def end(self, native_id: Mapping[str, str]) -> Alive | Gone | Unknown:
        if native_id["host"] == self.host:
            self.lab.processes.kill(int(native_id["pid"]))
        return self.state(native_id)

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        return ""

    def _id(self, pid: int) -> Mapping[str, str]:
        return {"host": self.host, "pid": str(pid)}


def _argument(submission: Submission, name: str) -> int:
    return int(submission.argv[submission.argv.index(name) + 1])


@dataclass(slots=True)
class Phase:
    """What came of one phase of a run."""

    name: str
    failures: Counter[str] = field(default_factory=Counter)
    """Code of an error that a caller got -> how often; each was retried."""
    seconds: float = 0.0
    after_s: float = 0.0
    """How long it took once all was well again; 0 if it had succeeded before."""


class Lab:
    """One seed's job, its ways, its hosts."""

    def __init__(self, folder: Path, server: S3Server, seed: int) -> None:
        self.folder, self.server, self.seed = folder, server, seed
        self.random = random.Random(f"run {seed}")
        folder.mkdir(parents=True)
        self.root = f"s3://{server.create_bucket(f'bad-minutes-{seed}')}/root"
        self.ways = {
            who: BadS3(server.port, Weather((seed, who), most_bad_s=MOST_BAD_S), late_s=LATE_S)
            for who in ("callers", "drivers")
        }
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.bad_minutes.preload"])
        self.processes = Processes(lambda command: _started(context, command))
        self.hosts = {name: Host(self, name) for name in HOSTS}
        self._store: ObjectStore | None = None
        self.phases: list[Phase] = []
        self.savepoints: list[str] = []
        """Those that callers were told of."""
        self.surprises: list[str] = []
        """Errors that were none of the package's own."""
        self.new = False
        """Whether the job was moved."""
        self.starts = 0

    # --- what callers and judges hold -----------------------------------------------------------

    def settings(self, endpoint: str) -> S3Settings:
        return S3Settings(
            endpoint=endpoint,
            access_key=self.server.access_key,
            secret_key=self.server.secret_key,
            connect_timeout_s=ANSWER_S,
            read_timeout_s=ANSWER_S,
            max_attempts=2,
        )

    def client(self, host: str | None = None) -> JobClient:
        """Return a caller of a host, a random one by default: a new task, or a new try of it."""
        where = self.hosts[host or self.random.choice(HOSTS)]
        if self._store is None:  # a client of it is dear
            self._store = open_store(self.root, self.settings(self.ways["callers"].endpoint))
        return JobClient(
            view=JobView(
                signer=SIGNER,
                board=JobBoard(self._store, JOB),
                repository=SavepointRepository(self._store, JOB),
                deployment=where,
                poll_s=0.25,
                base_env={},
                sightings=where.sightings,
            )
        )

    def direct(self) -> tuple[JobBoard, SavepointRepository]:
        """Return the job's records and savepoints from the server's own folder."""
        store = LocalStore(self.server.data / self.root.removeprefix("s3://"))
        return JobBoard(store, JOB), SavepointRepository(store, JOB)

    def spec(self, *, new: bool | None = None) -> JobSpec:
        rule = KafkaOverride(role="source", servers="old:9092", options={"kafka.bootstrap.servers": "new"})
        return JobSpec(
            name=JOB,
            script="job.py",
            overrides=(rule,) if (self.new if new is None else new) else (),
            checkpoint_root=str(self.folder / "checkpoints"),
            lease_s=LEASE_S,
        )

    def target(self) -> SubmitTarget:
        return SubmitTarget(master="local[1]", python="/usr/bin/python3", log_dir=str(self.folder / "logs"))

    def launch(self, host: str, submission: Submission) -> int:
        argv, count = submission.argv, self.processes.count
        command = driver.DriverCommand(
            root=self.root,
            settings=self.settings(self.ways["drivers"].endpoint),
            job=JOB,
            claim_id=argv[argv.index("--claim") + 1],
            digest=argv[argv.index("--digest") + 1],
            generation=_argument(submission, "--generation"),
            submit=_argument(submission, "--submit"),
            host=host,
            folder=self.folder,
            seed=f"driver {self.seed} {count}",
            startup_s=0.1,
            pause_s=0.04,
        )
        return self.processes.start(command)

    # --- phases -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Start the job, do everything to it in a random order, and stop it."""
        self.phase("start", self.start)
        steps: list[tuple[str, Callable[[JobClient, int], object]]] = [
            ("take", self.take), ("stop", self.stop), ("relaunch", self.relaunch), ("migrate", self.migrate),
        ]  # fmt: skip
        self.random.shuffle(steps)
        for name, step in steps:
            if name == "relaunch":
                self.kill()
            self.phase(name, step)
            if name == "stop":
                self.phase("start", self.start)
        self.phase("stop", self.stop, bad=False)

    def phase(self, name: str, step: Callable[[JobClient, int], T], *, bad: bool = True) -> T:
        """Do something until it succeeds; from a moment on nothing is bad any more."""
        phase, began_s = Phase(name), time.monotonic()
        self.phases.append(phase)
        for way in self.ways.values():
            way.phase = name
        hit = self.random.choice((("callers",), ("drivers",), ("callers", "drivers"))) if bad else ()
        for who in hit:
            self.ways[who].weather.let_loose()
        clears_s = began_s + (self.random.uniform(CLEARS_UP_S / 3, CLEARS_UP_S) if hit else 0)
        clearing = threading.Timer(clears_s - began_s, self.clear_up)
        clearing.start()
        try:
            with self._watched() if bad else contextlib.nullcontext():
                return self._until_done(phase, step, clears_s)
        finally:
            clearing.cancel()
            self.clear_up()
            phase.seconds = time.monotonic() - began_s
            phase.after_s = max(0.0, time.monotonic() - clears_s)

    def clear_up(self) -> None:
        for way in self.ways.values():
            way.weather.clear_up()

    def _until_done(self, phase: Phase, step: Callable[[JobClient, int], T], clears_s: float) -> T:
        last: Exception | None = None
        for attempt in range(10_000):
            try:
                return step(self.client(), attempt)
            except FlinkstyleError as error:
                last = error
                phase.failures[error.code] += 1
                log.info("%s, attempt %d: %s: %s", phase.name, attempt, error.code, error)
            if time.monotonic() > clears_s + STUCK_S:
                raise StuckError(f"{phase.name}: {last.code}: {last}") from last
            time.sleep(0.1)
        raise AssertionError

    @contextlib.contextmanager
    def _watched(self) -> Any:
        """Let a watcher on one of the hosts look after the job meanwhile, in every other phase."""
        if self.random.random() < 0.5:
            yield
            return
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(self.client(), ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join(60)

    def _watch(self, client: JobClient, ended: threading.Event) -> None:
        while not ended.wait(0.5):
            try:
                client.drivers.ensure_running()
            except FlinkstyleError as error:
                log.info("The watcher: %s: %s", error.code, error)
            except Exception as error:
                log.exception("The watcher")
                self.surprises.append(f"a watcher: {error!r}")
                return

    # --- what is done to the job --------------------------------------------------------------------

    def start(self, client: JobClient, attempt: int) -> None:
        """Start the job where it was."""
        if attempt == 0:
            self.starts += 1
        handle = client.starts.start(self.spec(), self.target(), claim_key=f"start-{self.starts}")
        client.drivers.wait_running(handle.generation, timeout_s=12)
        self.await_batch(client)

    def take(self, client: JobClient, attempt: int) -> None:
        """Take a savepoint; a request that failed is asked anew by its key and another name."""
        found = client.requests.begin_savepoint(f"take-{attempt}", timeout_s=12)
        taken = (
            found if isinstance(found, Manifest) else client.requests.finish_savepoint(found, timeout_s=12)
        )
        self.savepoints.append(taken.savepoint_id)

    def stop(self, client: JobClient, attempt: int) -> None:
        """Stop the job with a savepoint."""
        status = client.view.settled_status()
        if isinstance(status, Closed):
            return  # an earlier try of this stop, whose answer was lost
        stopped = client.requests.stop(f"stop-{len(self.phases)}-{attempt}", savepoint=True, timeout_s=12)
        if isinstance(stopped, Stopped) and stopped.savepoint_id is not None:
            self.savepoints.append(stopped.savepoint_id)
        if not isinstance(stopped, Stopped):
            self.savepoints.append(stopped.savepoint_id)
            raise StepNotDoneError(f"SavepointOnly: {stopped.reason}", "The job runs.", "Stop again.")

    def kill(self) -> None:
        """kill -9 the drivers at some moment."""
        time.sleep(self.random.uniform(0, 0.5))
        for pid in self.processes.alive():
            self.processes.kill(pid)

    def relaunch(self, client: JobClient, attempt: int) -> None:
        """Have the job run again, from some host."""
        status = client.drivers.ensure_running(client.view.settled_status(), relaunch_failed=attempt > 5)
        if not isinstance(status, Running):
            client.drivers.wait_running(status.run.generation, timeout_s=12)  # type: ignore[union-attr]
        self.await_batch(client)

    def migrate(self, client: JobClient, attempt: int) -> None:
        """Move the job to the new cluster; a migration that went back is begun anew."""
        if self._has_moved():
            self.new = True  # a migration that failed late says so: it is not to be begun anew
            self.await_batch(client)
            return
        cutover = Cutover(
            client=client,
            journal=CutoverJournal(
                client.view.board.store, JOB, f"m{self.starts}-{self._went_back()}", WINDOW, signer=SIGNER
            ),
            switch=StoreProducerSwitch(client.view.board.store, f"{JOB}/switch.json"),
            kafka=PretendedKafka(),
            spec=self.spec(new=True),
            target=self.target(),
            hot_savepoint_id=None,
            settings=QUICK,
        )
        cutover.run()
        self.new = True

    def _has_moved(self) -> bool:
        current = self.direct()[0].current()
        claim = current.value.recorded.claim if current and current.value.recorded else None
        return claim is not None and bool(claim.overrides)

    def _went_back(self) -> int:
        """Return how many migrations have gone back."""
        board, _ = self.direct()
        prefix = f"{JOB}/migrations/"
        ends = {info.key for info in board.store.list(prefix) if info.key.endswith("-rollback.json")}
        closed = [key for key in ends if b'"result":null' not in board.store.read(key).replace(b" ", b"")]
        return len(closed)

    def await_batch(self, client: JobClient) -> None:
        """Wait until the run that may run has told of a batch."""
        wait = client.view.waiting(12)
        while True:
            status = client.drivers.ensure_running()
            if isinstance(status, Running) and status.heartbeat.batches():
                return
            if not wait.again():
                raise StepNotDoneError("No batch was committed.", "It may come.", "Wait.")


class StepNotDoneError(FlinkstyleError):
    """The lab's own: try again."""

    code = "NOT_DONE"


def _started(context: Any, command: driver.DriverCommand) -> Any:
    process = context.Process(target=driver.main, args=(command,), daemon=True)
    process.start()
    return process
