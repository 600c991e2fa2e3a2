"""From the kill of a driver to its job's next commit, by how its end is known and who starts the next one."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.deployments.class_archive import FOLDER
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.status import Dead, Running, Sightings
from benchmarks.common import PAIRS, Report, Spread, Table, Target
from benchmarks.running_job import RunningJob, wait_for_batch
from testbed import paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.protocol.records import IncarnationRecord

JOB = paths.ROOT / "benchmarks" / "jobs" / "busy_count.py"
QUERY = "counts"
ROWS, KEYS, TRIGGER_MS, IDLE_MS = 1_000, 1_000, 200, 10_000
TIMEOUT_S = 240.0
LOOK_S = 0.1
"""How often who looks after the job looks."""
SUPERVISED, SEEN = "its supervisor starts it again", "who looks all the time sees its end"
LOST = "only its silence tells, a lease (lost host)"
SEEN_S, BESIDES_LEASE_S = 8.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One kill."""

    seconds: float
    """From the kill to the next commit."""
    load: float
    """Of the machine over the minute before."""
    steps: Mapping[str, float]
    """Seconds to each of ``STEPS`` from the one before; they add up to ``seconds``."""


STEPS = ("end seen", "JVM begins", "agent begins", "query starts", "first commit")


def run(*, quick: bool) -> Report:
    """Kill a driver again and again, and let one who looks all the time, or a supervisor, start the next."""
    rounds = 1 if quick else PAIRS
    found: dict[str, list[Recovery]] = {}
    lease_s = 0.0
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as name:
        # A job each: who sees no process of a driver starts the next as one that others do not see, either.
        for how in (SUPERVISED, SEEN, LOST):
            folder = Path(name) / how.replace(" ", "-")
            with RunningJob(folder, JOB, supervised=how == SUPERVISED, archives=True) as job:
                begin(job, trigger_ms=IDLE_MS)  # who makes the archive gets what a busy driver leaves
                await_archive(job)
                job.stop()
                begin(job)
                lease_s = job.client.view.claim(job.board.generations()[-1]).lease_s
                watcher = elsewhere(job) if how == LOST else job.client
                found[how] = [recovered(job, watcher, starts=how != SUPERVISED) for _ in range(rounds)]
    return report(found, lease_s)


def begin(job: RunningJob, *, trigger_ms: int = TRIGGER_MS) -> None:
    """Start the job."""
    job.folder.mkdir(parents=True, exist_ok=True)
    sizes = {"rows": ROWS, "keys": KEYS, "trigger-ms": trigger_ms}
    arguments = {**sizes, "notes": job.folder / "notes.jsonl"}
    job.start([word for key, value in arguments.items() for word in (f"--{key}", str(value))])


def await_archive(job: RunningJob) -> None:
    """Wait until the archive of classes is made that the first start has begun."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not list((job.folder / "drivers" / FOLDER).glob("*.jsa")):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"An archive of classes was expected within {TIMEOUT_S:g} s")
        time.sleep(1)


def elsewhere(job: RunningJob) -> JobClient:
    """Return a caller of another host, who sees no process of this one."""
    view = replace(
        job.client.view,
        deployment=DetachedDeployment(namespace="elsewhere", class_archives=True),
        sightings=Sightings(),
        poll_s=LOOK_S,
    )
    return replace(job.client, view=view)


def recovered(job: RunningJob, watcher: JobClient, *, starts: bool = True) -> Recovery:
    """Kill the driver once it has committed a few batches, and wait for the next commit.

    Args:
        job: The job.
        watcher: Who looks at it.
        starts: Whether that one starts the next driver.
    """
    wait_for_batch(job, QUERY, job.last_batch(QUERY) + 5, timeout_s=TIMEOUT_S)
    if not isinstance(status := watcher.view.settled_status(), Running):
        raise TypeError(f"a job that runs was expected, found {status}")
    record = job.board.incarnation(status.run.generation, status.heartbeat.incarnation)
    if record is None:
        raise RuntimeError("the driver has not described itself")
    load, killed_s = os.getloadavg()[0], time.time()
    os.kill(pid_here(record.jvm_pid, job), signal.SIGKILL)
    last = job.last_batch(QUERY)
    while starts and not isinstance(status := watcher.view.status(), Dead):
        time.sleep(LOOK_S)
    if starts:
        watcher.drivers.ensure_running(status)
    wait_for_batch(job, QUERY, last + 1, timeout_s=TIMEOUT_S)
    commit_s = (job.checkpoint(QUERY) / "commits" / str(last + 1)).stat().st_mtime
    moments = (killed_s, *began_s(job, record.started_at_ms), commit_s)
    lasted = (after - before for before, after in pairwise(moments))
    return Recovery(seconds=commit_s - killed_s, load=load, steps=dict(zip(STEPS, lasted, strict=True)))


def began_s(job: RunningJob, after_ms: int) -> tuple[float, float, float, float]:
    """Return when a new driver was asked for, its JVM and its agent began, and its query was started.

    Args:
        job: The job, whose driver is on this machine.
        after_ms: When the agent of the driver before began.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        run = job.board.current()
        heartbeat = job.board.current_heartbeat()
        if run is not None and heartbeat is not None:
            submit = job.board.submit(run.value.generation)
            process = job.board.incarnation(run.value.generation, heartbeat.incarnation)
            query = heartbeat.queries.get(QUERY)
            started_ms = query.started_at_ms if query is not None else None
            if submit and process and process.started_at_ms > after_ms and started_ms is not None:
                jvm_s = process_began_s(process)
                return (
                    submit.value.asked_at_ms / 1000, jvm_s, process.started_at_ms / 1000, started_ms / 1000
                )  # fmt: skip
        time.sleep(LOOK_S)
    raise TimeoutError(f"A heartbeat of the new driver was expected within {TIMEOUT_S:g} s")


