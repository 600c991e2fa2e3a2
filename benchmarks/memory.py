"""The memory of a process with all that it has started, looked at while it runs."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_EVERY_S: Final = 0.2
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PROC: Final = Path("/proc")


class Peak:
    """The largest sum of what the processes of a tree have in memory; what they share counts for each.

    Args:
        root: The process that the tree begins with.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self.rss_bytes = 0
        self._ends, self._thread = threading.Event(), threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(_EVERY_S):
            self.rss_bytes = max(self.rss_bytes, sum(map(_rss_bytes, tree_of(self._root))))


def tree_of(root: int) -> Iterator[int]:
    """Yield a process and all that it has started, directly or not."""
    children: dict[int, list[int]] = {}
    for place in _PROC.glob("[0-9]*"):
        parent = _field(place, "stat", 1)
        if parent is not None:
            children.setdefault(parent, []).append(int(place.name))
    waiting = [root]
    while waiting:
        yield (pid := waiting.pop())
        waiting += children.get(pid, ())


def _rss_bytes(pid: int) -> int:
    return (_field(_PROC / str(pid), "statm", 1) or 0) * _PAGE


def _field(place: Path, file: str, number: int) -> int | None:
    """Return a number that the kernel tells of a process, counted behind its name; None if it has ended."""
    try:
        text = (place / file).read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[number])
