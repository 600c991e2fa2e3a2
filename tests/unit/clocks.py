"""A clock for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable


class SleptClock(Clock):
    """Time that passes only by sleeping."""

    now_s = 1000.0
    at_ms = 0
    """What it says the time is, epoch milliseconds."""

    def __init__(self) -> None:
        self.at: dict[float, Callable[[], object]] = {}
        """What happens when the time has come."""
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return self.at_ms

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept.append(seconds)
        for due in [at for at in self.at if at <= self.now_s]:
            self.at.pop(due)()
