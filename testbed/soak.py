"""``python -m testbed.soak``: hot savepoints under load, round after round, each started by Spark and judged.

Exits 0 if every query of every savepoint was right. The seed of each round is printed; ``--seed`` repeats it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from testbed import hot
from testbed.kafka import Broker

SAVEPOINTS, PER_ROUND = 200, 25
RATE_PER_S = 400.0


def main() -> int:
    """Run all rounds and print what came out."""
    parser = argparse.ArgumentParser(prog="testbed.soak", description=__doc__)
    parser.add_argument("--savepoints", type=int, default=SAVEPOINTS)
    parser.add_argument("--seed", type=int, help="of the first round; by default another one every time")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    total = hot.Tally()
    with Broker("soak", folder / "kafka") as broker, hot.starter(folder) as starter:
        for number, done in enumerate(range(0, options.savepoints, PER_ROUND)):
            count = min(PER_ROUND, options.savepoints - done)
            began_s = time.monotonic()
            job = hot.HotJob(folder / f"round-{number}", broker, f"soak-{number}")
            with job.orders:
                tally = hot.soak(job, starter, seed=seed + number, savepoints=count, rate_per_s=RATE_PER_S)
            total.merge(tally)
            seconds = time.monotonic() - began_s
            say(f"round {number}, seed {seed + number}: {count} savepoints, {tally}, {seconds:.0f} s")
    for line in total.bad:
        say(line)
    right = not total.bad
    if right:
        shutil.rmtree(folder)
    say(f"{options.savepoints} savepoints: {total}" + ("" if right else f"; the copies are in {folder}"))
    return 0 if right else 1


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)  # noqa: T201  (its purpose)


if __name__ == "__main__":
    sys.exit(main())
