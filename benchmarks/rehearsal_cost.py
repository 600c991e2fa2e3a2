"""What a running job loses of its throughput while its next version comes up and rehearses beside it."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from benchmarks.common import PAIRS, Report, Spread, Table, Target, interleave
from benchmarks.running_job import RunningJob, wait_for_batch
from benchmarks.slowdown import JOB, KEYS, QUERY, ROWS, WARM_BATCHES, arguments, batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_flinkstyle.types import Generation

ALONE_S, TIMEOUT_S = 20.0, 240.0
MOST_PERCENT = 3.0
APART, SHARED = "cores of their own", "shared cores"
ALONE, BESIDE = "alone", "beside a standby that rehearses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some time of the running job, whose batches run back to back."""

    seconds: float
    rows_per_s: float


def run(*, quick: bool) -> Report:
    """Let a job run alone and beside a standby in turn: each on a core of its own, then both on all."""
    cores = sorted(os.sched_getaffinity(0))
    places = {APART: ({cores[0]}, set(cores[1:])), SHARED: (set(cores), set(cores))}
    found = {how: measured(*place, rounds=1 if quick else PAIRS) for how, place in places.items()}
    lost = {how: _lost(of[ALONE], of[BESIDE]) for how, of in found.items()}
    rows = tuple(
        (
            *(how, which, f"{of[which][0].seconds:.0f} s"),
            Spread.of([one.rows_per_s for one in of[which]]).text(digits=0),
        )
        for how, of in found.items()
        for which in (ALONE, BESIDE)
    )
    return Report(
        about=(
            f"One job with {KEYS:,} keys (RocksDB with changelog) and {ROWS:,} rows a batch, back to back, "
            f"on {len(cores)} cores. Beside it the same version comes up as a standby, restores a hot "
            "savepoint and rehearses three batches. "
            f"*{APART}*: the job has one core and the standby the other."
        ),
        tables=(
            Table(
                columns=("cores", "the job runs", "the first window", "rows per second"),
                rows=rows,
                detail=True,
            ),
            Table(
                columns=("cores", "rows per second lost"),
                rows=tuple((how, Spread.of(of).text(" %")) for how, of in lost.items()),
            ),
        ),
        targets=(
            Target(what=f"rows lost, {APART}", limit=MOST_PERCENT, found=Spread.of(lost[APART]), unit=" %"),
        ),
        raw={
            how: {which: [asdict(one) for one in ones] for which, ones in of.items()}
            for how, of in found.items()
        },
    )


def measured(job_cores: set[int], standby_cores: set[int], *, rounds: int) -> dict[str, list[Window]]:
    """Measure one job in turn."""
    with tempfile.TemporaryDirectory(prefix="bench-rehearsal-") as name, RunningJob(Path(name), JOB) as job:
        notes = Path(name) / "notes.jsonl"
        with on_cores(job_cores):
            job.start(arguments(notes, trigger_ms=0))
        wait_for_batch(job, QUERY, 3 * WARM_BATCHES, timeout_s=TIMEOUT_S)

        def beside() -> Window:
            hot = job.savepoint().manifest.savepoint_id
            began_s = time.time()
            with on_cores(standby_cores):
                generation = standby(job, hot)
            window = _window(notes, began_s, time.time())
            job.client.drivers.dismiss(generation)
            job.client.drivers.end_driver(generation)
            return window

        def alone() -> Window:
            time.sleep(5)  # what the one before has left to the disk
            began_s = time.time()
            time.sleep(ALONE_S)
            return _window(notes, began_s, time.time())

        return interleave({ALONE: alone, BESIDE: beside}, rounds=rounds)


def standby(job: RunningJob, hot: str) -> Generation:
    """Start the next driver and wait until it has rehearsed."""
    current = job.board.current()
    if current is None:
        raise RuntimeError("the job has not started")
    spec, target = job.client.view.launch_of(current.value.generation)
    rehearse = Rehearse(batches=3)
    key = f"standby-{time.monotonic_ns()}"
    handle = job.client.starts.standby(
        spec, target, claim_key=key, prepare_savepoint_id=hot, rehearse=rehearse
    )
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        slot = job.board.heartbeat(handle.generation)
        if slot is not None and slot.value.state == "standby":
            return handle.generation
        if time.monotonic() > deadline_s or (slot is not None and slot.value.state == "failed"):
            raise RuntimeError(f"the standby did not get ready: {slot.value if slot else None}")
        time.sleep(0.1)


def _window(notes: Path, began_s: float, ended_s: float) -> Window:
    time.sleep(2)  # the listener tells late
    inside = [batch for batch in batches(notes) if began_s <= batch.started_s < ended_s]
    rows = sum(batch.rows for batch in inside[:-1])
    rows_per_s = rows / (inside[-1].started_s - inside[0].started_s)
    return Window(seconds=ended_s - began_s, rows_per_s=rows_per_s)


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Let what is started meanwhile run on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _lost(alone: Sequence[Window], beside: Sequence[Window]) -> list[float]:
    return [100 * (1 - other.rows_per_s / one.rows_per_s) for one, other in zip(alone, beside, strict=True)]
