"""Changing every value of a savepoint's state, beside Spark's own offline repartition of the same state."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.common import MIB, Report, Spread, Table, Target, interleave, ratios
from benchmarks.memory import Peak
from testbed import paths
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Found = Mapping[str, Sequence["Run"]]
    """Way -> its runs."""

MAKE, OURS, SPARK = "make", "ours", "spark"
KEYS, QUICK_KEYS, PARTITIONS, ROUNDS = 10_000_000, 200_000, 8, 2
QUARTER: Final = 4
"""How much smaller the other state is, in as much fewer partitions, by which memory is judged."""
MOST, MOST_MEMORY = 2.5, 1.25
STEPS: Final = {
    "copying": "restore from the savepoint",
    "changing": "read, function, checks of what it returned",
    "counting": "compare with the old state",
    "writing": "write by Spark's writer",
    "comparing": "proof: read back and compare",
    "publishing": "publish the new savepoint",
}
"""The first word of a step's line -> what it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, in processes of its own."""

    seconds: float
    """Without Spark's start."""
    by_step: Mapping[str, float]
    """Of ours, by the first word of the step's line."""
    peak_rss_bytes: int
    """Of the JVM and Python together."""


def run(*, quick: bool) -> Report:
    """Write all keys by both ways in turn; ours also a quarter of them, in a quarter of the partitions."""
    keys, rounds = (QUICK_KEYS, 1) if quick else (KEYS, ROUNDS)
    with _folder() as name:
        whole = Place(folder=Path(name), keys=keys, partitions=PARTITIONS)
        whole.run(MAKE)
        found = interleave({SPARK: lambda: whole.run(SPARK), OURS: lambda: whole.run(OURS)}, rounds=rounds)
    with _folder() as name:
        part = Place(folder=Path(name), keys=keys // QUARTER, partitions=PARTITIONS // QUARTER)
        part.run(MAKE)
        quarter = part.run(OURS)
    return report(keys, found, quarter)


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-transform-", dir=paths.HOME / "tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder with one state, in a checkpoint and a savepoint."""

    folder: Path
    keys: int
    partitions: int

    def run(self, what: str) -> Run:
        """Make the state, or write it anew in one way, and leave nothing but what is made.

        Raises:
            RuntimeError: If that failed.
        """
        sizes = "--keys", str(self.keys), "--partitions", str(self.partitions)
        command = [*_JOB, str(self.folder), what, *sizes]
        log = self.folder / f"{what}.log"
        with (
            log.open("w") as told,
            subprocess.Popen(  # noqa: S603  (our own program)
                command, env=_environment(), cwd=paths.ROOT, stdout=subprocess.PIPE, stderr=told, text=True
            ) as running,
            Peak(running.pid) as peak,
        ):
            output, _ = running.communicate()
        if running.returncode != 0:
            raise RuntimeError(f"{what} ended with {running.returncode}:\n{log.read_text()[-3000:]}")
        for left in ("copy", "local"):
            shutil.rmtree(self.folder / left, ignore_errors=True)
        found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
        seconds = found.pop("all")
        by_step = {what.partition(" ")[0]: took_s for what, took_s in found.items()}
        return Run(seconds=seconds, by_step=by_step, peak_rss_bytes=peak.rss_bytes)


_JOB: Final = (str(paths.VENV_SPARK / "bin/python"), "-m", "benchmarks.jobs.state_transforming")


def _environment() -> dict[str, str]:
    return {**os.environ, **spark_paths().env, "PYTHONPATH": str(paths.ROOT)}


def report(keys: int, found: Found, quarter: Run) -> Report:
    """Show the time of each way and of each of our steps, and what memory they took."""
    seconds = {way: [one.seconds for one in runs] for way, runs in found.items()}
    peak = {way: [one.peak_rss_bytes / MIB for one in runs] for way, runs in found.items()}
    ratio = ratios(seconds[OURS], seconds[SPARK])
    more = Spread.of([mib / (quarter.peak_rss_bytes / MIB) for mib in peak[OURS]])

    def row(what: str, way: str, times: str) -> tuple[str, ...]:
        return what, Spread.of(seconds[way]).text(" s", 1), times, Spread.of(peak[way]).text(" MiB", 0)

    steps = tuple(
        (what, Spread.of([one.by_step.get(word, 0.0) for one in found[OURS]]).text(" s", 1))
        for word, what in STEPS.items()
    )
    return Report(
        about=f"{keys:,} keys of 16 bytes with values of 100, written by a streaming aggregation into "
        f"RocksDB in {PARTITIONS} partitions, on a local disk; Spark with 2 threads and a heap of 2 GiB, "
        "started anew for each run, which is left out. `transform_state` changes every value; its time is "
        "from the savepoint to the new one, with the proof of every key. Spark's offline repartition, to two "
        "more partitions, works in a copy of the checkpoint that is there already, and compares nothing. "
        "Memory is that of JVM and Python together, looked at every 0.2 s; a quarter of the keys in a "
        f"quarter of the partitions took {quarter.peak_rss_bytes / MIB:.0f} MiB and {quarter.seconds:.1f} s.",
        tables=(
            Table(
                columns=("way", "time", "of Spark's", "peak memory"),
                rows=(
                    row("Spark's repartition", SPARK, "1.00x"),
                    row("`transform_state`", OURS, ratio.text("x")),
                ),
            ),
            Table(columns=("of ours", "time"), rows=steps),
        ),
        targets=(
            Target(what=f"{keys:,} keys changed and proved, of Spark's repartition", limit=MOST, found=ratio),
            Target(
                what="memory, of that of a quarter in a quarter of the partitions",
                limit=MOST_MEMORY,
                found=more,
            ),
        ),
        raw={
            **{way: [asdict(one) for one in runs] for way, runs in found.items()},
            "a quarter": asdict(quarter),
        },
    )
