"""A thousand jobs in one root on S3.

What the page, the watcher and a prune ask, how long they take, and what they need.

The records are those of drivers that seem to run: all of them name this process, and write only their pulses.
One has a year of savepoints, ten a day, the others those of the newest day: a year of all is 3.65 million
objects, which no listing here reads, but which take hours to write.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.hooks.watching import WatchedRoot
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.retention import prune_job
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.plugin.cache.root_watch import RootWatch
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.process import pid_namespace, recorded_start
from airflow_flinkstyle.protocol.pulse import Pulse, write_pulse
from airflow_flinkstyle.protocol.query_records import QueryStatus
from airflow_flinkstyle.protocol.records import (
    AsRecorded,
    Claim,
    Current,
    Heartbeat,
    IncarnationRecord,
    Submit,
    TakeoverOrder,
)
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.manifest_json import to_json
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from benchmarks.common import MIB, Report, Spread, Table, Target
from benchmarks.many_rotated import TASKS, connect, rotated
from benchmarks.store_requests import PRICE_GET, PRICE_PUT
from benchmarks.synthetic import SyntheticCheckpoint
from testbed import paths
from testbed.s3 import VersityGw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.savepoint.manifest import Manifest

ROOT: Final = "s3://jobs/root"
JOBS, QUICK_JOBS = 1000, 50
A_DAY, DAYS, QUICK_DAYS = 10, 365, 3
LEASE_S: Final = 600.0
"""So that records which do not change still say that this process lives."""
BEAT_S: Final = 5.0
CALM_S, QUICK_CALM_S = 60, 10
DEATHS: Final = 5
ONE: Final = (Generation(1), Incarnation(1))
_THREADS: Final = 16


def heartbeat(number: int) -> Heartbeat:
    """Return what a driver that runs writes."""
    query = QueryStatus(query_id="q", batch_id=BatchId(9), batch_committed_at_ms=now_ms(), sources={})
    return Heartbeat(
        incarnation=ONE[1],
        state="running",
        beat=number,
        written_at_ms=now_ms(),
        spark_version="4.2.0",
        application_id="local-1",
        queries={"totals": query},
    )


@dataclass
class Root:
    """A root with many jobs."""

    store: Any
    jobs: list[str]
    silent: set[str] = field(default_factory=set)
    """Those whose drivers write no pulse any more."""

    def client(self, job: str) -> JobClient:
        """As a hook makes it."""
        view = JobView(
            board=JobBoard(self.store, job),
            repository=SavepointRepository(self.store, job),
            deployment=DetachedDeployment(),
        )
        return JobClient(view=view)

    def begin(self, job: str, pid: int) -> None:
        """Write the records of a job that this process, or a child of it, runs."""
        board = JobBoard(self.store, job)
        process = IncarnationRecord(
            host=socket.gethostname(),
            pid=pid,
            jvm_pid=pid,
            pid_started=recorded_start(pid),
            pid_namespace=pid_namespace(),
            started_at_ms=now_ms(),
            submit=1,
        )
        claim = Claim(
            claim_key="bench",
            follows=None,
            checkpoint_location="/nowhere",
            prepare_savepoint_id=None,
            overrides=(),
            lease_s=LEASE_S,
            launch={"spec": {}},
            claimed_at_ms=now_ms(),
        )
        order = TakeoverOrder(savepoint_id=None, closed_at=None, expected={}, parent=BEGINNING)
        name = DetachedDeployment().name
        submit = Submit(key="bench", deployment=name, state="submitted", asked_at_ms=now_ms())
        board.create_claim(ONE[0], claim)
        board.create_takeover_order(ONE[0], order)
        version = board.create_submit(ONE[0], 1, submit)
        board.create_incarnation(*ONE, process)
        recorded = AsRecorded(
            claim=claim, order=order, process=process, submit=submit, submit_version=version
        )
        board.take_current(Current(generation=ONE[0], incarnation=ONE[1], recorded=recorded), seen=None)
        board.beat(ONE[0], heartbeat(1), seen=None)

    def begin_anew(self, job: str, pid: int) -> None:
        """Let another process run a job, as if none had."""
        for info in list(self.store.list(f"{job}/runs/")):
            self.store.delete(info.key)
        self.store.delete(f"{job}/current.json")
        self.begin(job, pid)

    def pulse(self, job: str, number: int) -> None:
        """Write a job's pulse."""
        write_pulse(self.store, job, Pulse(generation=ONE[0], incarnation=ONE[1], beat=number))

    def beat(self, job: str, number: int) -> None:
        """Write a job's heartbeat."""
        board = JobBoard(self.store, job)
        board.beat(ONE[0], heartbeat(number + 2), seen=board.heartbeat_version(ONE[0]))

    def write(self, sign: Callable[[str, int], None], ended: threading.Event) -> None:
        """Write a sign of life of each job again and again, each every 5 s, until the end."""
        begun_s, step = time.monotonic(), BEAT_S / len(self.jobs)
        with ThreadPoolExecutor(4) as pool:
            for number in range(10**9):
                if ended.wait(max(0.0, begun_s + number * step - time.monotonic())):
                    return
                job = self.jobs[number % len(self.jobs)]
                if job not in self.silent:
                    pool.submit(sign, job, number)

    @contextmanager
    def living(self, sign: Callable[[str, int], None]) -> Iterator[None]:
        """Let drivers give signs of life meanwhile."""
        ended = threading.Event()
        thread = threading.Thread(target=self.write, args=(sign, ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def run(*, quick: bool) -> Report:
    """Write the root, then look at it as the page, the watcher and a prune do."""
    number, days = (QUICK_JOBS, QUICK_DAYS) if quick else (JOBS, DAYS)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="bench-jobs-", dir=paths.HOME / "tmp"))
        stack.callback(shutil.rmtree, folder)
        server = stack.enter_context(VersityGw(folder / "s3"))
        server.create_bucket("jobs")
        settings = S3Settings(
            endpoint=server.endpoint,
            region=server.region,
            access_key=server.access_key,
            secret_key=server.secret_key,
        )
        root = Root(open_store(ROOT, settings), [f"job-{one:04}" for one in range(number)])
        found: dict[str, float] = {"jobs": number}
        begun_s = time.monotonic()
        found["objects"] = _write(root, folder, days)
        found["written in"] = time.monotonic() - begun_s
        found |= _page(root)
        with root.living(root.pulse):
            found |= _watch(root, QUICK_CALM_S if quick else CALM_S)
        found |= _prune(root)
        found |= _rotate(root, server)
    return _report(found)


