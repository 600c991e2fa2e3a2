"""A migration's window, tried until it is done: each attempt is a process of its own, which kills itself at
the first journal write not killed at before.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from airflow_flinkstyle.storage.local import LocalStore
from testbed.kafka import Broker
from testbed.scenario import OrdersScenario

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTEMPTS = 60


class KillingStore(LocalStore):
    """Ends the process before or behind writes to the migration's journal."""

    killed_at: Path

    def create(self, key: str, data: bytes) -> str:
        """Create; an intent or the first attempt, if it is the journal's."""
        version = super().create(key, data)
        if "/migrations/" in key:
            self._kill("attempt" if "attempt" in key else f"{json.loads(data)['phase']} intent")
        return version

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        """Replace; a result, if the journal's phase has one."""
        phase = json.loads(data)["phase"] if "/migrations/" in key and "attempt" not in key else None
        has_result = phase is not None and json.loads(data)["result"] is not None
        if has_result:
            self._kill(f"{phase} unrecorded")
        version = super().replace(key, data, expected=expected)
        if has_result:
            self._kill(f"{phase} result")
        return version

    def _kill(self, point: str) -> None:
        before = self.killed_at.read_text().splitlines() if self.killed_at.exists() else []
        if point not in before:
            self.killed_at.write_text("\n".join([*before, point]) + "\n")
            os.kill(os.getpid(), signal.SIGKILL)


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
    folder = Path(settings["folder"])
    scenario = OrdersScenario(
        folder=folder,
        old=Broker("old", folder / "unused", port=settings["old"]),
        new=Broker("new", folder / "unused", port=settings["new"]),
        topic=settings["topic"],
    )
    cutover = scenario.cutover()
    store = KillingStore(folder / "store")
    store.killed_at = Path(settings["killed_at"])
    cutover.journal._store = store
    cutover.run()


if __name__ == "__main__":
    main()
