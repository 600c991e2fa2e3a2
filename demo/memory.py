"""Peak memory of everything the demo started."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

PERIOD_S = 2.0


class PeakMemory:
    """Samples the memory of a process and all below it, each shared page counted once."""

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="peak-memory")
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        """Start sampling."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sampling."""
        self._stop.set()
        self._thread.join(PERIOD_S + 1)

    def _sample(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self.peak_bytes = max(self.peak_bytes, sum(_proportional_bytes(pid) for pid in self._tree()))

    def _tree(self) -> Iterator[int]:
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                after_name = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            children.setdefault(int(after_name[1]), []).append(int(stat.parent.name))
        waiting = [self._root_pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            waiting += children.get(pid, [])


def _proportional_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # it ended meanwhile, or is a kernel's
    return 0