def _write(root: Root, folder: Path, days: int) -> int:
    """Return how many objects of savepoints there are."""
    store = LocalStore(folder / "one")
    SyntheticCheckpoint(folder / "live", 16 * 4096, partitions=2, sst_bytes=[4096])
    source = QuerySource(name="totals", checkpoint=LocalStore(folder / "live"), kafka={})
    label = SavepointLabel(
        savepoint_id="sp", taken_at_ms=now_ms(), spark_version="4.2.0", taken_from_generation=1
    )
    one, repository = take_savepoint(SavepointRepository(store, "one"), [source], label), store
    blobs = [(info.key.removeprefix("one/"), repository.read(info.key)) for info in store.list("one/blobs/")]
    keys: list[tuple[str, bytes]] = []
    for number, job in enumerate(root.jobs):
        keys += [(f"{job}/{key}", data) for key, data in blobs]
        keys += [_savepoint(one, job, age) for age in range(A_DAY * (days if number == 0 else 1))]
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda job: root.begin(job, os.getpid()), root.jobs))
        list(pool.map(lambda entry: root.store.write(*entry), keys))
    return len(keys)


def _savepoint(one: Manifest, job: str, age: int) -> tuple[str, bytes]:
    taken_at_ms = one.taken_at_ms - age * 86_400_000 // A_DAY
    other = replace(one, job=job, savepoint_id=f"sp-{taken_at_ms}", taken_at_ms=taken_at_ms)
    return f"{job}/savepoints/{other.savepoint_id}.json", to_json(other).encode()


