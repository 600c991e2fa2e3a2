"""Single answers kept for a moment, each read by one thread at a time and given to all who ask."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from airflow_flinkstyle.plugin.meter import Meter

MOST_PIECES = 300
FRESH_S = 10.0


class StoreBusyError(FlinkstyleError):
    """The page has asked the store as often as it may."""

    code = "STORE_BUSY"
    retryable = True


@dataclass(slots=True)
class _Piece:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None
    read_at_s: float | None = None


class Pieces:
    """Answers by key; the ones that were not asked for longest go."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Piece] = OrderedDict()

    def get(self, key: Hashable, read: Callable[[], Any], *, fresh_s: float = FRESH_S) -> Any:  # noqa: ANN401
        """Return what ``read`` returned at most ``fresh_s`` ago; older if the store may not be asked.

        Raises:
            StoreBusyError: If the store may not be asked, and there is nothing older.
        """
        with self._lock:
            piece = self._kept.setdefault(key, _Piece())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_PIECES:
                self._kept.popitem(last=False)
        with piece.lock:
            if piece.read_at_s is not None and time.monotonic() - piece.read_at_s < fresh_s:
                return piece.value
            if not self._meter.may_ask():
                if piece.read_at_s is None:
                    raise self._busy()
                return piece.value
            piece.value = read()
            piece.read_at_s = time.monotonic()
            return piece.value

    def _busy(self) -> StoreBusyError:
        return StoreBusyError(
            f"The page should ask the store at most {self._meter.per_minute} times a minute, and has.",
            state_after="Nothing was read.",
            remedy="Try again in some seconds.",
        )
