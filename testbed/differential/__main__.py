"""``python -m testbed.differential``: run scripts plainly and under the agent, and compare."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from testbed.differential import plan as plans
from testbed.differential import spec as specs
from testbed.differential.archive import make_archive
from testbed.differential.deployment import Lane
from testbed.differential.trial import Trial
from testbed.kafka import Broker


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="differential-"))
    folder.mkdir(parents=True, exist_ok=True)
    make_archive()
    lane = Lane(folder / "lane")
    failed = 0
    try:
        with Broker("differential", folder / "kafka") as broker:
            for seed in range(arguments.seed, arguments.seed + arguments.count):
                source = random.Random(seed)
                spec = specs.draw(source)
                plan = plans.draw(source, spec)
                place = folder / f"seed-{seed}"
                trial = Trial(
                    spec=spec, plan=plan, folder=place, broker=broker, lane=lane, topics=f"s{seed}"
                )
                verdict = trial.run()
                print(seed, spec.to_json(), plan.to_json(), flush=True)
                print(seed, verdict, flush=True)
                if verdict.kind == "failed":
                    failed += 1
                else:
                    shutil.rmtree(place)
    finally:
        lane.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