def _page(root: Root) -> dict[str, float]:
    before, watch = _resident(), RootWatch(lambda: root.store)
    begun_s, cpu_s = time.monotonic(), time.process_time()
    while len(watch.jobs()["jobs"]) < len(root.jobs):
        time.sleep(0.05)
    cold_s, first = time.monotonic() - begun_s, watch.meter.requests
    cpu_s = time.process_time() - cpu_s
    while watch.jobs()["reading"]:
        time.sleep(0.05)
    whole_s = time.monotonic() - begun_s
    begun_s = time.monotonic()
    answer = json.dumps(watch.jobs())
    listed_s = time.monotonic() - begun_s
    if not all(row["savepoints"] for row in watch.jobs()["jobs"]):
        raise RuntimeError(f"a job without savepoints was listed: {answer[:2000]}")
    return {
        "page cold": cold_s,
        "page cold requests": first,
        "page cold cpu": cpu_s,
        "page whole": whole_s,
        "page whole requests": watch.meter.requests,
        "page list": listed_s,
        "page bytes": len(answer),
        "page memory": _resident() - before,
    }


def _watch(root: Root, calm_s: float) -> dict[str, float]:
    hook: Any = SimpleNamespace(store=root.store, client=root.client)
    before, watched = _resident(), WatchedRoot(dict.fromkeys(root.jobs))
    for _ in range(10):
        _look(watched, hook)
    begun_s, cpu_s, asked = time.monotonic(), time.thread_time(), watched.meter.requests
    false = 0
    while time.monotonic() - begun_s < calm_s:
        false += len(_look(watched, hook))
    calm_s = time.monotonic() - begun_s
    found = {
        "watch requests": (watched.meter.requests - asked) / calm_s,
        "watch cpu": (time.thread_time() - cpu_s) / calm_s,
        "watch false": false,
    }
    noticed = [_noticed(root, watched, hook, job) for job in root.jobs[1 : DEATHS + 1]]
    return {**found, "noticed": max(noticed), "watch memory": _resident() - before}


def _noticed(root: Root, watched: WatchedRoot, hook: Any, job: str) -> float:  # noqa: ANN401
    """Return how long after the kill of a job's driver it is found to need a task."""
    child = subprocess.Popen(["/bin/sleep", "600"])
    root.begin_anew(job, child.pid)
    for _ in range(7):
        _look(watched, hook)
    child.send_signal(signal.SIGKILL)
    child.wait()
    root.silent.add(job)
    begun_s = time.monotonic()
    while job not in _look(watched, hook):
        if time.monotonic() - begun_s > 60:
            raise RuntimeError(f"{job} was not found within 60 s")
    return time.monotonic() - begun_s


def _look(watched: WatchedRoot, hook: Any) -> dict[str, Any]:  # noqa: ANN401
    """Look as the trigger does, every second."""
    begun_s = time.monotonic()
    found = dict(watched.inspect_due(hook, {}))
    if not found:
        time.sleep(max(0.0, begun_s + 1.0 - time.monotonic()))
    return found


class Outside:
    """A store that notes what is asked outside of a job's folder."""

    def __init__(self, store: Any, job: str) -> None:  # noqa: ANN401
        self._store, self._job = store, job
        self.asked, self.outside = 0, set[str]()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def asked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self.asked += 1
            if args and isinstance(args[0], str) and not args[0].startswith(f"{self._job}/"):
                self.outside.add(args[0])
            return found(*args, **kwargs)

        return asked


def _prune(root: Root) -> dict[str, float]:
    """Prune the job that has a year of savepoints to the newest thirty."""
    job = root.jobs[0]
    store: Any = Outside(root.store, job)
    begun_s = time.monotonic()
    report = prune_job(
        JobBoard(store, job),
        SavepointRepository(store, job),
        RetentionPolicy(max_count=30),
        holder="bench",
        dry_run=False,
        wait_s=10,
    )
    return {
        "prune": time.monotonic() - begun_s,
        "prune requests": store.asked,
        "pruned": len(report.plan.disposed),
        "prune outside": len(store.outside),
    }


