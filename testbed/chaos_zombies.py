"""Frozen processes, thawed once others have gone on with their work."""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.chaos_processes import is_python_worker, send
from testbed.chaos_trace import BATCH_DONE

if TYPE_CHECKING:
    from testbed.chaos_processes import Driver
    from testbed.chaos_trace import Sight, Trace

_ENDS_WITHIN_S = 60.0
"""A thawed driver finds itself fenced with the batch that it completes."""


@dataclass(slots=True, kw_only=True)
class Zombie:
    """What was frozen together."""

    sight: Sight
    """What its worker was doing."""
    frozen_ns: int
    pids: tuple[int, ...]
    """Thawed in this order."""
    patience: int
    """Phases of the same shard, or of later batches, that others begin before it is thawed."""
    driver: Driver | None = None
    """If the driver was frozen."""
    thawed_ns: int = 0

    def is_due(self, trace: Trace) -> bool:
        """Tell whether others have gone on far enough."""
        return sum(self._is_ahead(sight) for sight in trace.after(self.frozen_ns)) >= self.patience

    def _is_ahead(self, sight: Sight) -> bool:
        place, mine = (sight.batch, sight.shard), (self.sight.batch, self.sight.shard)
        by_others = sight.pid != self.sight.pid and (
            self.driver is None or sight.incarnation > self.sight.incarnation
        )
        return by_others and (place == mine or sight.batch > self.sight.batch)

    def thaw(self) -> None:
        """Let it go on."""
        self.thawed_ns = time.monotonic_ns()
        for pid in self.pids:
            send(pid, signal.SIGCONT)
        if self.driver is not None and self.driver.is_running:
            self.driver.send(signal.SIGCONT)

    def phases_since(self, trace: Trace) -> Counter[str]:
        """Return the phases that its worker, or its driver's workers, began after they were thawed."""
        sights = (sight for sight in trace.after(self.thawed_ns) if sight.phase != BATCH_DONE)
        return Counter(sight.phase for sight in sights if self._is_mine(sight))

    def _is_mine(self, sight: Sight) -> bool:
        of_driver = self.driver is not None and sight.incarnation == self.sight.incarnation
        return of_driver or sight.pid == self.sight.pid

    def end(self) -> None:
        """Kill what is left of it."""
        for pid in self.pids:
            if is_python_worker(pid):
                send(pid, signal.SIGKILL)
        if self.driver is not None:
            self.driver.clear()


class Zombies:
    """All of a stage."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._frozen: list[Zombie] = []
        self._thawed: list[Zombie] = []

    @property
    def pids(self) -> frozenset[int]:
        """Workers that no shot should be aimed at."""
        return frozenset(zombie.sight.pid for zombie in [*self._frozen, *self._thawed])

    def add(self, zombie: Zombie) -> None:
        """Take one that was frozen just now."""
        self._frozen.append(zombie)

    def tend(self) -> None:
        """Thaw those that others have overtaken."""
        for zombie in [zombie for zombie in self._frozen if zombie.is_due(self._trace)]:
            zombie.thaw()
            self._frozen.remove(zombie)
            self._thawed.append(zombie)

    @property
    def are_settled(self) -> bool:
        """True once all are thawed, and the drivers among them have ended or had the time to."""
        late_ns = time.monotonic_ns() - int(_ENDS_WITHIN_S * 1e9)
        return not self._frozen and not any(
            zombie.driver is not None and zombie.driver.is_running and zombie.thawed_ns > late_ns
            for zombie in self._thawed
        )

    @property
    def immortal(self) -> int:
        """Drivers that were thawed and go on."""
        return sum(zombie.driver is not None and zombie.driver.is_running for zombie in self._thawed)

    @property
    def thawed(self) -> int:
        """How many were thawed after others had gone on."""
        return len(self._thawed)

    def woken(self) -> Counter[str]:
        """Return the phases that they went on to."""
        return sum((zombie.phases_since(self._trace) for zombie in self._thawed), Counter())

    def end(self) -> None:
        """Kill what is left of them."""
        for zombie in [*self._frozen, *self._thawed]:
            zombie.end()
