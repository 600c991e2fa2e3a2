"""Single answers kept for a moment, each read by one thread at a time and given to all requests for it.

No request waits in a thread: the API server has 40, for Airflow and this page together.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.store_threads import StoreThreads
from airflow_flinkstyle.plugin.cache.errors import StoreBusyError
from airflow_flinkstyle.storage.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from concurrent.futures import Future

    from airflow_flinkstyle.storage.meter import Meter

MOST_PIECES = 300
FRESH_S = 10.0
MOST_READERS = 4
"""Threads that read for the views of one root at a time."""
MOST_WAITING = 64
"""Readings of one root that wait for a thread."""
PATIENCE_S = 2.0
"""How long a request waits for a new answer, before it gets an older one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """An answer, and how old it is."""

    value: Any
    age_s: float
    is_stale: bool
    """Whether a newer one was asked for and did not come."""


@dataclass(slots=True)
class _Piece:
    value: Any = None
    read_at_s: float | None = None
    reading: Future[None] | None = None

    def kept(self, *, is_stale: bool = False) -> CachedAnswer:
        age_s = time.monotonic() - (self.read_at_s or 0.0)
        return CachedAnswer(value=self.value, age_s=age_s, is_stale=is_stale)


class Pieces:
    """Answers by key; those that were not asked for the longest are dropped."""

    def __init__(
        self, meter: Meter, *, name: str = "flinkstyle page", patience_s: float = PATIENCE_S
    ) -> None:
        self._meter, self._patience_s = meter, patience_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Piece] = OrderedDict()
        self._threads = StoreThreads(name, MOST_READERS, most_waiting=MOST_WAITING)

    async def get(self, key: Hashable, read: Callable[[], Any], *, fresh_s: float = FRESH_S) -> Any:  # noqa: ANN401
        """Return the answer alone; see ``kept``."""
        return (await self.kept(key, read, fresh_s=fresh_s)).value

    async def kept(self, key: Hashable, read: Callable[[], Any], *, fresh_s: float = FRESH_S) -> CachedAnswer:
        """Return what ``read`` returned at most ``fresh_s`` ago; older if the store does not answer now.

        Raises:
            StoreBusyError: If the store may not be asked, or is slow, and there is nothing older.
            FlinkstyleError: What ``read`` raises; ``StoreUnavailableError`` only if there is nothing older.
        """
        piece = self._piece(key)
        if piece.read_at_s is not None and time.monotonic() - piece.read_at_s < fresh_s:
            return piece.kept()
        try:
            reading = self._reading(piece, read)
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(reading)), self._patience_s)
        except (asyncio.TimeoutError, TimeoutError):
            return self._older(piece, _busy("has not answered yet"))
        except (StoreBusyError, StoreUnavailableError) as error:
            return self._older(piece, error)
        return piece.kept()

    async def act(self, change: Callable[[], None], *stale: Hashable) -> None:
        """Change something in the store, queued with the readings; ``stale`` answers are read again.

        Raises:
            StoreBusyError: If too many wait for the store.
        """
        acting = self._threads.submit(change)
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(acting)), self._patience_s)
        except (asyncio.TimeoutError, TimeoutError):
            if acting.cancel():
                raise _busy("has not answered others yet", "Nothing was changed.") from None
            await asyncio.wrap_future(acting)  # it is under way: the caller gets its outcome
        with self._lock:
            for key in stale:
                self._kept.pop(key, None)

    def forget(self) -> None:
        """Keep no answer; readings that are under way fill none that is asked for later."""
        with self._lock:
            self._kept.clear()

    def _piece(self, key: Hashable) -> _Piece:
        with self._lock:
            piece = self._kept.setdefault(key, _Piece())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_PIECES:
                self._kept.popitem(last=False)
            return piece

    def _reading(self, piece: _Piece, read: Callable[[], Any]) -> Future[None]:
        """Return the reading that is under way, or begin one."""

        def fill() -> None:
            piece.value, piece.read_at_s = read(), time.monotonic()

        with self._lock:
            if piece.reading is None or piece.reading.done():
                if not self._meter.may_ask():
                    raise _busy(f"was asked {self._meter.per_minute} times in a minute, as often as it may")
                piece.reading = self._threads.submit(fill)
            return piece.reading

    @staticmethod
    def _older(piece: _Piece, error: Exception) -> CachedAnswer:
        if piece.read_at_s is not None:
            return piece.kept(is_stale=True)
        raise error


def _busy(why: str, state_after: str = "Nothing is shown.") -> StoreBusyError:
    return StoreBusyError(
        f"The store was expected to answer, but it {why}.",
        state_after=state_after,
        remedy="Try again in some seconds.",
    )
