"""Listing a savepoint's state, beside Spark's own reader on the checkpoint that it was taken of."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.common import PAIRS, Report, Spread, Table, Target, ratios
from testbed import paths
from testbed.spark import spark_paths

KEYS, QUICK_KEYS = 1_000_000, 2_000
MOST = 1.5
SPARK, OURS = "spark", "ours"


def run(*, quick: bool) -> Report:
    """List all keys by both ways, in turn, in one session of Spark."""
    keys = QUICK_KEYS if quick else KEYS
    with tempfile.TemporaryDirectory(prefix="bench-state-", dir=paths.HOME / "tmp") as folder:
        seconds = listed(Path(folder), keys, rounds=1 if quick else PAIRS)
    ours, theirs = seconds[OURS], seconds[SPARK]
    rows = (
        ("Spark's reader, on the checkpoint", Spread.of(theirs).text(" s")),
        ("`savepoint_state`, from the savepoint", Spread.of(ours).text(" s")),
        ("ours / Spark's", ratios(ours, theirs).text("x")),
    )
    return Report(
        about=f"{keys:,} keys of an aggregation in RocksDB, four partitions, on a local disk; every value is "
        "read and summed. The time of `savepoint_state` includes its restore to a scratch folder.",
        tables=(Table(columns=("way", "time"), rows=rows, detail=True),),
        targets=(Target(what=f"{keys:,} keys listed", limit=MOST, found=ratios(ours, theirs)),),
        raw=dict(seconds),
    )


def listed(folder: Path, keys: int, *, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way, round by round.

    Raises:
        RuntimeError: If the listing failed.
    """
    python = paths.VENV_SPARK / "bin/python"
    command = [python, "-m", "benchmarks.jobs.state_listing", folder, "--keys", keys, "--rounds", rounds]
    env = {**os.environ, **spark_paths().env, "PYTHONPATH": str(paths.ROOT)}
    done = subprocess.run(  # noqa: S603  (our own program)
        [str(part) for part in command], env=env, cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"The listing ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
