"""How long a test waits for what must come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 300.0
"""Seconds: a busy machine is many times slower than a quiet one, and only what never comes waits so long."""
_POLL_S = 0.1


def wait_until(what: str, met: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
    """Return once ``met``; raises ``TimeoutError`` naming ``what``."""
    deadline_s = time.monotonic() + timeout_s
    while not met():
        if time.monotonic() > deadline_s:
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
        return time.monotonic() - self._since_s > self._timeout_s
