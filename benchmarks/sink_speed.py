"""The transactional sink beside Spark's own Kafka sink: records per second, cost of a tiny batch, memory."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import MIB, PAIRS, Report, Spread, Table, Target, measure, ratios
from testbed import paths
from testbed.drivers import SPARK_PYTHON, spark_env
from testbed.kafka import Broker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHARDS = (2, 8)
TINY_MS, WORKER_MIB = 100, 150
SLOWEST = {1000: 1.0, 100: 1 / 0.9}
"""Bytes of a record's value -> how much longer than Spark's own sink a batch may take."""
NAMES = {"native": "Spark's own", "count": "none: rows are counted"}
PHASES = ("init", "data", "pre-commit", "commit")
SETTINGS = {"log.segment.delete.delay.ms": "1000", "log.initial.task.delay.ms": "600000"}
TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the streams of one comparison write; ``jobs/sink_streams.py`` reads it."""

    rows: int
    """Per batch."""
    value_bytes: int
    batches: int
    """Counted per stream."""
    shards: tuple[int, ...]

    @property
    def name(self) -> str:
        """As tables call it."""
        return f"{self.rows:,} x {self.value_bytes:,} B"


TINY = Case(rows=2, value_bytes=100, batches=20, shards=(2,))


def cases(*, quick: bool) -> tuple[Case, ...]:
    """Return the comparisons; the last one's records are the largest."""
    if quick:
        return (TINY, Case(rows=2_000, value_bytes=1000, batches=2, shards=SHARDS))
    sizes = ((50_000, 100, 4), (150_000, 100, 2), (50_000, 1000, 2), (150_000, 1000, 1))
    return (TINY, *(Case(rows=rows, value_bytes=size, batches=n, shards=SHARDS) for rows, size, n in sizes))


def run(*, quick: bool) -> Report:
    """Start a broker and let one Spark run all streams."""
    compared = cases(quick=quick)
    with tempfile.TemporaryDirectory(prefix="bench-sink-") as name:
        folder = Path(name)
        task, answer = folder / "task.json", folder / "answer.json"
        with Broker("bench", folder / "broker", heap_mb=1024, settings=SETTINGS) as broker:
            wanted = {"rounds": 1 if quick else PAIRS, "cases": [asdict(case) for case in compared]}
            task.write_text(json.dumps({**wanted, "servers": broker.bootstrap}))
            measure(
                [SPARK_PYTHON, "-m", "benchmarks.jobs.sink_streams", task, answer],
                env={**os.environ, **spark_env(), "PYTHONPATH": str(paths.ROOT)},
                cwd=paths.ROOT,
                timeout_s=TIMEOUT_S,
            )
        return report(compared, json.loads(answer.read_text()))


def report(compared: Sequence[Case], found: Mapping[str, Any]) -> Report:
    """Put the tables together."""
    pairs = list(zip(compared, found["cases"], strict=True))
    workers = Spread.of([size / MIB for size in found["workers"]])
    idle = Spread.of([size / MIB for size in found["idle"]])
    return Report(
        about=(
            "Streams of equal batches, each into a topic of 4 partitions, in one Spark with two cores: "
            "through `format(kafka)`, which writes from the source's two tasks, and through the "
            "transactional sink, its repartition by key included. Time is Spark's `addBatch`, without a "
            f"stream's first batch. A Python worker had at most {workers.text(' MiB', 0)}; one that only "
            f"counts the same rows, {idle.text(' MiB', 0)}."
        ),
        tables=(speed_table(pairs), phase_table(pairs)),
        targets=(
            *targets(pairs),
            Target(what="memory of a worker", limit=WORKER_MIB, found=workers, unit=" MiB"),
        ),
        raw=dict(found),
    )


def batch_ms(rounds: Sequence[Sequence[Mapping[str, Any]]]) -> list[float]:
    """Return how long a batch took in each round, on average."""
    return [statistics.mean(batch["add_ms"] for batch in batches) for batches in rounds]


def speed_table(pairs: Sequence[tuple[Case, Mapping[str, Any]]]) -> Table:
    """Compare how long batches take."""
    rows = []
    for case, contenders in pairs:
        native = batch_ms(contenders["native"])
        for name, rounds in contenders.items():
            took = batch_ms(rounds)
            rows.append(
                (
                    case.name,
                    NAMES.get(name) or f"{name} shards",
                    Spread.of(took).text(" ms", 0),
                    "" if name == "native" else ratios(native, took).text("x"),
                )
            )
    columns = ("batch", "sink", "time", "speed against Spark's own")
    return Table(columns=columns, rows=tuple(rows), detail=True)


def phase_table(pairs: Sequence[tuple[Case, Mapping[str, Any]]]) -> Table:
    """Tell where the time of our batches goes."""
    rows = []
    for case, contenders in pairs:
        for name in [name for name in contenders if name not in NAMES]:
            batches = [batch for batches in contenders[name] for batch in batches]
            spent = [
                statistics.median(1000 * batch["phase_s"].get(phase, 0) for batch in batches)
                for phase in PHASES
            ]
            rows.append((case.name, name, *(f"{milliseconds:.0f} ms" for milliseconds in spent)))
    columns = ("batch", "shards", *(f"{phase}, slowest shard" for phase in PHASES))
    return Table(columns=columns, rows=tuple(rows), detail=True)


def targets(pairs: Sequence[tuple[Case, Mapping[str, Any]]]) -> list[Target]:
    """Return the promises on time."""
    found = []
    for case, contenders in pairs:
        native = batch_ms(contenders["native"])
        for name in [name for name in contenders if name not in NAMES]:
            ours = batch_ms(contenders[name])
            if case == TINY:
                more = Spread.of([own - other for own, other in zip(ours, native, strict=True)])
                found.append(Target(what="tiny batch longer", limit=TINY_MS, found=more, unit=" ms"))
            else:
                what = f"time of {case.name}, {name} shards"
                limit = SLOWEST[case.value_bytes]
                found.append(Target(what=what, limit=limit, found=ratios(ours, native)))
    return found
