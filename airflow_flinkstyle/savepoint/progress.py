"""How far work on a savepoint's files is, how fast it goes and how long it will take. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_WINDOW_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProgress:
    """How many of the files are done."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPace:
    """The rate of the last seconds, and the time that the rest takes at it."""

    bytes_per_s: float | None
    """None until two moments were seen."""
    left_s: float | None
    """Seconds until all bytes are done; None while nothing moves."""


def progress_line(amount: FileProgress, pace: TransferPace) -> str:
    """Render both as one line of a log."""
    mib = 1 << 20
    line = (
        f"{amount.files_done} of {amount.files_total} files, "
        f"{amount.bytes_done / mib:.1f} of {amount.bytes_total / mib:.1f} MiB"
    )
    if pace.bytes_per_s is not None:
        line += f", {pace.bytes_per_s / mib:.1f} MiB/s"
    if pace.left_s is not None:
        line += f", {pace.left_s:.0f} s left"
    return line


@dataclass(slots=True)
class PaceMeter:
    """Turns observations into a rate over the last ten seconds and the seconds left."""

    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def observe(self, at_s: float, *, bytes_done: int, bytes_total: int) -> TransferPace:
        """Add an observation.

        Args:
            at_s: Seconds on any clock that does not go back; progress records bring their own.
            bytes_done: Bytes done by then; fewer than before mean that the work started over.
            bytes_total: Bytes to do.
        """
        if self._seen and (bytes_done < self._seen[-1][1] or at_s < self._seen[-1][0]):
            self._seen.clear()
        self._seen.append((at_s, bytes_done))
        while len(self._seen) > 2 and self._seen[1][0] <= at_s - _WINDOW_S:
            self._seen.popleft()
        first_s, first_bytes = self._seen[0]
        if at_s == first_s:
            return TransferPace(bytes_per_s=None, left_s=None)
        rate = (bytes_done - first_bytes) / (at_s - first_s)
        remaining = max(0, bytes_total - bytes_done)
        left_s = remaining / rate if rate else (None if remaining else 0.0)
        return TransferPace(bytes_per_s=rate, left_s=left_s)
