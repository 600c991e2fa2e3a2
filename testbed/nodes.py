"""A node of a cluster on this machine: the daemon that starts drivers, and all that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.process import Service


@dataclass(frozen=True, slots=True)
class Node:
    """One node; what runs on it has its working directory below ``folder``."""

    daemon: Service
    folder: Path

    def holds(self, pid: int) -> bool:
        """Return whether a process runs on it."""
        try:
            return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(self.folder)
        except OSError:
            return False

    def lose(self) -> None:
        """Let everything on it end at once, as a machine whose power is cut."""
        self.daemon.kill()
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _processes(self) -> Iterator[int]:
        for process in Path("/proc").glob("[0-9]*"):
            if self.holds(int(process.name)):
                yield int(process.name)
