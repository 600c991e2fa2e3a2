"""A job of ten thousand partitions, end to end: started, saved, rehearsed elsewhere, migrated, shown."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.status import Sightings
from airflow_flinkstyle.plugin.views.job_reader import JobReader
from airflow_flinkstyle.savepoint.manifest_json import to_json
from benchmarks.common import Report, Spread, Table
from benchmarks.moved_job import QUERY, TIMEOUT_S, MovedJob, commits, create_topic, two_brokers
from benchmarks.ten_thousand import PARTITIONS, QUICK_PARTITIONS, SMALL_LOGS
from testbed import paths
from testbed.mirror import Mirror, MirrorSettings
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.protocol.board import JobBoard
    from benchmarks.moved_job import CutOver
    from testbed.kafka import Broker

TOPIC, KEYS, ROWS_PER_S = "numbers", 50, 2
"""So few records a second: each is in another partition, whose consumer in Spark takes half a second."""
ROUNDS = 3
"""Of what can be done again: a savepoint, a look of the page."""
PHASES = ("standby", "hold", "caught-up", "ends", "stop", "translate", "rewrite", "takeover", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one job took."""

    start_s: float
    """From its claim to its first commit."""
    savepoint_s: list[float]
    manifest_kib: float
    heartbeat_kib: float
    row_s: list[float]
    detail_s: list[float]
    detail_kib: float
    moved: CutOver


def run(*, quick: bool) -> Report:
    """Start one such job, look at it, and move it to another cluster."""
    count = QUICK_PARTITIONS if quick else PARTITIONS
    with tempfile.TemporaryDirectory(prefix="bench-wide-", dir=paths.HOME / "tmp") as name:
        folder = Path(name)
        with two_brokers(folder / "kafka", heap_mb=1024, settings=SMALL_LOGS) as brokers:
            create_topic(brokers[1], TOPIC, count)
            with MovedJob(
                folder / "job", brokers, TOPIC, KEYS, partitions=count, rows_per_s=ROWS_PER_S
            ) as job:
                found = looked_at(job, brokers)
    return report(count, found)


def looked_at(job: MovedJob, brokers: tuple[Broker, Broker]) -> Found:
    """Measure a job that runs, and let it end on the other cluster."""
    first_s = commits(job.checkpoint(QUERY))[0]
    start_s = first_s - job.client.view.claim(job.current()).claimed_at_ms / 1000
    taken = [job.savepoint() for _ in range(ROUNDS)]
    heartbeat = job.board.current_heartbeat()
    if heartbeat is None:
        raise RuntimeError("the driver has written no heartbeat")
    row_s, detail_s, detail = shown(job.board)
    old, new = (broker.bootstrap for broker in brokers)
    settings = MirrorSettings(source_bootstrap=old, target_bootstrap=new, topics=TOPIC, fewest_bytes=1)
    with Mirror(job.folder / "mirror", settings, heap_mb=1024):
        there = records(brokers[0])
        wait_until("the mirror has copied it", lambda: records(brokers[1]) >= there, timeout_s=TIMEOUT_S)
        moved = job.migrated()
    return Found(
        start_s=start_s,
        savepoint_s=[one.reported_s for one in taken],
        manifest_kib=len(to_json(taken[-1].manifest)) / 1024,
        heartbeat_kib=len(heartbeat.to_bytes()) / 1024,
        row_s=row_s,
        detail_s=detail_s,
        detail_kib=len(detail) / 1024,
        moved=moved,
    )


def records(broker: Broker) -> int:
    """Return how many a cluster has."""
    return sum(end for _, end in broker.log_range(TOPIC).values())


def shown(board: JobBoard) -> tuple[list[float], list[float], str]:
    """Return the seconds of the page's row and of its view of the job, each as if it had seen nothing yet."""
    rows: list[float] = []
    details: list[float] = []
    detail = ""
    for _ in range(ROUNDS):
        with timed(rows):
            JobReader(board.store, "bench", Sightings()).row(time.monotonic())
        with timed(details):
            detail = json.dumps(JobReader(board.store, "bench", Sightings()).detail())
    return rows, details, detail


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Note how long it takes."""
    began_s = time.perf_counter()
    yield
    into.append(time.perf_counter() - began_s)


def report(count: int, found: Found) -> Report:
    """Say what each took."""
    moved = found.moved
    rows = (
        ("start, until the first commit", f"{found.start_s:.1f} s"),
        ("hot savepoint", Spread.of(found.savepoint_s).text(" s")),
        ("its manifest", f"{found.manifest_kib:,.0f} KiB"),
        ("a heartbeat", f"{found.heartbeat_kib:,.0f} KiB"),
        ("the page's row of the job, at its first look", Spread.of(found.row_s).text(" s")),
        ("the page's view of the job, at its first look", Spread.of(found.detail_s).text(" s")),
        ("what that sends", f"{found.detail_kib:,.0f} KiB"),
        ("downtime of the migration", f"{moved.downtime_s:.1f} s"),
        ("ours of it", f"{moved.ours_s:.1f} s"),
        *((f"phase `{phase}`", f"{moved.phases_s.get(phase, 0.0):.1f} s") for phase in PHASES),
    )
    return Report(
        about=f"A job on local[2] counts {ROWS_PER_S} records a second of a topic of {count:,} partitions on "
        f"one broker and moves, rehearsed, to another; MirrorMaker 2, both brokers and the driver "
        f"share the machine. Load before the migration: {moved.load:.1f}.",
        tables=(Table(columns=(f"a job of {count:,} partitions", "took"), rows=rows),),
        raw=asdict(found),
    )
