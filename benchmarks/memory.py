"""The memory of a process with all that it has started, looked at while it runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from testbed.looking import Looking

if TYPE_CHECKING:
    from psutil import Process

_EVERY_S: Final = 0.2


class Peak(Looking):
    """The largest sum of what the processes of a tree have in memory; what they share counts for each.

    Args:
        root: The process that the tree begins with.
    """

    def __init__(self, root: int) -> None:
        super().__init__(_EVERY_S)
        self._root = root
        self.rss_bytes = 0

    def look(self) -> None:
        """Add up what they have now."""
        self.rss_bytes = max(self.rss_bytes, sum(map(_rss_bytes, tree_of(self._root))))


def tree_of(root: int) -> list[Process]:
    """Return a process and all that it has started, directly or not; nothing if it has ended."""
    from psutil import NoSuchProcess, Process

    with suppress(NoSuchProcess):
        process = Process(root)
        return [process, *process.children(recursive=True)]
    return []


def _rss_bytes(process: Process) -> int:
    from psutil import NoSuchProcess

    with suppress(NoSuchProcess):
        rss: int = process.memory_info().rss
        return rss
    return 0
