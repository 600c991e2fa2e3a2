"""A rehearsed upgrade beside Flink's ``stop --savepointPath`` and ``run -s``: the same keys and payload."""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import PAIRS, Report, Spread, Table, Target, interleave, ratios
from benchmarks.downtime import HOW, REHEARSED, batches, phases, shares
from benchmarks.flink import FlinkCluster
from benchmarks.moved_job import KEYS, ROWS_PER_S, CutOver, MovedJob, two_brokers
from testbed.looking import Looking

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE, QUICK_SIZE = "600 MiB", "1 MiB"
FLINK = "Flink 2.3, stop and run -s"
MOST = 0.25
DIGESTS = 8
"""Of 128 characters each beside a key, as in the Spark job."""
BUILD_TIMEOUT_S = 300.0
_ROW = re.compile(rb"[+-][IU]\[")
_LOOK_S = 0.01


class Printed(Looking):
    """Notes when the rows come that Flink's sink prints; ends with the context."""

    def __init__(self, log: Path) -> None:
        super().__init__(_LOOK_S)
        self._log, self._at = log, log.stat().st_size
        self.newest_s, self.count = 0.0, 0

    def look(self) -> None:
        """Count the rows that came."""
        with self._log.open("rb") as log:
            log.seek(self._at)
            text = log.read()
        self._at += len(text)
        rows = len(_ROW.findall(text))
        if rows:
            self.count, self.newest_s = self.count + rows, time.monotonic()

    def wait_more(self, timeout_s: float) -> float:
        """Wait for a row; returns when it came."""
        before, deadline_s = self.count, time.monotonic() + timeout_s
        while self.count == before:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"Flink was expected to print a row within {timeout_s:g} s")
            time.sleep(_LOOK_S / 2)
        return self.newest_s


class FlinkJob:
    """A job in a Flink cluster that is stopped and started from its savepoint again and again."""

    def __init__(self, cluster: FlinkCluster, folder: Path, keys: int) -> None:
        """Build its state."""
        self.cluster, self._folder, self._statements = cluster, folder, statements(keys)
        self._numbers = itertools.count()
        self.job = cluster.submit(self._statements)
        deadline_s = time.monotonic() + BUILD_TIMEOUT_S
        while cluster.records_read(self.job) < keys:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"Flink was expected to read {keys} keys within {BUILD_TIMEOUT_S:g} s")
            time.sleep(0.5)

    def restarted(self) -> float:
        """Stop it with a savepoint and start it from that; returns the seconds without a row."""
        time.sleep(5)
        with Printed(self.cluster.printed) as printed:
            printed.wait_more(60)
            place = self.cluster.stop(self.job, self._folder / f"savepoint-{next(self._numbers)}")
            last_s = printed.newest_s
            self.start_from(place)
            return printed.wait_more(BUILD_TIMEOUT_S) - last_s

    def start_from(self, place: str) -> None:
        """Submit it again, from a savepoint or a checkpoint."""
        self.job = self.cluster.submit(self._statements, {"execution.state-recovery.path": place})


def statements(keys: int) -> list[str]:
    """Return Flink's job: every key once, then an even pace of random ones."""
    digests = " || ".join(f"SHA512('{n}-' || CAST(k AS STRING))" for n in range(DIGESTS))
    source = "CREATE TABLE {} (k BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{}', {})"
    once = f"'fields.k.kind' = 'sequence', 'fields.k.start' = '0', 'fields.k.end' = '{keys - 1}'"
    on = f"'fields.k.min' = '0', 'fields.k.max' = '{keys - 1}'"
    return [
        source.format("history", 1_000_000, once),
        source.format("pace", ROWS_PER_S, on),
        "CREATE TABLE counts (k BIGINT, n BIGINT, size INT) WITH ('connector' = 'print')",
        "INSERT INTO counts SELECT k, COUNT(*), CHAR_LENGTH(MAX(payload)) FROM "  # noqa: S608
        f"(SELECT k, {digests} AS payload FROM (SELECT k FROM history UNION ALL SELECT k FROM pace)) "
        "GROUP BY k",
    ]


@contextlib.contextmanager
def both(folder: Path, size: str) -> Iterator[tuple[FlinkJob, MovedJob]]:
    """Run both jobs side by side."""
    with FlinkCluster(folder / "flink") as cluster, two_brokers(folder / "kafka") as brokers:
        flink = FlinkJob(cluster, folder / "savepoints", KEYS[size])
        with MovedJob(folder / "spark", brokers, "numbers", KEYS[size]) as job:
            yield flink, job


def run(*, quick: bool) -> Report:
    """Let both be replaced, in turn."""
    size = QUICK_SIZE if quick else SIZE
    with tempfile.TemporaryDirectory(prefix="bench-beside-") as name, both(Path(name), size) as (flink, job):
        ours: list[CutOver] = []

        def upgraded() -> float:
            ours.append(job.upgraded(*HOW[REHEARSED]))
            return ours[-1].downtime_s

        contenders = {FLINK: flink.restarted, REHEARSED: upgraded}
        found = interleave(contenders, rounds=1 if quick else PAIRS)
    rows = [(size, REHEARSED, ours)]
    table = tuple(
        (how, Spread.of(of).text(" s"), ratios(of, found[FLINK]).text("x")) for how, of in found.items()
    )
    return Report(
        about=(
            f"The same count of {KEYS[size]:,} keys with 1 KiB beside each, {ROWS_PER_S:,} rows a second, in "
            "Flink (RocksDB, native savepoint on the local disk, rows printed) and in Spark, side by side. "
            "Flink: from the last row before the stop to the first after the start, "
            "its client's JVM included."
        ),
        tables=(
            Table(columns=("what", "downtime", "against Flink"), rows=table),
            *(replace(ours_alone, detail=True) for ours_alone in (shares(rows), batches(rows), phases(rows))),
        ),
        targets=(
            Target(
                what=f"downtime against Flink's, {size}",
                limit=MOST,
                found=ratios(found[REHEARSED], found[FLINK]),
            ),
        ),
        raw={"seconds": found, "ours": [asdict(one) for one in ours]},
    )
