"""A driver's log in a file: rotated by the driver's agent, read at its end by callers.

The JVM, Python and whatever the script starts append to one open file, so the file cannot be replaced below
them: it is copied, then emptied, as with logrotate's ``copytruncate``. No pipe can break and no process
between can die; what is written in the moment between the two is lost.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PATH_VARIABLE = "FLINKSTYLE_DRIVER_LOG"
"""Names the file in the driver's environment; without it the agent rotates nothing."""
MOST_BYTES = 64 << 20
"""A log that is larger is rotated."""
KEPT = 4
"""How many rotated logs stay beside it: ``<log>.1`` is the newest."""
KEPT_RUNS = 20
"""Of how many of a job's runs the logs stay, where one more begins: the newest."""
_TAIL_BYTES = 64 << 10
"""How much is read for the end: a driver of months has written gigabytes."""


def rotate(path: Path, *, most_bytes: int = MOST_BYTES, kept: int = KEPT) -> bool:
    """Rotate a log that is larger than ``most_bytes``; return whether it was.

    Of two drivers that append to one log, one rotates it.

    Raises:
        OSError: If it could not be copied; the log is as it was.
    """
    if path.stat().st_size <= most_bytes:
        return False
    with path.open("r+b") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        if os.fstat(log.fileno()).st_size <= most_bytes:
            return False
        with _rotated(path, 0).open("wb") as copy:
            shutil.copyfileobj(log, copy)
            for number in range(kept, 0, -1):
                if _rotated(path, number - 1).exists():
                    _rotated(path, number - 1).replace(_rotated(path, number))
            shutil.copyfileobj(log, copy)  # what came meanwhile
            copy.flush()
            log.truncate(0)
    return True


def delete_old(path: Path, *, kept: int = KEPT_RUNS) -> list[Path]:
    """Delete the logs of a job's earlier runs, except those of the newest; returns what went.

    Args:
        path: The newest run's log, ``<job>-<generation>.log``; it is there.
        kept: Of how many runs they stay, this one included.

    Raises:
        OSError: If one could not be deleted.
    """
    job = path.stem.rpartition("-")[0]
    of_this_job = re.compile(rf"{re.escape(job)}-(\d+)\.log(\.\d+)?")
    runs: dict[int, list[Path]] = {}
    for found in path.parent.iterdir():
        if match := of_this_job.fullmatch(found.name):
            runs.setdefault(int(match[1]), []).append(found)
    old = [log for number in sorted(runs)[:-kept] for log in runs[number]]
    for log in old:
        log.unlink(missing_ok=True)
    return old


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a log, of at most 64 KiB, those that were rotated away included.

    Raises:
        OSError: If it cannot be read.
    """
    text = _end_of(path, _TAIL_BYTES)
    if text.count(b"\n") <= lines and _rotated(path, 1).exists():
        text = _end_of(_rotated(path, 1), _TAIL_BYTES - len(text)) + text
    return "\n".join(text.decode(errors="replace").splitlines()[-lines:]).strip()


def _end_of(path: Path, most_bytes: int) -> bytes:
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - most_bytes))
        return log.read(most_bytes)


def _rotated(path: Path, number: int) -> Path:
    """Return the name of a rotated log; 0 while it is being copied."""
    return path.with_name(f"{path.name}.{number}")
