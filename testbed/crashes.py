"""A driver that is killed again and again, with a supervisor beside it and a watcher that looks every second.

Each blow is at a random moment; who is there to start the next driver is dealt, too.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.detached import SUPERVISOR
from airflow_flinkstyle.protocol.process import process_started
from testbed.looking import Looking
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_flinkstyle.protocol.records import IncarnationRecord
    from testbed.scenario import OrdersScenario

LONGEST_RUN_S = 3.0
"""Between a commit after the last blow and the next blow."""
LATEST_SECOND_S = 6.0
"""Between a driver's kill and that of the next one: before it runs, in its takeover, in its first batch."""
LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What is killed, and who is left to start the next driver."""

    what: str
    supervisor_too: bool = False
    """Killed just before its driver."""
    watched: bool = True
    """Whether the watcher looks while the job is down."""
    second_after_s: float | None = None
    """When the next driver is killed, too, wherever it is by then."""
    after_s: float = 0.0
    """From a commit on."""


def blows_of(seed: int, count: int) -> Iterator[Blow]:
    """Yield blows in a random order, each kind as often as the others. Pure."""
    moments = random.Random(seed)  # noqa: S311  (moments, not secrets)
    hand: list[Blow] = []
    for _ in range(count):
        if not hand:
            hand = [
                Blow(what="driver; supervisor and watcher are there"),
                Blow(what="driver; the supervisor alone is there", watched=False),
                Blow(what="supervisor, then driver; the watcher is there", supervisor_too=True),
                Blow(what="driver, and the next one", second_after_s=moments.uniform(0, LATEST_SECOND_S)),
            ]
            moments.shuffle(hand)
        yield replace(hand.pop(), after_s=moments.uniform(0, LONGEST_RUN_S))


class Watcher(Looking):
    """Looks after the job every second, as ``watch_jobs`` does, while it is told to."""

    def __init__(self, orders: OrdersScenario) -> None:
        super().__init__(LOOK_S)
        self._orders, self.looks = orders, threading.Event()
        self.told: Counter[str] = Counter()
        """How often which error was answered."""

    def look(self) -> None:
        """Start the driver again if it has died."""
        if not self.looks.is_set():
            return
        try:
            self._orders.client.drivers.ensure_running()
        except FlinkstyleError as error:
            self.told[error.code] += 1


class Crashes:
    """Strikes a job that runs, and waits each time until it commits again."""

    def __init__(self, orders: OrdersScenario, watcher: Watcher) -> None:
        self._orders, self._watcher = orders, watcher
        self.kills: Counter[str] = Counter()
        self.recoveries_s: dict[str, list[float]] = {}
        """Of each kind of blow: from the (last) kill to the next commit."""

    def strike(self, blow: Blow) -> float:
        """Return the seconds from the last kill of this blow to the next commit."""
        time.sleep(blow.after_s)
        self._watcher.looks.clear()
        driver = self._driver()
        if blow.supervisor_too:
            self._kill(self._supervisors(), "supervisor")
        killed_s, before = self._kill([driver.jvm_pid], "driver"), self._orders.last_batch()
        if blow.watched:
            self._watcher.looks.set()
        if blow.second_after_s is not None:
            time.sleep(blow.second_after_s)
            if next_s := self._kill(self._started(but=driver.jvm_pid), "next driver"):
                killed_s, before = next_s, self._orders.last_batch()
        wait_until("the job commits again", lambda: self._orders.last_batch() > before)
        self._watcher.looks.set()
        recovered_s = self._committed_s(before + 1) - killed_s
        self.recoveries_s.setdefault(blow.what, []).append(recovered_s)
        return recovered_s

    def _kill(self, pids: Sequence[int], what: str) -> float:
        """Kill them, and wait for their end; returns when, in epoch seconds, or 0 if there is none."""
        killed_s = 0.0
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills[what] += 1
                killed_s = time.time()
        for pid in pids:
            wait_until(f"the {what} has ended", partial(_has_ended, pid))
        return killed_s

    def _driver(self) -> IncarnationRecord:
        """Return the driver that runs, as it has described itself."""
        running = self._orders.running()
        record = self._orders.board.incarnation(running.run.generation, running.heartbeat.incarnation)
        if record is None:
            raise RuntimeError("a driver that runs was expected to have described itself")
        return record

    def _started(self, *, but: int) -> list[int]:
        """Return the process that was started last, if it is another one."""
        current = self._orders.board.current()
        submit = self._orders.board.submit(current.value.generation) if current else None
        native = submit.value.native_id if submit else None
        pid = int(native["pid"]) if native and "pid" in native else but
        return [pid] if pid != but else []

    def _supervisors(self) -> list[int]:
        """Return the processes that look after drivers of the job's claim."""
        wanted = f"\0{SUPERVISOR}\0--claim\0{self._orders.claim().claim_id}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "cmdline").read_bytes().endswith(wanted):
                    found.append(int(entry.name))
        return found

    def _committed_s(self, batch: int) -> float:
        return (self._orders.checkpoint() / "commits" / str(batch)).stat().st_mtime

    def __str__(self) -> str:
        """Return how long each kind took, median and worst."""
        return "; ".join(
            f"{what}: {len(of)} times, median {median(of):.1f} s, worst {max(of):.1f} s"
            for what, of in sorted(self.recoveries_s.items())
        )


def _has_ended(pid: int) -> bool:
    return process_started(pid) is None
