"""How long a job stands still while a new version replaces it: last commit to first commit."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import UPGRADE_ROLLED_BACK, JobError
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from benchmarks.common import PAIRS, Report, Spread, Table, Target, interleave
from benchmarks.moved_job import (
    KEYS,
    QUERY,
    ROWS_PER_S,
    SNAPSHOTS_S,
    TIMEOUT_S,
    TRIGGER_MS,
    MovedJob,
    two_brokers,
)
from benchmarks.pauses import Watch
from benchmarks.running_job import wait_for_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.jobs.upgrade.context import Standby
    from benchmarks.moved_job import CutOver

REHEARSED, COLD = "warm, rehearsed", "cold (standby none)"
HOW: Mapping[str, tuple[Standby, Rehearse | None]] = {
    REHEARSED: ("warm", Rehearse(batches=2)),
    COLD: ("none", None),
}
SIZES = ("1 MiB", "100 MiB")
ROUNDS = 2 * PAIRS
BROKEN = ("import", "batch", "schema")
SHOWN = ("stop", "takeover-order", "takeover", "verify")
MEDIAN_S, WORST_S, OURS_S, COLD_S = 1.8, 6.0, 1.5, 8.0


def run(*, quick: bool) -> Report:
    """Let a job of each size be replaced by itself, in each way in turn; then by broken versions."""
    found: dict[str, dict[str, list[CutOver]]] = {}
    gaps: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-downtime-") as name:
        folder = Path(name)
        with two_brokers(folder / "kafka") as brokers:
            for size in SIZES[:1] if quick else SIZES:
                with MovedJob(folder / size, brokers, f"numbers-{KEYS[size]}", KEYS[size]) as job:
                    contenders = {how: functools.partial(job.upgraded, *HOW[how]) for how in HOW}
                    found[size] = interleave(contenders, rounds=1 if quick else ROUNDS)
                    gaps |= {f"{size}, {where}": broken(job, where) for where in BROKEN}
    return report(found, gaps)


def broken(job: MovedJob, where: str) -> tuple[float, float]:
    """Try a broken version; returns the old one's longest pause between commits before and meanwhile."""
    generation = job.current()
    wait_for_batch(job, QUERY, job.last_batch(QUERY) + 5, timeout_s=TIMEOUT_S)
    with Watch(job.checkpoint(QUERY)) as before:
        wait_for_batch(job, QUERY, job.last_batch(QUERY) + 10, timeout_s=TIMEOUT_S)
    with Watch(job.checkpoint(QUERY)) as meanwhile:
        try:
            job.upgrade(job.arguments("--breaks", where), *HOW[REHEARSED]).run()
        except JobError as error:
            if error.code != UPGRADE_ROLLED_BACK.code or "it was never stopped" not in str(error):
                raise
        wait_for_batch(job, QUERY, job.last_batch(QUERY) + 1, timeout_s=TIMEOUT_S)
    if job.current() != generation:
        raise RuntimeError(f"generation {generation} was expected to run on, found {job.current()}")
    return before.longest_pause_s(), meanwhile.longest_pause_s()


def report(
    found: Mapping[str, Mapping[str, Sequence[CutOver]]], gaps: Mapping[str, tuple[float, float]]
) -> Report:
    """Show the downtime, what it consists of, and the pauses beside broken versions."""
    rows = [(size, how, of) for size, by in found.items() for how, of in by.items()]
    pauses = tuple((name, f"{before:.2f} s", f"{during:.2f} s") for name, (before, during) in gaps.items())
    rounds = len(rows[0][2])
    size, by_how = list(found.items())[-1]
    return Report(
        about=(
            f"A job reads {ROWS_PER_S:,} records a second from Kafka and counts them per key, with 1 KiB "
            f"beside each key (RocksDB with changelog, a snapshot every {SNAPSHOTS_S} s, two partitions, "
            f"a trigger of {TRIGGER_MS} ms, Spark's sink `noop`), and is replaced {rounds} times in each "
            "way. Downtime: from the last commit of the old version to the first of the new one, by the "
            "files' times. *Ours*: from the beginning of the window until Spark is told to start. The "
            "machine's load before each was "
            f"{Spread.of([one.load for _, _, of in rows for one in of]).text(digits=1)}."
        ),
        tables=(shares(rows), batches(rows), phases(rows), _pauses(pauses)),
        targets=(*promises(size, by_how[REHEARSED], median_s=MEDIAN_S), _cold(size, by_how[COLD])),
        raw={
            size: {how: [asdict(one) for one in of] for how, of in by.items()} for size, by in found.items()
        },
    )


def shares(rows: Sequence[tuple[str, str, Sequence[CutOver]]]) -> Table:
    """Return whose the time is."""
    columns = ("state", "how", "downtime", "ours", "Spark's")
    return Table(
        columns=columns,
        rows=tuple(
            (
                *(size, how, Spread.of([one.downtime_s for one in of]).text(" s")),
                Spread.of([one.ours_s for one in of]).text(" s"),
                Spread.of([one.spark_s for one in of]).text(" s"),
            )
            for size, how, of in rows
        ),
    )


def batches(rows: Sequence[tuple[str, str, Sequence[CutOver]]]) -> Table:
    """Return what Spark's first batch consists of, by Spark's own progress."""
    named = sorted({name for _, _, of in rows for one in of for name in one.batch_ms})
    return Table(
        columns=("state", "how", *(f"{name}, ms" for name in named)),
        rows=tuple(
            (
                *(size, how),
                *(
                    Spread.of([one.batch_ms.get(name, 0) for one in of if one.batch_ms] or [0]).text(digits=0)
                    for name in named
                ),
            )
            for size, how, of in rows
        ),
        detail=True,
    )


def phases(rows: Sequence[tuple[str, str, Sequence[CutOver]]], shown: Sequence[str] = SHOWN) -> Table:
    """Return what each phase of ours took."""
    return Table(
        columns=("state", "how", *(f"{phase}, s" for phase in shown)),
        rows=tuple(
            (size, how, *(Spread.of([one.phases_s.get(phase, 0.0) for one in of]).text() for phase in shown))
            for size, how, of in rows
        ),
        detail=True,
    )


def _pauses(rows: tuple[tuple[str, ...], ...]) -> Table:
    columns = ("broken at", "longest pause of 10 batches before", "and while it was tried")
    return Table(columns=columns, rows=rows, detail=True)


def promises(size: str, of: Sequence[CutOver], *, median_s: float) -> tuple[Target, ...]:
    """Return what was promised of a warm cutover, the median of which is to be at most so long."""
    downtime, ours = Spread.of([one.downtime_s for one in of]), Spread.of([one.ours_s for one in of])
    worst = Spread.of([downtime.high])
    return (
        Target(what=f"downtime, rehearsed, {size}, median", limit=median_s, found=downtime, unit=" s"),
        Target(what=f"downtime, rehearsed, {size}, worst", limit=WORST_S, found=worst, unit=" s"),
        Target(what=f"our share of it, {size}", limit=OURS_S, found=ours, unit=" s"),
    )


def _cold(size: str, of: Sequence[CutOver]) -> Target:
    found = Spread.of([one.downtime_s for one in of])
    return Target(what=f"downtime, cold, {size}, median", limit=COLD_S, found=found, unit=" s")
