"""Single answers kept for a moment, each read by one thread at a time and given to all who ask."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.plugin.cache.errors import StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from airflow_flinkstyle.plugin.cache.meter import Meter

MOST_PIECES = 300
FRESH_S = 10.0
MOST_READERS = 8
"""Threads of the API server that may wait for one store at a time; it has 40, and Airflow needs them."""
PATIENCE_S = 2.0
"""How long the others wait for one of them."""


@dataclass(slots=True)
class _Piece:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None
    read_at_s: float | None = None

    def is_fresh(self, fresh_s: float) -> bool:
        return self.read_at_s is not None and time.monotonic() - self.read_at_s < fresh_s


class Pieces:
    """Answers by key; the ones that were not asked for longest go."""

    def __init__(self, meter: Meter, *, patience_s: float = PATIENCE_S) -> None:
        self._meter, self._patience_s = meter, patience_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Piece] = OrderedDict()
        self._readers = threading.BoundedSemaphore(MOST_READERS)

    def get(self, key: Hashable, read: Callable[[], Any], *, fresh_s: float = FRESH_S) -> Any:  # noqa: ANN401
        """Return what ``read`` returned at most ``fresh_s`` ago; older if the store may not be asked now.

        Raises:
            StoreBusyError: If the store may not be asked, or is slow, and there is nothing older.
        """
        piece = self._piece(key)
        if piece.is_fresh(fresh_s):
            return piece.value
        with _held(piece.lock, self._patience_s) as is_mine:
            if piece.is_fresh(fresh_s):  # another thread has read it meanwhile
                return piece.value
            if not is_mine:
                return self._older(piece, "has not answered yet")
            if not self._meter.may_ask():
                return self._older(
                    piece, f"was asked {self._meter.per_minute} times in a minute, as often as it may"
                )
            with _held(self._readers, self._patience_s) as may_read:
                if not may_read:
                    return self._older(piece, "has not answered others yet")
                piece.value, piece.read_at_s = read(), time.monotonic()
                return piece.value

    def act(self, change: Callable[[], None], *stale: Hashable) -> None:
        """Change something in the store, as one of those that wait for it; ``stale`` answers are read again.

        Raises:
            StoreBusyError: If too many wait for the store.
        """
        with _held(self._readers, self._patience_s) as may_act:
            if not may_act:
                raise _busy("has not answered others yet", "Nothing was changed.")
            change()
        with self._lock:
            for key in stale:
                self._kept.pop(key, None)

    def _piece(self, key: Hashable) -> _Piece:
        with self._lock:
            piece = self._kept.setdefault(key, _Piece())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_PIECES:
                self._kept.popitem(last=False)
            return piece

    @staticmethod
    def _older(piece: _Piece, why: str) -> Any:  # noqa: ANN401 - as it was read
        if piece.read_at_s is not None:
            return piece.value
        raise _busy(why, "Nothing is shown.")


def _busy(why: str, state_after: str) -> StoreBusyError:
    return StoreBusyError(
        f"The store was expected to answer, but it {why}.",
        state_after=state_after,
        remedy="Try again in some seconds.",
    )


@contextmanager
def _held(lock: threading.Lock | threading.Semaphore, patience_s: float) -> Iterator[bool]:
    """Hold a lock if it is free soon; yields whether it is held."""
    held = lock.acquire(timeout=patience_s)
    try:
        yield held
    finally:
        if held:
            lock.release()