def pid_here(pid: int, job: RunningJob) -> int:
    """Return the number of a driver's JVM on this machine, by the one that its own container gives it."""
    notes = str(job.folder / "notes.jsonl").encode()  # the driver's argument, not one of its executors'
    for place in Path("/proc").glob("[0-9]*"):
        try:
            counted = re.search(r"^NSpid:.*\s(\d+)$", (place / "status").read_text(), re.MULTILINE)
            command = (place / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if counted and int(counted[1]) == pid and b"java" in command and notes in command:
            return int(place.name)
    raise ProcessLookupError(f"A driver's JVM with the number {pid} was expected on this machine, found none")


def process_began_s(process: IncarnationRecord) -> float:
    """Return when a driver's JVM began on this machine, which Linux counts from its own start."""
    ticks = int(process.pid_started.partition("@")[0])
    since_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - since_s


def steps(found: Mapping[str, Sequence[Recovery]], how: str) -> Table:
    """Return where the time of the kills went, by how or where each was."""
    return Table(
        columns=(how, *STEPS),
        rows=tuple(
            (one, *(Spread.of([kill.steps[step] for kill in kills]).text(" s") for step in STEPS))
            for one, kills in found.items()
        ),
    )


def report(found: Mapping[str, Sequence[Recovery]], lease_s: float) -> Report:
    """Say how long the job stood still."""
    spreads = {how: Spread.of([one.seconds for one in kills]) for how, kills in found.items()}
    load = Spread.of([one.load for kills in found.values() for one in kills])
    rows = tuple((how, one.text(" s"), f"{one.high:.2f} s") for how, one in spreads.items())
    return Report(
        about=f"A job with {KEYS:,} keys and a batch every {TRIGGER_MS / 1000:g} s on local[2]; `kill -9` of "
        f"its JVM; who looks after it looks every {LOOK_S:g} s; lease {lease_s:g} s. From the kill to the "
        f"next commit, the start of Spark included, from an archive of its classes. The machine's load "
        f"before each was {load.text('', 1)}.",
        tables=(
            Table(columns=("how its end is known", "kill to commit", "worst"), rows=rows),
            steps(found, "step, since the one before"),
        ),
        targets=(
            Target(what="kill -9 to commit, supervised", limit=SEEN_S, found=spreads[SUPERVISED], unit=" s"),
            Target(what="kill -9 to commit, end seen", limit=SEEN_S, found=spreads[SEEN], unit=" s"),
            Target(
                what="kill to commit, lost host", limit=lease_s + BESIDES_LEASE_S, found=spreads[LOST],
                unit=" s",
            ),
        ),
        raw={how: [asdict(one) for one in kills] for how, kills in found.items()},
    )  # fmt: skip
