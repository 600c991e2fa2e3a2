"""``python -m testbed.soak [hot|cycles|faults|crashes]``: savepoints, moves and kills under load, judged.

``hot``: 200 savepoints of a job that runs on, each started by Spark and judged. ``cycles``: a job that
writes through the transactional sink is stopped with a savepoint and started from it 50 times, and moved to
another Kafka cluster or back 10 times, input and output. ``faults``: the same for an hour while store, driver
and brokers fail at random. ``crashes``: its driver is killed 300 times, and started again by a supervisor
beside it or by a watcher. Exits 0 if everything was right. The seed is printed; ``--seed`` repeats the
moments of a run.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.storage.local import LocalStore
from testbed import crashes, cycles, hot
from testbed.bad_s3 import BadS3, Weather
from testbed.drivers import state_reader
from testbed.exactly_once import ExactlyOnceJob
from testbed.faults import Faults
from testbed.kafka import Broker
from testbed.s3 import VersityGw
from testbed.scenario import BUCKET, OrdersScenario
from testbed.tries import Tries

if TYPE_CHECKING:
    from collections.abc import Callable

SAVEPOINTS, PER_ROUND = 200, 25
RATE_PER_S = 400.0
CYCLES, MIGRATIONS = 50, 10
CYCLES_RATE_PER_S = 200.0
MINUTES = 60.0
CRASHES = 300
LATE_S = 8.0
"""A late answer: the lease is ten seconds."""
STUCK_S = 300.0
"""A step that has not succeeded so long after its first try is stuck; a fault lasts 25 s at most."""
_MOVE_EVERY, _FIRST_MOVE = 4, 2


def main() -> int:
    """Run what was asked for and print what came out."""
    parser = argparse.ArgumentParser(prog="testbed.soak", description=__doc__)
    parser.add_argument(
        "part", nargs="?", choices=("hot", "cycles", "faults", "crashes"), help="by default all"
    )
    parser.add_argument("--savepoints", type=int, default=SAVEPOINTS)
    parser.add_argument("--cycles", type=int, default=CYCLES)
    parser.add_argument("--migrations", type=int, default=MIGRATIONS)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of faults")
    parser.add_argument("--crashes", type=int, default=CRASHES)
    parser.add_argument("--seed", type=int, help="by default another one every time")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    right = True
    runs: dict[str, Callable[[Path, int], bool]] = {
        "hot": partial(take_hot, savepoints=options.savepoints),
        "cycles": partial(stop_and_move, count=options.cycles, migrations=options.migrations),
        "faults": partial(stop_and_move_under_faults, minutes=options.minutes),
        "crashes": partial(crash, count=options.crashes),
    }
    for part, run in runs.items():
        if options.part in (None, part):
            folder = Path(tempfile.mkdtemp(prefix=f"soak-{part}-"))
            done = run(folder, seed)
            if done:
                shutil.rmtree(folder)
            else:
                say(f"everything is kept in {folder}")
            right = right and done
    return 0 if right else 1


def take_hot(folder: Path, seed: int, *, savepoints: int) -> bool:
    """Take hot savepoints, round after round; returns whether every query of each was right."""
    total = hot.Tally()
    with Broker("soak", folder / "kafka") as broker, hot.starter(folder) as starter:
        for number, done in enumerate(range(0, savepoints, PER_ROUND)):
            count = min(PER_ROUND, savepoints - done)
            began_s = time.monotonic()
            job = hot.HotJob(folder / f"round-{number}", broker, f"soak-{number}")
            with job.orders:
                tally = hot.soak(job, starter, seed=seed + number, savepoints=count, rate_per_s=RATE_PER_S)
            total.merge(tally)
            seconds = time.monotonic() - began_s
            say(f"round {number}, seed {seed + number}: {count} savepoints, {tally}, {seconds:.0f} s")
    for line in total.bad:
        say(line)
    say(f"{savepoints} savepoints: {total}")
    return not total.bad


def stop_and_move(folder: Path, seed: int, *, count: int, migrations: int) -> bool:
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
        stops, moved = cycles.Downtimes(), cycles.Downtimes()
        for number, cycle in enumerate(cycles.cycles_of(seed, count), 1):
            stops.seconds.append(moves.cycle(f"cycle{number}", cycle))
            say(f"cycle {number}: {cycle}, down {stops.seconds[-1]:.1f} s")
            while len(moved.seconds) * count < number * migrations:
                moved.seconds.append(moves.migrate(f"move{len(moved.seconds) + 1}"))
                went = f"to {moves.reads.name}, down {moved.seconds[-1]:.1f} s"
                say(f"migration {len(moved.seconds)} {went}")
        state, output = moves.judge(reader)
    minutes = (time.monotonic() - began_s) / 60
    say(f"{len(stops.seconds)} stops with savepoint and starts from it: {stops}")
    restarted = f"mirrors that died and were started again: {moves.mirrors_restarted}"
    say(f"{len(moved.seconds)} migrations under load: {moved}; {restarted}")
    say(f"state: {state}")
    say(f"output: {output}; {minutes:.0f} min, seed {seed}")
    return state.right and output.right


def stop_and_move_under_faults(folder: Path, seed: int, *, minutes: float) -> bool:
    """The same while everything fails at random; returns whether every order was counted and written once.

    It goes on until there was a stop and a migration, however slow the machine is. A run in which nothing
    failed has shown nothing: it is not right.
    """
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stdout)
    logging.getLogger("testbed").setLevel(logging.INFO)
    say(f"faults, seed {seed}, in {folder}")
    begun_s = time.monotonic()
    moments = random.Random(seed)  # noqa: S311  (moments, not secrets)
    weather = Weather(seed, most_bad_s=LATE_S)
    tries = Tries(patience_s=STUCK_S)
    with (
        Broker("old", folder / "old", heap_mb=512) as old,
        Broker("new", folder / "new", heap_mb=512) as new,
        VersityGw(folder / "s3") as server,
        BadS3(server.port, weather, late_s=LATE_S) as way,
        OrdersScenario(
            folder=folder / "job",
            old=old,
            new=new,
            topic="soak-orders",
            job="soak",
            s3=server,
            way=way.endpoint,
        ) as orders,
        state_reader(folder) as reader,
    ):
        server.create_bucket(BUCKET)
        orders.create_topic(deleted={0: 100, 1: 40})
        moves = cycles.Moves(ExactlyOnceJob(orders=orders), moving_sink=True, tries=tries)
        tries.between = orders.client.drivers.ensure_running
        orders.start_producer(rate_per_s=CYCLES_RATE_PER_S)
        moves.start()
        done: Counter[str] = Counter()
        board = JobBoard(LocalStore(server.data / BUCKET), orders.spec.name)
        with Faults(board, weather, (old, new), moments) as faults:
            for number, cycle in enumerate(cycles.cycles_of(seed, 10_000), 1):
                if time.monotonic() - begun_s > 60 * minutes and len(done) > 1:
                    break
                if number % _MOVE_EVERY != _FIRST_MOVE:
                    down_s = moves.cycle(f"cycle{number}", replace(cycle, kill_after_s=None))
                    done["stops with savepoint and starts from it"] += 1
                else:
                    down_s = moves.migrate(f"move{number}")
                    done["migrations"] += 1
                say(f"step {number}, down {down_s:.1f} s")
        state, output = moves.judge(reader)
    say(f"{_counts(done)}; faults: {_counts(faults.count)}; mirrors started again: {moves.mirrors_restarted}")
    say(f"requests to the store that failed: {sum(way.hits.values())} of {sum(way.requests.values())}")
    say(f"longest step {tries.longest_s:.0f} s; callers were told: {_counts(tries.told)}")
    say(f"state: {state}")
    say(f"output: {output}; {(time.monotonic() - begun_s) / 60:.0f} min, seed {seed}")
    return state.right and output.right and faults.count.total() > 0


def crash(folder: Path, seed: int, *, count: int) -> bool:
    """Kill drivers, and count; returns whether every order was counted and written once."""
    say(f"crashes, seed {seed}, in {folder}")
    begun_s = time.monotonic()
    with (
        Broker("old", folder / "old", heap_mb=512) as old,
        OrdersScenario(
            folder=folder / "job", old=old, new=old, topic="soak-orders", job="soak", supervised=True
        ) as orders,
        state_reader(folder) as reader,
    ):
        orders.create_topic()
        job = ExactlyOnceJob(orders=orders)
        orders.start_producer(rate_per_s=CYCLES_RATE_PER_S)
        orders.start()
        with crashes.Watcher(orders) as watcher:
            blows = crashes.Crashes(orders, watcher)
            for number, blow in enumerate(crashes.blows_of(seed, count), 1):
                say(f"{number}: {blow.what}: commits again after {blows.strike(blow):.1f} s")
            state, output = job.judge(reader, old)
    say(f"killed: {_counts(blows.kills)}; the watcher was told: {_counts(watcher.told)}")
    say(f"from the last kill to the next commit: {blows}")
    say(f"state: {state}")
    say(f"output: {output}; {(time.monotonic() - begun_s) / 60:.0f} min, seed {seed}")
    return state.right and output.right and blows.kills["driver"] == count


def _counts(of: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in of.most_common()) or "none"


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)  # noqa: T201  (its purpose)


if __name__ == "__main__":
    sys.exit(main())
