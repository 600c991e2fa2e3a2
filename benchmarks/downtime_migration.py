"""How long a job stands still while it moves to another Kafka cluster, rehearsed there beforehand."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import PAIRS, Report, Spread
from benchmarks.downtime import batches, phases, promises, shares
from benchmarks.moved_job import KEYS, MovedJob, two_brokers
from testbed.mirror import Mirror, MirrorSettings

if TYPE_CHECKING:
    from benchmarks.moved_job import CutOver

HOW, MEDIAN_S = "warm, rehearsed", 2.0
ROUNDS = {"1 MiB": PAIRS, "100 MiB": PAIRS}
SHOWN = (
    *("hold", "fence", "caught-up", "ends", "stop", "translate", "rewrite"),
    *("takeover-order", "takeover", "release", "running"),
)


def run(*, quick: bool) -> Report:
    """Move a job of each size, each time a new one."""
    found: dict[str, list[CutOver]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-migration-") as name:
        folder = Path(name)
        with two_brokers(folder / "kafka") as brokers:
            old, new = (broker.bootstrap for broker in brokers)
            settings = MirrorSettings(
                source_bootstrap=old, target_bootstrap=new, topics="numbers.*", fewest_bytes=1
            )
            with Mirror(folder / "mirror", settings):
                for size, rounds in {"1 MiB": 1}.items() if quick else ROUNDS.items():
                    found[size] = []
                    for number in range(rounds):
                        topic = f"numbers-{KEYS[size]}-{number}"
                        with MovedJob(folder / topic, brokers, topic, KEYS[size]) as job:
                            found[size].append(job.migrated())
    rows = [(size, HOW, of) for size, of in found.items()]
    times = ", ".join(f"{len(of)} times with {size}" for size, of in found.items())
    return Report(
        about=(
            f"The same job moves to another cluster, {times}: "
            "producers are held, a mirror catches up, the job stops, its positions are proved on the other "
            "side, the next driver takes over, producers are released there. The machine's load before "
            "each was "
            f"{Spread.of([one.load for _, _, of in rows for one in of]).text(digits=1)}."
        ),
        tables=(shares(rows), batches(rows), phases(rows, SHOWN)),
        targets=promises(list(found)[-1], found[list(found)[-1]], median_s=MEDIAN_S),
        raw={size: [asdict(one) for one in of] for size, of in found.items()},
    )
