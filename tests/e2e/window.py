"""A cutover, tried until it is done: each attempt is a process of its own, which kills itself at the first
journal write not killed at before.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from testbed.kafka import Broker
from testbed.scenario import OrdersScenario
from tests.e2e.journal_store import JournalStore
from tests.e2e.upgrades import upgrade

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTEMPTS = 60


def main() -> None:
    """Start attempts until one ends by itself; its exit code is ours."""
    import confluent_kafka.admin  # noqa: F401  # once, not in every attempt

    for _ in range(ATTEMPTS):
        attempt = os.fork()
        if attempt == 0:
            return run(json.loads(sys.argv[1]))
        code = os.waitstatus_to_exitcode(os.waitpid(attempt, 0)[1])
        if code != -signal.SIGKILL:
            sys.exit(code)
    sys.exit(f"{ATTEMPTS} attempts were killed")


def run(settings: Mapping[str, Any]) -> None:
    """Run one attempt."""
    folder, killed_at = Path(settings["folder"]), Path(settings["killed_at"])
    scenario = OrdersScenario(
        folder=folder,
        old=Broker("old", folder / "unused", port=settings["old"]),
        new=Broker("new", folder / "unused", port=settings["new"]),
        topic=settings["topic"],
    )
    cutover = scenario.cutover() if settings["kind"] == "migration" else upgrade(scenario, "orders_job_v2")
    store = JournalStore(folder / "store")

    def kill(point: str) -> None:
        before = killed_at.read_text().splitlines() if killed_at.exists() else []
        if point not in before:
            killed_at.write_text("\n".join([*before, point]) + "\n")
            os.kill(os.getpid(), signal.SIGKILL)

    store.told = kill
    cutover.journal._store = store
    cutover.run()


if __name__ == "__main__":
    main()
