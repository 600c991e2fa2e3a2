"""How long a job stands still while a new version replaces it: last commit to first commit."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.errors import UpgradeRolledBackError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.running.start_plan import FromSavepoint
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from benchmarks.common import MIB, PAIRS, Report, Spread, Table, Target, interleave
from benchmarks.running_job import START_TIMEOUT_S, RunningJob, wait_for_batch
from testbed import paths
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.upgrade.context import Standby
    from airflow_flinkstyle.types import Generation

JOB = paths.ROOT / "benchmarks" / "jobs" / "versioned_count.py"
QUERY = "counts"
ROWS, TRIGGER_MS, FILL_ROWS = 2000, 1000, 20_000
KEYS = {"1 MiB": 1_000, "100 MiB": 100_000}
"""State, about: 1 KiB beside each key."""
TIMEOUT_S = 300.0
REHEARSED, WARM, COLD = "standby, rehearsed", "standby", "cold (standby none)"
HOW: Mapping[str, tuple[Standby, Rehearse | None]] = {
    REHEARSED: ("warm", Rehearse(batches=2)),
    WARM: ("warm", None),
    COLD: ("none", None),
}
BROKEN = ("import", "batch", "schema")
SHOWN = ("savepoint", "standby", "stop", "takeover-order", "takeover", "verify")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """One upgrade."""

    downtime_s: float
    """By the times of the files in the two commit logs."""
    phases_s: Mapping[str, float]
    load: float
    """Of the machine over the last minute, by its own word."""


def run(*, quick: bool) -> Report:
    """Let a job of each size be replaced by itself, in three ways in turn; then by broken versions."""
    found: dict[str, dict[str, list[Upgraded]]] = {}
    sizes: dict[str, int] = {}
    gaps: dict[str, tuple[float, float]] = {}
    for size in list(KEYS)[:1] if quick else KEYS:
        with tempfile.TemporaryDirectory(prefix="bench-downtime-") as name, running(Path(name), size) as job:
            sizes[size] = job.savepoint().size_bytes
            turns = Turns(job, size)
            contenders = {how: functools.partial(turns.upgraded, how) for how in HOW}
            found[size] = interleave(contenders, rounds=1 if quick else PAIRS)
            gaps |= {f"{size}, {where}": turns.broken(where) for where in BROKEN}
    return report(found, sizes, gaps)


def running(folder: Path, size: str) -> RunningJob:
    """Return a job whose state has been filled, at its ordinary pace."""
    job = RunningJob(folder, JOB, memory="1g")
    keys = KEYS[size]
    job.start(arguments(size, rows=FILL_ROWS, trigger_ms=0))
    wait_for_batch(job, QUERY, keys // FILL_ROWS + 2, timeout_s=TIMEOUT_S)
    stopped = job.client.stop("filled", savepoint=True, timeout_s=TIMEOUT_S)
    spec, target = job.client.launch_of(current(job))
    handle = job.client.start(
        replace(spec, args=tuple(arguments(size))),
        target,
        claim_key="pace",
        origin=FromSavepoint(savepoint_id=str(stopped.savepoint_id)),
    )
    job.client.wait_running(handle.generation, timeout_s=START_TIMEOUT_S)
    return job


def arguments(size: str, *, rows: int = ROWS, trigger_ms: int = TRIGGER_MS) -> list[str]:
    """Return the job's command line."""
    return ["--rows", str(rows), "--keys", str(KEYS[size]), "--trigger-ms", str(trigger_ms)]


def current(job: RunningJob) -> Generation:
    """Return the generation that runs."""
    slot = job.board.current()
    if slot is None:
        raise RuntimeError("the job has not started")
    return slot.value.generation


