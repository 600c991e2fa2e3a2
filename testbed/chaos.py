"""``python -m testbed.chaos``: kill everything around the transactional sink, and count what it wrote.

Exits 0 if every number is there once for ``read_committed`` readers, and as much was killed as was promised.
The seed is printed; ``--seed`` repeats order, phases and delays, though no run is quite like another.

Batches have 200 records of 20 KB. Each kill waits for the sink's phase that was hit least so far, then
for a random moment. What is frozen stays so until others have written its shard or its tasks run
elsewhere (Python worker, executor), or a second driver has written from the same checkpoint; a broker for
up to 2.5 times as long as a transaction may take.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.chaos_plan import away, whole
from testbed.chaos_report import Report
from testbed.chaos_stage import run
from testbed.kafka import Broker
from testbed.spark import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testbed.chaos_plan import StagePlan

KILLS = 300


def chaos(folder: Path, plans: Sequence[StagePlan], *, seed: int, minutes: float = math.inf) -> Report:
    """Run the stages one after another on one broker, and one cluster for those that need it.

    After so many minutes, shared out among the stages, there are no more strikes.
    """
    began_s = until_s = time.monotonic()
    total = sum(plan.kills for plan in plans)
    results = []
    with Broker("chaos", folder / "kafka") as broker, contextlib.ExitStack() as stack:
        cluster: SparkCluster | None = None
        for number, plan in enumerate(plans):
            if plan.on_cluster and cluster is None:
                cluster = stack.enter_context(SparkCluster(folder / "cluster"))
            until_s += 60 * minutes * plan.kills / total
            where = folder / plan.name.replace(" ", "-")
            used = cluster if plan.on_cluster else None
            result = run(plan, where, broker, used, seed=seed + number, until_s=until_s)
            say(f"{plan.name}: {len(result.hits)} kills, {result.seconds:.0f} s; {result.verdict}")
            results.append(result)
    return Report(results=results, seed=seed, seconds=time.monotonic() - began_s)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder that is removed if all goes well; otherwise its trace and logs tell what went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        yield folder
    except BaseException:
        say(f"The trace and the logs are in {folder}")
        raise
    shutil.rmtree(folder)


def main() -> int:
    """Run all stages and print what came out."""
    parser = argparse.ArgumentParser(prog="testbed.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, help="by default another one every time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no strikes after so many")
    parser.add_argument("--only", nargs="*", default=[], help="local, cluster, stateless, stateful")
    parser.add_argument(
        "--away", action="store_true", help="freeze the broker, longer than a transaction may be"
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    say(f"seed {seed}")
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stdout)
    logging.getLogger("testbed").setLevel(logging.INFO)
    with scratch() as folder:
        plans = away(options.kills) if options.away else whole(options.kills, options.only)
        report = chaos(folder, plans, seed=seed, minutes=options.minutes)
        say(f"\n{report.as_markdown()}\n")
        broken = report.broken_promises(options.kills)
        if broken:
            sys.exit("\n".join(broken))
    return 0


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)  # noqa: T201  (its purpose)


if __name__ == "__main__":
    sys.exit(main())
