"""What every worker of the sink was doing at every moment, and the shot that this releases.

The job tells each phase through a named pipe: a line is in it before its writer can be killed, and the reader
wakes at once. So a shot hits the phase that it was aimed at, and the last line before it is the proof.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BATCH_DONE = "batch"
"""Told by the driver once a batch is complete; in place of the shard: how many a replay found written."""
_SYNC, _STOP = b"sync", b"stop"
_SYNC_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One line: a process has begun a phase."""

    at_ns: int
    """Monotonic clock, the same in all processes of a machine."""
    pid: int
    incarnation: int
    """Of the driver that the process works for."""
    batch: int
    shard: int
    phase: str

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Read a line."""
        *numbers, phase = line.decode().split()
        at_ns, pid, incarnation, batch, shard = map(int, numbers)
        return cls(at_ns=at_ns, pid=pid, incarnation=incarnation, batch=batch, shard=shard, phase=phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """What was aimed at, and when it was struck."""

    sight: Sight
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aim:
    wanted: Callable[[Sight], bool]
    delay_s: float
    strike: Callable[[int], None]
    struck: Future[Shot]


class Trace:
    """Collects the lines of one stage, also into a file."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / "phases.pipe"
        self.sights: list[Sight] = []
        """In the order in which they were told; only grows."""
        self.newest_batch = -1
        """The newest complete one."""
        self._aim: _Aim | None = None
        self._synced = threading.Event()
        os.mkfifo(self.pipe)
        self._fd = os.open(self.pipe, os.O_RDWR)  # held open for writing too: it never ends
        self._file = (folder / "phases.txt").open("wb", buffering=0)
        self._thread = threading.Thread(target=self._collect, name="chaos-trace", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._fd, _STOP + b"\n")
        self._thread.join()
        self._file.close()
        os.close(self._fd)

    def aim(
        self, wanted: Callable[[Sight], bool], *, delay_s: float, strike: Callable[[int], None]
    ) -> Future[Shot]:
        """Strike the process of the next wanted line, a moment after it.

        Args:
            wanted: Chooses the line.
            delay_s: From the line to the strike.
            strike: Called with the process id; it is tried again with the next line if the process has gone.
        """
        aim = _Aim(wanted=wanted, delay_s=delay_s, strike=strike, struck=Future())
        self._aim = aim
        return aim.struck

    def phase_of(self, shot: Shot) -> str:
        """Return what the process that was aimed at was doing with that shard when something was struck."""
        self.sync()
        aimed = (shot.sight.pid, shot.sight.shard)
        seen = (s for s in reversed(self.sights) if (s.pid, s.shard) == aimed and s.at_ns <= shot.at_ns)
        return next(seen).phase

    def after(self, at_ns: int) -> Iterator[Sight]:
        """Yield what was told after a moment, the newest first."""
        for sight in reversed(self.sights):
            if sight.at_ns <= at_ns:
                return
            yield sight

    def sync(self) -> None:
        """Return once everything that was told before this call has been read."""
        self._synced.clear()
        os.write(self._fd, _SYNC + b"\n")
        if not self._synced.wait(_SYNC_TIMEOUT_S):
            raise RuntimeError("the trace was expected to be read, its thread does not answer")

    def _collect(self) -> None:
        rest = b""
        while True:
            *lines, rest = (rest + os.read(self._fd, 1 << 16)).split(b"\n")
            for line in lines:
                if line == _STOP:
                    return
                if line == _SYNC:
                    self._synced.set()
                else:
                    self._file.write(line + b"\n")
                    self._take(Sight.parse(line))

    def _take(self, sight: Sight) -> None:
        self.sights.append(sight)
        if sight.phase == BATCH_DONE:
            self.newest_batch = max(sight.batch, self.newest_batch)
        aim = self._aim
        if aim is None or not aim.wanted(sight):
            return
        time.sleep(aim.delay_s)
        try:
            aim.strike(sight.pid)
        except OSError:  # it has ended by itself: the next one
            return
        self._aim = None
        aim.struck.set_result(Shot(sight=sight, at_ns=time.monotonic_ns()))
