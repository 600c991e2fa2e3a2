"""A service that does not answer gets no calls, except for one probe now and then."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.storage.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES: Final = 3
"""After so many calls in a row without an answer the service gets no calls."""
PAUSE_S: Final = 5.0
"""For how long at first; each time twice as long."""
MOST_PAUSE_S: Final = 60.0
PROBE_S: Final = 15.0
"""How long a probe keeps the other calls away, if it never returns."""


class Breaker:
    """Whether a service answers, as its clients in this process find out; safe to use from many threads."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._lock = now_s, threading.Lock()
        self._failures, self._pause_s = 0, PAUSE_S
        self._since_s = self._until_s = self._probe_until_s = float("-inf")
        self._is_open = False

    @property
    def may_ask(self) -> bool:
        """Whether a call would be let through now: callers that may wait begin none otherwise."""
        with self._lock:
            return self._lets_through(self._now_s())

    def admit(self, action: str, where: str) -> None:
        """Let a call through, or refuse it at once.

        Args:
            action: What is to be done, as a verb.
            where: At which store.

        Raises:
            StoreUnavailableError: If the service gets no calls for now.
        """
        with self._lock:
            now_s = self._now_s()
            if not self._lets_through(now_s):
                silent_s = now_s - self._since_s
                reason = f"it was not asked, since it has not answered for {silent_s:.0f} s"
                raise StoreUnavailableError.during(action, where, reason)
            if self._is_open:
                self._probe_until_s = now_s + PROBE_S

    def answered(self) -> None:
        """Note an answer of any kind: the service is there."""
        with self._lock:
            self._failures, self._pause_s, self._is_open = 0, PAUSE_S, False

    def failed(self) -> None:
        """Note a call that got no answer, or the answer that the service cannot serve now."""
        with self._lock:
            now_s = self._now_s()
            self._failures += 1
            self._since_s = now_s if self._failures == 1 else self._since_s
            if self._is_open and now_s < self._until_s:
                return  # a call that was under way when the breaker opened
            if self._is_open or self._failures >= FAILURES:
                self._pause_s = min(self._pause_s * 2, MOST_PAUSE_S) if self._is_open else PAUSE_S
                self._until_s, self._probe_until_s = now_s + self._pause_s, float("-inf")
                self._is_open = True

    def _lets_through(self, now_s: float) -> bool:
        return not self._is_open or (now_s >= self._until_s and now_s >= self._probe_until_s)
