"""How often a store may be asked: so many requests per minute, however many callers there are."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.storage.base import ObjectInfo, ObjectStore

MOST_PER_MINUTE = 900
"""Requests to one store in a minute for the table of jobs, and as many for all other views, by one process of
the API server."""
BURST_MINUTES = 5
"""After a rest the views may ask as often as in so many minutes at once: they are opened one by one."""
PAGE_KEYS = 1000
"""Keys in one answer to a listing of S3."""


class Meter:
    """Counts requests, and decides whether there may be more: a bucket that fills with time."""

    def __init__(
        self,
        per_minute: int = MOST_PER_MINUTE,
        *,
        burst_minutes: int = 1,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with a full bucket.

        Args:
            per_minute: How fast it fills.
            burst_minutes: How much it holds: of so many minutes.
            now_s: The clock.
        """
        self.per_minute, self._most, self._now_s = per_minute, per_minute * burst_minutes, now_s
        self.requests = 0
        """Since it was made."""
        self._remaining, self._at_s = float(self._most), now_s()
        self._lock = threading.Lock()

    def count(self) -> None:
        """Note one request."""
        with self._lock:
            self._fill()
            self.requests += 1
            self._remaining -= 1

    def may_ask(self, *, of_newest: int | None = None) -> bool:
        """Return whether a reading of the store may begin; one that has begun is not cut short.

        Args:
            of_newest: So many requests of a full bucket may be used; the rest is kept for others. None: all.
        """
        with self._lock:
            self._fill()
            return self._remaining >= 1 + (0 if of_newest is None else self._most - of_newest)

    def _fill(self) -> None:
        now_s = self._now_s()
        self._remaining = min(self._most, self._remaining + (now_s - self._at_s) * self.per_minute / 60)
        self._at_s = now_s


class MeteredStore:
    """Passes everything on to a store, and counts it."""

    def __init__(self, store: ObjectStore, meter: Meter) -> None:
        self._store, self._meter = store, meter

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        found = getattr(self._store, name)
        if callable(found) and name != "local_path":
            self._meter.count()
        return found

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """List, counting each page."""
        self._meter.count()
        for number, info in enumerate(self._store.list(prefix, after=after)):
            if number and number % PAGE_KEYS == 0:  # the last page shows that it is the last
                self._meter.count()
            yield info
