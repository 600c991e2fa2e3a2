"""``python -m testbed.soak [hot|cycles]``: savepoints under load for as long as it takes, and a verdict.

``hot``: 200 savepoints of a job that runs on, each started by Spark and judged. ``cycles``: a job that
writes through the transactional sink is stopped with a savepoint and started from it 50 times, and moved to
another Kafka cluster or back 10 times, input and output. Exits 0 if everything was right. The seed is
printed; ``--seed`` repeats the moments of a run.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from testbed import cycles, hot
from testbed.drivers import state_reader
from testbed.exactly_once import ExactlyOnceJob
from testbed.kafka import Broker
from testbed.scenario import OrdersScenario

SAVEPOINTS, PER_ROUND = 200, 25
RATE_PER_S = 400.0
CYCLES, MIGRATIONS = 50, 10
CYCLES_RATE_PER_S = 200.0


def main() -> int:
    """Run what was asked for and print what came out."""
    parser = argparse.ArgumentParser(prog="testbed.soak", description=__doc__)
    parser.add_argument("part", nargs="?", choices=("hot", "cycles"), help="by default both")
    parser.add_argument("--savepoints", type=int, default=SAVEPOINTS)
    parser.add_argument("--cycles", type=int, default=CYCLES)
    parser.add_argument("--migrations", type=int, default=MIGRATIONS)
    parser.add_argument("--seed", type=int, help="by default another one every time")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    right = True
    for part, run in (("hot", take_hot), ("cycles", stop_and_move)):
        if options.part in (None, part):
            folder = Path(tempfile.mkdtemp(prefix=f"soak-{part}-"))
            done = run(folder, seed, options)
            if done:
                shutil.rmtree(folder)
            else:
                say(f"everything is kept in {folder}")
            right = right and done
    return 0 if right else 1


def take_hot(folder: Path, seed: int, options: argparse.Namespace) -> bool:
    """Take hot savepoints, round after round; returns whether every query of each was right."""
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
    say(f"{options.savepoints} savepoints: {total}")
    return not total.bad


def stop_and_move(folder: Path, seed: int, options: argparse.Namespace) -> bool:
    """Cycles with migrations in between; returns whether every order was counted and written once."""
    say(f"cycles, seed {seed}, in {folder}")
    began_s = time.monotonic()
    with (
        Broker("old", folder / "old", heap_mb=512) as old,
        Broker("new", folder / "new", heap_mb=512) as new,
        OrdersScenario(folder=folder / "job", old=old, new=new, topic="soak-orders", job="soak") as orders,
        state_reader(folder) as reader,
    ):
        orders.create_topic(deleted={0: 100, 1: 40})
        moves = cycles.Moves(ExactlyOnceJob(orders=orders), moving_sink=True)
        orders.start_producer(rate_per_s=CYCLES_RATE_PER_S)
        moves.start()
        stops, migrations = cycles.Downtimes(), cycles.Downtimes()
        for number, cycle in enumerate(cycles.cycles_of(seed, options.cycles), 1):
            stops.seconds.append(moves.cycle(f"cycle{number}", cycle))
            say(f"cycle {number}: {cycle}, down {stops.seconds[-1]:.1f} s")
            while len(migrations.seconds) * options.cycles < number * options.migrations:
                migrations.seconds.append(moves.migrate(f"move{len(migrations.seconds) + 1}"))
                went = f"to {moves.reads.name}, down {migrations.seconds[-1]:.1f} s"
                say(f"migration {len(migrations.seconds)} {went}")
        state, output = moves.judge(reader)
    minutes = (time.monotonic() - began_s) / 60
    say(f"{len(stops.seconds)} stops with savepoint and starts from it: {stops}")
    restarted = f"mirrors that died and were started again: {moves.mirrors_restarted}"
    say(f"{len(migrations.seconds)} migrations under load: {migrations}; {restarted}")
    say(f"state: {state}")
    say(f"output: {output}; {minutes:.0f} min, seed {seed}")
    return state.right and output.right


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)  # noqa: T201  (its purpose)


if __name__ == "__main__":
    sys.exit(main())
