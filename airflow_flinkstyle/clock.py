"""The clock that callers wait by: the machine's, unless a test gives another."""

from __future__ import annotations

import time
from dataclasses import dataclass


def now_ms() -> int:
    """Return epoch milliseconds, UTC, by this machine's clock."""
    return time.time_ns() // 1_000_000


class Clock:
    """What a caller waits by."""

    @property
    def now_s(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return now_ms()

    def wait(self, timeout_s: float, *, every_s: float) -> Wait:
        """Begin to wait: check, and check again while ``again`` is true."""
        return Wait(clock=self, until_s=self.now_s + timeout_s, every_s=every_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The time of a loop that checks at once, then every so often, and a last time after the time-out."""

    clock: Clock
    until_s: float
    """By that clock."""
    every_s: float
    """Between two checks."""

    def again(self) -> bool:
        """Sleep until the next check; False, at once, if the time was up before the last one."""
        if self.clock.now_s >= self.until_s:
            return False
        self.clock.sleep(self.every_s)
        return True


CLOCK = Clock()
"""This machine's."""


class LeaseClock(Clock):
    """A clock that cannot be set and that counts the time a suspended machine sleeps."""

    @property
    def now_s(self) -> float:
        """Return seconds since the machine's start."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


LEASE_CLOCK = LeaseClock()
"""This machine's, for leases."""