class Turns:
    """The upgrades of one job, each with a journal of its own."""

    def __init__(self, job: RunningJob, size: str) -> None:
        self._job, self._size, self._numbers = job, size, itertools.count()

    def upgraded(self, how: str) -> Upgraded:
        """Replace the job by itself once it runs evenly, and read both commit logs."""
        job = self._job
        wait_for_batch(job, QUERY, job.last_batch(QUERY) + 5, timeout_s=TIMEOUT_S)
        old, load = job.checkpoint(QUERY), os.getloadavg()[0]
        done = self._upgrade(how, arguments(self._size)).run()
        before = max(commits(old).items())
        wait_for_batch(job, QUERY, before[0] + 1, timeout_s=TIMEOUT_S)
        after = commits(job.checkpoint(QUERY))[before[0] + 1]
        return Upgraded(downtime_s=after - before[1], phases_s=done.phases_s, load=load)

    def broken(self, where: str) -> tuple[float, float]:
        """Try a broken version; returns the old one's longest pause between commits before and meanwhile."""
        job, generation = self._job, current(self._job)
        wait_for_batch(job, QUERY, job.last_batch(QUERY) + 10, timeout_s=TIMEOUT_S)
        before = Watch(job.checkpoint(QUERY))
        with before:
            wait_for_batch(job, QUERY, job.last_batch(QUERY) + 10, timeout_s=TIMEOUT_S)
        with Watch(job.checkpoint(QUERY)) as meanwhile:
            try:
                self._upgrade(REHEARSED, [*arguments(self._size), "--breaks", where]).run()
            except UpgradeRolledBackError as error:
                if "it was never stopped" not in str(error):
                    raise
            wait_for_batch(job, QUERY, job.last_batch(QUERY) + 1, timeout_s=TIMEOUT_S)
        if current(job) != generation:
            raise RuntimeError(f"generation {generation} was expected to run on, found {current(job)}")
        return before.longest_pause_s(), meanwhile.longest_pause_s()

    def _upgrade(self, how: str, args: list[str]) -> Upgrade:
        job, (standby, rehearse) = self._job, HOW[how]
        spec, target = job.client.launch_of(current(job))
        upgrade_id = f"u{next(self._numbers)}"
        return Upgrade(
            client=job.client,
            journal=CutoverJournal(job.board.store, "bench", upgrade_id, UPGRADE_PHASES, signer=SIGNER),
            spec=replace(spec, args=tuple(args)),
            target=target,
            standby=standby,
            rehearse=rehearse,
            settings=CutoverSettings(standby_timeout_s=TIMEOUT_S, first_commit_timeout_s=TIMEOUT_S),
        )


class Watch:
    """Notes the commits of a checkpoint while they come: Spark deletes old ones."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint, self._seen = checkpoint, dict([max(commits(checkpoint).items())])
        self._ends, self._thread = threading.Event(), threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look once more."""
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(1):
            self._note()
        self._note()

    def _note(self) -> None:
        first = min(self._seen)
        self._seen |= {batch: at_s for batch, at_s in commits(self._checkpoint).items() if batch >= first}

    def longest_pause_s(self) -> float:
        """Return the longest time between two commits; every batch must be there."""
        numbers = sorted(self._seen)
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise RuntimeError(f"batches one after the other were expected, found {numbers}")
        return max(self._seen[after] - self._seen[one] for one, after in itertools.pairwise(numbers))


def commits(checkpoint: Path) -> dict[int, float]:
    """Return batch -> when its commit was written, epoch seconds, of those that are still there."""
    return {
        int(path.name): path.stat().st_mtime
        for path in (checkpoint / "commits").iterdir()
        if path.name.isdigit()
    }


def report(
    found: Mapping[str, Mapping[str, list[Upgraded]]],
    sizes: Mapping[str, int],
    gaps: Mapping[str, tuple[float, float]],
) -> Report:
    """Show the downtime, what it consists of, and the pauses beside broken versions."""
    times = {(s, h): [one.downtime_s for one in of] for s, by in found.items() for h, of in by.items()}
    loads = [one.load for by in found.values() for of in by.values() for one in of]
    downtime = tuple((size, how, Spread.of(of).text(" s")) for (size, how), of in times.items())
    phases = tuple(
        (size, how, *(Spread.of([one.phases_s.get(phase, 0.0) for one in of]).text() for phase in SHOWN))
        for size, by in found.items()
        for how, of in by.items()
    )
    pauses = tuple((name, f"{before:.2f} s", f"{during:.2f} s") for name, (before, during) in gaps.items())
    held = ", ".join(f"{size / MIB:.1f} MiB ({name})" for name, size in sizes.items())
    rounds = len(next(iter(times.values())))
    largest = list(found)[-1]
    return Report(
        about=(
            f"A job that counts {ROWS:,} rows every {TRIGGER_MS / 1000:g} s per key, with 1 KiB beside "
            f"each key (RocksDB with changelog); its savepoint has {held}. It is replaced by itself {rounds} "
            "times in each way, in turn. Downtime: from the last commit of the old version to the first of "
            "the new one, by the files' times. Evenly running, commits are one trigger apart. The machine's "
            f"load before each upgrade was {Spread.of(loads).text(digits=1)}."
        ),
        tables=(
            Table(columns=("state", "how", "downtime"), rows=downtime),
            Table(columns=("state", "how", *(f"{phase}, s" for phase in SHOWN)), rows=phases),
            Table(
                columns=("broken at", "longest pause of 10 batches before", "and while it was tried"),
                rows=pauses,
            ),
        ),
        targets=(
            Target(
                what=f"downtime of a rehearsed upgrade, {largest}",
                limit=3.0,
                found=Spread.of(times[largest, REHEARSED]),
                unit=" s",
            ),
        ),
        raw={
            size: {how: [asdict(one) for one in of] for how, of in by.items()} for size, by in found.items()
        },
    )
