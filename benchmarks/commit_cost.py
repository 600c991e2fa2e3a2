"""What committing its offsets back costs a batch: windows of one stream, with commits and without in turn."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import Report, Spread, Table, Target
from testbed import paths
from testbed.drivers import SPARK_PYTHON, spark_env
from testbed.kafka import Broker

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTITIONS, WIDE = 8, 100
PAIRS, WINDOW_S = 12, 20.0
RECORDS_PER_S, RECORD_BYTES = 1_000, 100
"""The stream reads 100 records every 100 ms."""
_TIMEOUT_S = 900


def run(*, quick: bool) -> Report:
    """Start a broker and the stream, and compare the windows pair by pair."""
    pairs, window_s = (1, 5.0) if quick else (PAIRS, WINDOW_S)
    with (
        tempfile.TemporaryDirectory(prefix="bench-commit-cost-") as name,
        Broker("bench", Path(name)) as broker,
    ):
        broker.create_topic("stream", partitions=PARTITIONS)
        broker.create_topic("wide", partitions=WIDE)
        fill(broker, round(RECORDS_PER_S * (2 * pairs * (window_s + 10) + 60)))
        found = windows(broker, pairs=pairs, window_s=window_s)
    return report(found, window_s)


def fill(broker: Broker, records: int) -> None:
    """Write more than the stream will read."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": records})
    for number in range(records):
        producer.produce("stream", b"x" * RECORD_BYTES, partition=number % PARTITIONS)
    if producer.flush(120):
        raise RuntimeError("the broker did not take the records in time")


def windows(broker: Broker, *, pairs: int, window_s: float) -> dict[str, Any]:
    """Run the stream in Spark's Python and return what it printed."""
    module = "benchmarks.jobs.commit_windows"
    command = [str(SPARK_PYTHON), "-m", module, broker.bootstrap, "stream", "wide", str(pairs), str(window_s)]
    done = subprocess.run(  # noqa: S603  (our own job)
        command, cwd=paths.ROOT, env=spark_env(), capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"The stream ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(found: Mapping[str, Any], window_s: float) -> Report:
    """Compare the windows with commits with those without."""
    off, on = (found["windows"][name] for name in ("off", "on"))
    added = Spread.of(
        [with_it["mean_ms"] - without["mean_ms"] for with_it, without in zip(on, off, strict=True)]
    )
    rows = tuple(
        (
            name,
            Spread.of([window["mean_ms"] for window in of]).text(" ms", digits=1),
            str(sum(window["batches"] for window in of)),
            str(sum(window["commits"] for window in of)),
            str(sum(window["failed"] for window in of)),
        )
        for name, of in (("off", off), ("on", on))
    )
    widths = tuple(
        (width, Spread.of(taken).text(" ms", digits=1)) for width, taken in found["commit_ms"].items()
    )
    return Report(
        about=(
            f"One stream of {RECORDS_PER_S:,} records of {RECORD_BYTES} B per second from {PARTITIONS} "
            f"partitions, ten batches a second, in windows of {window_s:.0f} s, with its offsets committed "
            "back and without, in turn. No commit runs on the query's thread."
        ),
        tables=(
            Table(
                columns=("commits", "mean batch", "batches", "commits succeeded", "failed"),
                rows=rows,
                detail=True,
            ),
            Table(columns=("partitions", "one commit, without the query"), rows=widths, detail=True),
        ),
        targets=(Target(what="mean batch longer", limit=1.0, found=added, unit=" ms"),),
        raw=dict(found),
    )
