"""How far a savepoint is, in the log of the task that waits for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.progress import FileProgress, PaceMeter, progress_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.protocol.records import Progress
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress

_EVERY_S = 5.0


class ProgressLog:
    """Logs it at once, then every few seconds as long as it changes.

    Args:
        write: Takes one line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._meter = PaceMeter()
        self._reported_s = self._written_s = float("-inf")

    def captured(self, progress: CaptureProgress) -> None:
        """Log the progress of a savepoint that this process takes."""
        self._observe(time.monotonic(), progress)

    def reported(self, progress: Progress | None) -> None:
        """Log the driver's report; None before its first one."""
        if progress is not None and progress.at_ms / 1000 != self._reported_s:
            self._observe(progress.at_ms / 1000, progress)

    def _observe(self, at_s: float, progress: CaptureProgress | Progress) -> None:
        self._reported_s = at_s
        pace = self._meter.observe(at_s, bytes_done=progress.bytes_done, bytes_total=progress.bytes_total)
        if 0 <= at_s - self._written_s < _EVERY_S:
            return
        self._written_s = at_s
        amount = FileProgress(
            files_done=progress.files_done,
            files_total=progress.files_total,
            bytes_done=progress.bytes_done,
            bytes_total=progress.bytes_total,
        )
        self._write(progress_line(amount, pace))
