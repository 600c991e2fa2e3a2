"""``python -m tests.bad_minutes``: seeded runs while the way to a real S3 server has bad minutes.

The callers, the agent and the store's client are the package's own. Spark and Kafka are pretended: a driver
is a process whose query commits batches in a real checkpoint on disk (``driver``). Each run does take, stop,
relaunch and migrate, in a random order (``lab``); then it is judged (``judge``).

Seeds SEED, SEED + 1, ... run in lanes side by side. Prints the table of faults and phases, and every
seed that went wrong; ``--runs 1 --seed n`` repeats one, though no run is quite like another.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path

from testbed import paths
from tests.bad_minutes.lane import run_lanes
from tests.bad_minutes.report import codes, table, total

_TELL_S = 30.0


def main() -> int:
    """Run the seeds; returns 1 if one went wrong."""
    parser = argparse.ArgumentParser(prog="tests.bad_minutes", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--lanes", type=int, default=4, help="how many run side by side; they mostly wait")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more runs after so many")
    asked = parser.parse_args()
    place = paths.HOME / "faults"
    place.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="runs-", dir=place))
    began_s = told_s = time.monotonic()
    results = []
    seeds = range(asked.seed, asked.seed + asked.runs)
    for result in run_lanes(
        folder, seeds, min(asked.lanes, asked.runs), until_s=began_s + 60 * asked.minutes
    ):
        results.append(result)
        for text in result.wrong:
            say(f"seed {result.seed}: WRONG: {text}")
        if time.monotonic() - told_s > _TELL_S:
            told_s = time.monotonic()
            say(f"{len(results)} runs, {told_s - began_s:.0f} s")
    found, bad = total(results), [result.seed for result in results if result.wrong]
    say(f"\n{table(found)}\n\nCallers were told: {codes(found)}")
    say(
        f"{len(results):,} runs in {time.monotonic() - began_s:,.0f} s, seeds from {asked.seed} "
        f"on: {found.drivers:,} drivers, {found.savepoints:,} savepoints, "
        f"{found.batches:,} batches; wrong={len(bad)} {bad or ''}"
    )
    if bad:
        say(f"Logs: {folder}. Repeat one: make faults RUNS=1 SEED={bad[0]}")
    else:
        shutil.rmtree(folder)
    return 1 if bad else 0


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