def _resident() -> float:
    from psutil import Process

    return float(Process().memory_info().rss) / MIB


def _rotate(root: Root, server: VersityGw) -> dict[str, float]:
    """Rotate the savepoints of all jobs."""
    connect(server, ROOT)
    root.silent.clear()
    for job in root.jobs[1 : DEATHS + 1]:  # whose drivers were killed
        root.begin_anew(job, os.getpid())
    newest = max(info.key for info in root.store.list(f"{root.jobs[1]}/savepoints/"))
    begun_s = time.monotonic()
    with root.living(root.beat):
        shares = rotated(root.jobs, root.store.read(newest).decode())
    return {
        "rotation": time.monotonic() - begun_s,
        "rotation requests": sum(one.requests for one in shares),
        "rotation taken": sum(one.taken for one in shares),
        "rotation disposed": sum(one.disposed for one in shares),
    }


def _report(found: dict[str, float]) -> Report:
    a_month = found["watch requests"] * 86_400 * 30
    lists = min(a_month, 86_400 * 30)  # one a second, the rest reads single records
    rows = (
        (
            "the page: what each job does, read for the first time",
            f"{found['page cold']:.1f} s",
            f"{found['page cold requests']:.0f} requests, {found['page cold cpu']:.1f} CPU-seconds",
        ),
        (
            "its savepoints and migrations, too",
            f"{found['page whole']:.1f} s",
            f"{found['page whole requests']:.0f} requests, {found['page memory']:.0f} MiB",
        ),
        (
            "the list, as read last",
            f"{found['page list'] * 1000:.0f} ms",
            f"{found['page bytes'] / 1000:.0f} kB",
        ),
        (
            "`watch_jobs`: from a kill to its notice, at most",
            f"{found['noticed']:.1f} s",
            f"{found['watch requests']:.2f} requests/s, {found['watch cpu'] * 100:.1f} % of a core, "
            f"{found['watch memory']:.0f} MiB",
        ),
        (
            f"a prune of {found['pruned']:.0f} savepoints of one job",
            f"{found['prune']:.1f} s",
            f"{found['prune requests']:.0f} requests, {found['prune outside']:.0f} outside of its folder",
        ),
        (
            f"a rotation of all in {TASKS} tasks, which verify and prune, too; without Airflow's own time",
            f"{found['rotation']:.0f} s",
            f"{found['rotation requests'] / found['jobs']:.0f} requests a job, "
            f"{found['rotation taken']:.0f} taken, {found['rotation disposed']:.0f} disposed of",
        ),
        (
            "`watch_jobs` for a month at S3's prices",
            f"${lists * PRICE_PUT + (a_month - lists) * PRICE_GET:.2f}",
            f"pulses: ${86_400 / BEAT_S * 30 * PRICE_PUT:.2f} for each job",
        ),
    )
    return Report(
        about=f"{found['jobs']:.0f} jobs in one root of an S3 server on this machine, "
        f"{found['objects']:.0f} objects of savepoints (written in {found['written in']:.0f} s).",
        tables=(Table(columns=("what", "takes", "costs"), rows=rows),),
        targets=(
            Target(what="first look", limit=10.0, found=Spread.of([found["page cold"]]), unit=" s"),
            Target(what="list", limit=300.0, found=Spread.of([found["page list"] * 1000]), unit=" ms"),
            Target(what="notice", limit=10.0, found=Spread.of([found["noticed"]]), unit=" s"),
            Target(what="rotation of all", limit=600.0, found=Spread.of([found["rotation"]]), unit=" s"),
            Target(what="requests", limit=2.0, found=Spread.of([found["watch requests"]]), unit="/s"),
        ),
        raw=found,
    )
