"""What it takes to compare two versions of a job on a million records, and what the job loses meanwhile."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from airflow_flinkstyle.jobs.comparison import CompareAsked, Version, compare_versions
from airflow_flinkstyle.jobs.drills import begin_drill, finish_drill
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from benchmarks.common import Report, Spread, Table, Target, interleave, ratios
from benchmarks.feed import Feed
from benchmarks.moved_job import commits
from benchmarks.rehearsal_cost import on_cores
from benchmarks.running_job import RunningJob, wait_for_batch
from testbed import paths
from testbed.kafka import Broker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal

JOB = paths.ROOT / "benchmarks" / "jobs" / "compared_orders.py"
QUERIES, PARTITIONS = ("lines", "totals"), 2
TIMEOUT_S = 1200.0
MOST_PERCENT, MOST_TIMES = 3.0, 2.0
ALONE, BESIDE = "alone", "beside a comparison"
COMPARED = "the comparison, a core for each driver"
BATCHES, BATCHES_ON_ALL = "its batches alone, on one core", "its batches alone, on all cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    records: int
    """Of a compared batch, of each query."""
    batches: int
    running: int
    """Records of a batch of the running job."""
    backlog: int
    """Records in the topic; the running job must not come to their end."""
    keys: int
    warm: int
    """Batches that the running job has run before it is measured."""
    alone_s: float
    rounds: int

    @property
    def compared(self) -> int:
        """Records that each query of each version reads."""
        return self.records * self.batches


FULL = Sizes(
    records=250_000,
    batches=4,
    running=2_000,
    backlog=16_000_000,
    keys=100_000,
    warm=30,
    alone_s=30.0,
    rounds=3,
)
QUICK = Sizes(
    records=5_000, batches=2, running=500, backlog=500_000, keys=1_000, warm=3, alone_s=3.0, rounds=1
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """One comparison, or its batches alone."""

    seconds: float
    """From the start of the first driver to the end of the last."""
    comparing_s: float = 0.0
    """Of it the comparing itself, which follows the batches."""
    rows_per_s: Mapping[str, float]
    """Version -> records of all queries by the time that Spark was at their batches."""


class ComparedJob(RunningJob):
    """A job that reads a backlog back to back."""

    def __init__(self, folder: Path, broker: Broker, sizes: Sizes) -> None:
        super().__init__(folder, JOB, memory="1g")
        self._broker, self.sizes, self._numbers = broker, sizes, 0

    def __enter__(self) -> Self:
        """Fill the topic."""
        self._broker.create_topic("orders", partitions=PARTITIONS)
        Feed({"release_old": self._broker}, "orders").fill(self.sizes.backlog)
        return self

    def arguments(self) -> list[str]:
        """Return the job's command line."""
        given = {"keys": self.sizes.keys, "rows": self.sizes.running}
        said = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        return ["--servers", self._broker.bootstrap, "--topic", "orders", *said]

    def versions(self) -> tuple[Version, Version]:
        """Return the version that runs, and one that computes the same otherwise."""
        current = self.board.current()
        if current is None:
            raise RuntimeError("the job has not started")
        spec, target = self.client.view.launch_of(current.value.generation)
        new = replace(spec, args=(*spec.args, "--refactored"))
        return Version(spec=spec, target=target), Version(spec=new, target=target)

    def compare(self, savepoint_id: str) -> Comparing:
        """Compare both; they are the same, or nothing was measured."""
        old, new = self.versions()
        asked = CompareAsked(batches=self.sizes.batches, records=self.sizes.records, timeout_s=TIMEOUT_S)
        began_s = time.monotonic()
        found = compare_versions(
            self.client, old, new, key=self._key(), savepoint_id=savepoint_id, asked=asked
        )
        seconds = time.monotonic() - began_s
        read = {name: one.input_rows for name, one in found.queries.items()}
        if found.verdict != "same" or read != dict.fromkeys(QUERIES, self.sizes.compared):
            raise RuntimeError(f"the same was expected of all records, found {found.as_markdown()}")
        sides = {"old": self.board.rehearsal(found.old), "new": self.board.rehearsal(found.new)}
        return Comparing(
            seconds=seconds,
            comparing_s=found.seconds,
            rows_per_s={side: _rows_per_s(ran) for side, ran in sides.items()},
        )

    def run_batches(self, savepoint_id: str) -> Comparing:
        """Let one driver of the old version run as many batches, and compare nothing."""
        old, _ = self.versions()
        rehearse = Rehearse(batches=self.sizes.batches, records=self.sizes.records, timeout_s=TIMEOUT_S)
        began_s = time.monotonic()
        generation = begin_drill(
            self.client, old.spec, old.target, key=self._key(), savepoint_id=savepoint_id, rehearse=rehearse
        )
        ran = finish_drill(self.client, generation, timeout_s=TIMEOUT_S).rehearsal
        seconds = time.monotonic() - began_s
        return Comparing(seconds=seconds, rows_per_s={"old": _rows_per_s(ran)})

    def _key(self) -> str:
        self._numbers += 1
        return f"bench-{self._numbers}"

    def newest(self) -> dict[str, tuple[int, float]]:
        """Return the newest batch of each query, and when it was committed."""
        return {query: max(commits(self.checkpoint(query)).items()) for query in QUERIES}


