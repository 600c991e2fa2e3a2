"""From a crash to the next output, beside Flink, whose task manager or job manager is killed."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import PAIRS, Report, Spread, Table, Target, interleave, ratios
from benchmarks.downtime_beside_flink import BUILD_TIMEOUT_S, FlinkJob, Printed
from benchmarks.flink import FlinkCluster
from benchmarks.moved_job import KEYS, ROWS_PER_S, MovedJob, two_brokers
from benchmarks.recovery import SUPERVISED, await_archive, recovered

if TYPE_CHECKING:
    from benchmarks.recovery import Recovery

SIZE, QUICK_SIZE = "100 MiB", "1 MiB"
TASKS, JOBS = "Flink 2.3, its task manager", "Flink 2.3, its job manager"
MOST = 1.0
_CHECKPOINTS = {
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    # By default a process that is gone is noticed after ten seconds and more.
    "heartbeat.interval": "1 s",
    "heartbeat.timeout": "5 s",
}
_CALM_S = 15.0
"""Between two crashes."""


def run(*, quick: bool) -> Report:
    """Kill a driver of Spark's, a task manager and a job manager, in turn."""
    size = QUICK_SIZE if quick else SIZE
    ours: list[Recovery] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-recovery-beside-") as name,
        FlinkCluster(Path(name) / "flink", settings=_CHECKPOINTS) as cluster,
        two_brokers(Path(name) / "kafka") as brokers,
    ):
        flink, folder = FlinkJob(cluster, Path(name) / "none", KEYS[size]), Path(name) / "spark"
        with MovedJob(folder, brokers, "numbers", KEYS[size], supervised=True, archives=True) as job:
            await_archive(job)

            def supervised() -> float:
                ours.append(recovered(job, job.client, starts=False))
                return ours[-1].seconds

            contenders = {
                TASKS: lambda: tasks_recovered(flink),
                JOBS: lambda: jobs_recovered(flink),
                SUPERVISED: supervised,
            }
            found = interleave(contenders, rounds=1 if quick else PAIRS)
    mine = found[SUPERVISED]
    rows = tuple((how, Spread.of(of).text(" s"), ratios(mine, of).text("x")) for how, of in found.items())
    return Report(
        about=f"A count of {KEYS[size]:,} keys with 1 KiB beside each, {ROWS_PER_S:,} rows a second: Flink "
        "(RocksDB, an incremental checkpoint each second, heartbeats each second, given up after 5 s) and "
        "Spark, side by side. What is killed is started again at once. Flink: to the first row after; of a "
        "job manager, which keeps no jobs without a quorum beside it, once the job was submitted from its "
        "newest checkpoint, the client's JVM included. Spark: to the next commit.",
        tables=(Table(columns=("what is killed", "to the next output", "ours of it"), rows=rows),),
        targets=tuple(
            Target(what=f"ours of {how}", limit=MOST, found=ratios(mine, found[how])) for how in (TASKS, JOBS)
        ),
        raw={"seconds": found, "ours": [asdict(one) for one in ours]},
    )


def tasks_recovered(flink: FlinkJob) -> float:
    """Kill the task manager; returns the seconds to the first row of the next."""
    time.sleep(_CALM_S)
    with Printed(flink.cluster.printed) as printed:
        printed.wait_more(60)
        killed_s = time.monotonic()
        flink.cluster.crash_worker()
        time.sleep(0.05)  # what it had printed is counted
        return printed.wait_more(BUILD_TIMEOUT_S) - killed_s


def jobs_recovered(flink: FlinkJob) -> float:
    """Kill the job manager; returns the seconds to the first row of the job that goes on."""
    time.sleep(_CALM_S)
    with Printed(flink.cluster.printed) as printed:
        printed.wait_more(60)
        killed_s = time.monotonic()
        flink.cluster.crash_manager()
        flink.start_from(flink.cluster.newest_checkpoint(flink.job))
        while not flink.cluster.runs(flink.job):
            if time.monotonic() - killed_s > BUILD_TIMEOUT_S:
                raise TimeoutError(f"Flink's job was expected to run again within {BUILD_TIMEOUT_S:g} s")
            time.sleep(0.02)
        return printed.wait_more(BUILD_TIMEOUT_S) - killed_s
