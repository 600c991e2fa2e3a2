"""Writing a savepoint's state anew, beside Spark's own offline repartition of the same state."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.common import Report, Spread, Table, Target, ratios
from benchmarks.jobs.state_transforming import OURS, SPARK
from benchmarks.state_reader import seconds_of
from testbed import paths

KEYS, QUICK_KEYS = 10_000_000, 2_000
ROUNDS = 2
MOST = 2.5


def run(*, quick: bool) -> Report:
    """Write all keys by both ways, in turn, in one session of Spark."""
    keys = QUICK_KEYS if quick else KEYS
    with tempfile.TemporaryDirectory(prefix="bench-transform-", dir=paths.HOME / "tmp") as folder:
        seconds = seconds_of("state_transforming", Path(folder), keys, rounds=1 if quick else ROUNDS)
    ours, theirs = seconds[OURS], seconds[SPARK]
    rows = (
        ("Spark's repartition, of the checkpoint", Spread.of(theirs).text(" s")),
        ("`transform_state`, of the savepoint", Spread.of(ours).text(" s")),
        ("ours / Spark's", ratios(ours, theirs).text("x")),
    )
    return Report(
        about=f"{keys:,} keys of 16 bytes with values of 100 in RocksDB, four partitions, on a local disk; "
        "one value in 16 is changed. The time of `transform_state` includes restore, the function, the proof "
        "of every key and the new savepoint; Spark compares nothing.",
        tables=(Table(columns=("way", "time"), rows=rows, detail=True),),
        targets=(Target(what=f"{keys:,} keys written anew", limit=MOST, found=ratios(ours, theirs)),),
        raw=dict(seconds),
    )
