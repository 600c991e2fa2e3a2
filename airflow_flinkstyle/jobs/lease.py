"""For how long something has not changed, on this process's own clock.

Two machines' clocks may be minutes apart, so nobody compares a time that another one wrote with its own. A
reader looks, notes what it saw and when, looks again later, and counts from its own first look.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import LEASE_CLOCK

if TYPE_CHECKING:
    from airflow_flinkstyle.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What this process knows of something that should change."""

    still_s: float
    """Seconds between the first look that found it as it is now, and the newest look."""
    changed: bool
    """Whether this process saw it change, so that its state is not merely what was found there at first."""


class Sightings:
    """What one process has seen, kept over all its looks."""

    def __init__(self, clock: Clock = LEASE_CLOCK) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[object, float, bool]] = {}

    def note(self, what: str, mark: object, *, begun_s: float) -> Sighting:
        """Note how something was found.

        Args:
            what: Names it, in all stores and jobs.
            mark: Equal as long as it has not changed.
            begun_s: When the look began, by ``clock``: it may have changed since.
        """
        with self._lock:
            before = self._seen.get(what)
            if before is None or before[0] != mark:
                self._seen[what] = (mark, self.clock.now_s, before is not None)
            _, since_s, changed = self._seen[what]
        return Sighting(still_s=max(0.0, begun_s - since_s), changed=changed)


OF_THIS_PROCESS = Sightings()
"""Shared by all clients: hooks make a new one for each look."""