def _rows_per_s(ran: Rehearsal | None) -> float:
    if ran is None:
        raise RuntimeError("a driver has said nothing of its batches")
    seconds = sum(sum(one.seconds) for one in ran.queries.values())
    return sum(one.input_rows for one in ran.queries.values()) / seconds


def run(*, quick: bool) -> Report:
    """Measure the running job alone and beside a comparison, then, once it has stopped, the comparison."""
    sizes = QUICK if quick else FULL
    cores = sorted(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(prefix="bench-compare-") as name,
        Broker("orders", Path(name) / "kafka") as broker,
        ComparedJob(Path(name), broker, sizes) as job,
    ):
        rates = beside(job, {cores[0]}, set(cores[1:]) or set(cores))
        last = job.savepoint().manifest.savepoint_id
        job.stop()

        def on_one() -> Comparing:
            with on_cores({cores[0]}):
                return job.run_batches(last)

        times = interleave(
            {
                BATCHES: on_one,
                BATCHES_ON_ALL: lambda: job.run_batches(last),
                COMPARED: lambda: job.compare(last),
            },
            rounds=sizes.rounds,
        )
    return report(sizes, len(cores), rates, times)


def beside(job: ComparedJob, of_job: set[int], of_comparison: set[int]) -> dict[str, list[float]]:
    """Return the running job's records per second, alone and beside a comparison in turn."""
    with on_cores(of_job):
        job.start(job.arguments())
    for query in QUERIES:
        wait_for_batch(job, query, job.sizes.warm, timeout_s=TIMEOUT_S)

    def alone() -> float:
        time.sleep(5 if job.sizes.rounds > 1 else 0)  # what the one before has left to the disk
        before = job.newest()
        time.sleep(job.sizes.alone_s)
        return rate(before)

    def compared() -> float:
        savepoint_id = job.savepoint().manifest.savepoint_id
        before = job.newest()
        with on_cores(of_comparison):
            job.compare(savepoint_id)
        return rate(before)

    def rate(before: Mapping[str, tuple[int, float]]) -> float:
        after = job.newest()
        if max(batch for batch, _ in after.values()) * job.sizes.running > job.sizes.backlog * 0.9:
            raise RuntimeError("the job has come to the end of its topic: give it more records")
        return sum(
            (after[query][0] - first) * job.sizes.running / (after[query][1] - at_s)
            for query, (first, at_s) in before.items()
        )

    return interleave({ALONE: alone, BESIDE: compared}, rounds=job.sizes.rounds)


def report(
    sizes: Sizes,
    cores: int,
    rates: Mapping[str, Sequence[float]],
    times: Mapping[str, Sequence[Comparing]],
) -> Report:
    """Show what each side read, what all took, and what the job lost."""
    lost = [100 * (1 - other / one) for one, other in zip(rates[ALONE], rates[BESIDE], strict=True)]
    seconds = {what: [one.seconds for one in of] for what, of in times.items()}
    times_as_long = ratios(seconds[COMPARED], seconds[BATCHES])
    speeds: list[tuple[str, list[float]]] = [
        ("old version alone, on one core", [one.rows_per_s["old"] for one in times[BATCHES]]),
        ("old version, compared", [one.rows_per_s["old"] for one in times[COMPARED]]),
        ("new version, compared", [one.rows_per_s["new"] for one in times[COMPARED]]),
    ]
    comparing = Spread.of([one.comparing_s for one in times[COMPARED]]).text(" s", digits=1)
    return Report(
        about=(
            f"A job with two queries on Kafka, lines (append) and totals of {sizes.keys:,} keys (update, "
            f"RocksDB), and a refactoring of it read {sizes.compared:,} records with each query, from one "
            f"savepoint; verdict `same`. Of its time {comparing} are the comparing itself. *Alone*: one "
            "driver runs the same batches and compares nothing. Each with its drivers' start, on a machine "
            f"of {cores} cores, while the job does not run. *Lost*: of the running job, which has one core, "
            "while both drivers of the comparison share the others."
        ),
        tables=(
            Table(
                columns=("records per second", ""),
                rows=tuple((what, Spread.of(of).text(digits=0)) for what, of in speeds),
            ),
            Table(
                columns=("time", ""),
                rows=tuple((what, Spread.of(of).text(" s", digits=1)) for what, of in seconds.items()),
            ),
            Table(
                columns=("the job runs", "records per second"),
                rows=tuple((what, Spread.of(of).text(digits=0)) for what, of in rates.items()),
                detail=True,
            ),
        ),
        targets=(
            Target(
                what="records lost, cores of their own", limit=MOST_PERCENT, found=Spread.of(lost), unit=" %"
            ),
            Target(what="time of the batches alone", limit=MOST_TIMES, found=times_as_long),
        ),
        raw=_raw(rates, times),
    )


def _raw(rates: Mapping[str, Sequence[float]], times: Mapping[str, Sequence[Comparing]]) -> dict[str, Any]:
    return {"rates": dict(rates), "times": {what: [asdict(one) for one in of] for what, of in times.items()}}
