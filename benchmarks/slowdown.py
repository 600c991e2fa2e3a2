"""How much incremental savepoints every 10 s slow a job whose source gives half of what it could read."""

from __future__ import annotations

import datetime as dt
import json
import math
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.common import MIB, PAIRS, Report, Spread, Table, Target, interleave
from benchmarks.running_job import RunningJob, wait_for_batch
from testbed import paths

JOB = paths.ROOT / "benchmarks" / "jobs" / "busy_count.py"
QUERY = "counts"
ROWS, KEYS = 20_000, 200_000
WARM_BATCHES, CALIBRATION_BATCHES = 10, 40
SAVEPOINT_EVERY_S, SAVEPOINTS_PER_WINDOW = 10.0, 3
BATCHES_PER_WINDOW = 20
"""At least; windows grow on a machine so slow that they would hold fewer."""
TIMEOUT_S = 240.0
PLAIN, SAVED = "without savepoints", "with savepoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch as Spark reports it."""

    started_s: float
    """Epoch seconds."""
    rows: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some time of the running job."""

    rows_per_s: float
    batch_s: float
    """Mean duration of its batches: a median would hide the few that a savepoint meets."""
    savepoint_s: tuple[float, ...]
    savepoint_bytes: tuple[int, ...]
    """What each savepoint added to the repository."""


def run(*, quick: bool) -> Report:
    """Find the job's capacity, let the source give half of it, then compare windows in turn."""
    with tempfile.TemporaryDirectory(prefix="bench-slowdown-") as name:
        folder = Path(name)
        notes = folder / "notes.jsonl"
        with RunningJob(folder, JOB, memory="2g") as job:
            full_s = capacity(job, notes, quick=quick)
            trigger_ms = round(2000 * full_s)
            notes.unlink()
            job.start(arguments(notes, trigger_ms=trigger_ms))
            wait_for_batch(job, QUERY, job.last_batch(QUERY) + WARM_BATCHES, timeout_s=TIMEOUT_S)
            job.savepoint()  # the first one is full; those that are measured add what is new
            length_s = window_s(trigger_ms, quick=quick)
            found = interleave(
                {
                    PLAIN: lambda: window(job, notes, length_s, savepoints=False),
                    SAVED: lambda: window(job, notes, length_s, savepoints=True),
                },
                rounds=1 if quick else PAIRS,
            )
    return report(full_s, trigger_ms, length_s, found)


def arguments(notes: Path, *, trigger_ms: int) -> list[str]:
    """Return the job's command line."""
    sizes = ["--rows", str(ROWS), "--keys", str(KEYS)]
    return [*sizes, "--trigger-ms", str(trigger_ms), "--notes", str(notes)]


def capacity(job: RunningJob, notes: Path, *, quick: bool) -> float:
    """Run batches back to back and return what one takes in seconds, once warm."""
    job.start(arguments(notes, trigger_ms=0))
    last = WARM_BATCHES + (5 if quick else CALIBRATION_BATCHES)
    wait_for_batch(job, QUERY, last, timeout_s=TIMEOUT_S)
    job.stop()
    return statistics.mean(batch.duration_s for batch in batches(notes)[WARM_BATCHES:])


def window_s(trigger_ms: int, *, quick: bool) -> float:
    """Return how long a window is, in whole pauses between savepoints."""
    savepoints, enough_batches = (1, 4) if quick else (SAVEPOINTS_PER_WINDOW, BATCHES_PER_WINDOW)
    return SAVEPOINT_EVERY_S * max(
        savepoints, math.ceil(enough_batches * trigger_ms / 1000 / SAVEPOINT_EVERY_S)
    )


def window(job: RunningJob, notes: Path, length_s: float, *, savepoints: bool) -> Window:
    """Let the job run for a while, with a savepoint every so often, and sum up its batches."""
    taken, sizes = [], []
    began_s, stored = time.time(), job.stored_bytes()
    for number in range(round(length_s / SAVEPOINT_EVERY_S)):
        if savepoints:
            taken.append(job.savepoint().reported_s)
            sizes.append(job.stored_bytes() - stored)
            stored += sizes[-1]
        time.sleep(max(0.0, began_s + (number + 1) * SAVEPOINT_EVERY_S - time.time()))
    ended_s = began_s + length_s
    time.sleep(2)  # the listener tells late
    inside = [batch for batch in batches(notes) if began_s <= batch.started_s < ended_s]
    return Window(
        # From start to start: the batches at the window's edges would count for all or nothing.
        rows_per_s=sum(batch.rows for batch in inside[:-1]) / (inside[-1].started_s - inside[0].started_s),
        batch_s=statistics.mean(batch.duration_s for batch in inside),
        savepoint_s=tuple(taken),
        savepoint_bytes=tuple(sizes),
    )


def batches(notes: Path) -> list[Batch]:
    """Read what the job noted; the last line may be incomplete."""
    lines = [json.loads(line) for line in notes.read_text().split("\n")[:-1]]
    return [
        Batch(
            started_s=dt.datetime.fromisoformat(line["started"]).timestamp(),
            rows=line["rows"],
            duration_s=line["duration_ms"] / 1000,
        )
        for line in lines
    ]


def report(full_s: float, trigger_ms: int, length_s: float, found: dict[str, list[Window]]) -> Report:
    """Compare the windows with savepoints with those without."""
    rates = {name: [window.rows_per_s for window in windows] for name, windows in found.items()}
    times = {name: [window.batch_s for window in windows] for name, windows in found.items()}
    taken = [seconds for window in found[SAVED] for seconds in window.savepoint_s]
    added = [size / MIB for window in found[SAVED] for size in window.savepoint_bytes]
    rows = tuple(
        (name, Spread.of(rates[name]).text(digits=0), Spread.of(times[name]).text(" s", digits=3))
        for name in found
    )
    return Report(
        about=(
            f"One job with {KEYS:,} keys (RocksDB with changelog) and {ROWS:,} rows a batch. Back to back a "
            f"batch takes {full_s:.3f} s; the source gives one every {trigger_ms / 1000:.3f} s, half of "
            f"that. Windows of {length_s:.0f} s of one run, in turn with a savepoint every "
            f"{SAVEPOINT_EVERY_S:.0f} s and without; a savepoint took {Spread.of(taken).text(' s')} and "
            f"added {Spread.of(added).text(' MiB', digits=1)}."
        ),
        tables=(Table(columns=("window", "rows per second", "mean batch"), rows=rows, detail=True),),
        targets=(
            Target(what="rows per second lost", limit=3.0, found=more(rates[PLAIN], rates[SAVED]), unit=" %"),
            Target(what="mean batch longer", limit=3.0, found=more(times[SAVED], times[PLAIN]), unit=" %"),
        ),
        raw={name: [asdict(window) for window in windows] for name, windows in found.items()},
    )


def more(these: list[float], those: list[float]) -> Spread:
    """Return by how many percent these are more than those, window by window."""
    return Spread.of([100 * (this / that - 1) for this, that in zip(these, those, strict=True)])
