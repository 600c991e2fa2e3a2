"""How long a test waits for what must come."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 300.0
"""Seconds: a busy machine is many times slower than a quiet one, and only what never comes waits so long."""
_POLL_S = 0.1
_MOST_TIMES = 6.0


def scaled(timeout_s: float, *, load: float | None = None, cpus: int | None = None) -> float:
    """Return a time-out as many times as long as this machine has more work than processors, 6 times at most.

    Args:
        timeout_s: For a machine that keeps up.
        load: Processes that want to run; None for the last minute's.
        cpus: Processors; None for this machine's.
    """
    wanting = os.getloadavg()[0] if load is None else load
    return timeout_s * min(_MOST_TIMES, max(1.0, wanting / (cpus or os.cpu_count() or 1)))


def wait_until(what: str, met: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
    """Return once ``met``; raises ``TimeoutError`` naming ``what``."""
    begun_s = time.monotonic()
    while not met():
        if time.monotonic() - begun_s > scaled(timeout_s):
            raise TimeoutError(f"Not within {timeout_s:g} s: {what}")
        time.sleep(_POLL_S)


class Patience:
    """Ends when nothing has changed for so long: what moves may take any time on a busy machine."""

    def __init__(self, timeout_s: float = PATIENCE_S) -> None:
        self._timeout_s, self._seen, self._since_s = timeout_s, object(), time.monotonic()

    def is_over(self, now_seen: object) -> bool:
        """Whether ``now_seen`` is what was seen all that time."""
        if now_seen != self._seen:
            self._seen, self._since_s = now_seen, time.monotonic()
        return time.monotonic() - self._since_s > scaled(self._timeout_s)
