"""What looks at something again and again while a block runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Looking(ABC):
    """Takes a look every few seconds, on a thread of its own, from the block's begin to its end."""

    def __init__(self, every_s: float) -> None:
        self._every_s, self._ends = every_s, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; a look that is being taken is waited for."""
        self._ends.set()
        self._thread.join()

    @abstractmethod
    def look(self) -> None:
        """Take one look."""

    def _run(self) -> None:
        while not self._ends.wait(self._every_s):
            self.look()
