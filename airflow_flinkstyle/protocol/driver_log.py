"""A driver's log in a file: rotated by the driver's agent, read at its end by callers.

The JVM, Python and whatever the script starts append to one open file, so the file cannot be replaced below
them: it is copied, then emptied, as with logrotate's ``copytruncate``. There is no pipe that can break and no
process between that can die; what is written between copy and emptying is lost.

A log bears its root, job, generation and claim in its name, so no other run appends to it; and its driver
holds a lock on it for as long as it lives, whichever process of it writes. Both are needed to delete one: the
name shows whose it is, a free lock that no process writes there any more.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH_VARIABLE = "FLINKSTYLE_DRIVER_LOG"
"""Names the file in the driver's environment; without it the agent rotates nothing."""
MOST_BYTES = 64 << 20
"""A log that is larger is rotated."""
KEPT = 4
"""How many rotated logs stay beside it: ``<log>.1`` is the newest."""
KEPT_RUNS = 20
"""How many of a job's newest runs keep their logs when one more begins."""
_TAIL_BYTES = 64 << 10
"""How much of the end is read: a driver that ran for months has written gigabytes."""
_ID_CHARACTERS = 8
_SETTING = re.compile(r"\t[\w.]+ = |.*Config values: ?$")
_NAME = re.compile(rf"(.+-[^-]{{1,{_ID_CHARACTERS}}})-\d{{6,}}-[^-]{{1,{_ID_CHARACTERS}}}\.log(?:\.\d+)?")
"""Its group 1 is the owner: job and root."""


def name_of(job: str, root_id: str, generation: int, claim_id: str) -> str:
    """Return the name of the log that all drivers of a generation append to."""
    return f"{job}-{root_id[:_ID_CHARACTERS]}-{generation:06d}-{claim_id[:_ID_CHARACTERS]}.log"


def hold(log: IO[bytes]) -> None:
    """Keep a log from being deleted until this process, and all that inherit it, have closed it.

    Raises:
        OSError: If its file system has no locks.
    """
    fcntl.flock(log, fcntl.LOCK_SH)


def rotate(path: Path, *, most_bytes: int = MOST_BYTES, kept: int = KEPT) -> bool:
    """Rotate a log that is larger than ``most_bytes``; return whether it was.

    Of two drivers that append to one log, one rotates it.

    Raises:
        OSError: If it could not be copied; the log is as it was.
    """
    if path.stat().st_size <= most_bytes:
        return False
    with _alone(path.parent), path.open("r+b") as log:
        if os.fstat(log.fileno()).st_size <= most_bytes:
            return False
        with _rotated(path, 0).open("wb") as copy:
            shutil.copyfileobj(log, copy)
            for number in range(kept, 0, -1):
                if _rotated(path, number - 1).exists():
                    _rotated(path, number - 1).replace(_rotated(path, number))
            shutil.copyfileobj(log, copy)  # what was written meanwhile
            copy.flush()
            log.truncate(0)
    return True


def delete_old(path: Path, *, kept: int = KEPT_RUNS) -> list[Path]:
    """Delete the logs of a job's earlier runs, except the newest and those in use; returns the deleted ones.

    Args:
        path: The newest run's log, named by ``name_of``; it exists.
        kept: How many runs keep their logs, this one included.

    Raises:
        OSError: If one could not be deleted.
    """
    own = _NAME.fullmatch(path.name)
    if own is None:
        return []
    runs: dict[str, list[Path]] = {}
    for found in path.parent.iterdir():
        match = _NAME.fullmatch(found.name)
        if match is not None and match[1] == own[1]:
            runs.setdefault(_stem(found), []).append(found)
    earlier = [logs for run, logs in runs.items() if run != _stem(path)]
    # Not by number: a job that was deleted and created again counts its generations from 1 again.
    earlier.sort(key=lambda logs: max(log.stat().st_mtime_ns for log in logs))
    over = earlier[: max(0, len(runs) - kept)]
    old = [log for logs in over if not _is_in_use(logs) for log in logs]
    for log in old:
        log.unlink(missing_ok=True)
    return old


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a log, of at most 64 KiB, those that were rotated away included.

    Raises:
        OSError: If it cannot be read.
    """
    text = _end_of(path, _TAIL_BYTES)
    if len(without_settings(text.decode(errors="replace"))) <= lines and _rotated(path, 1).exists():
        text = _end_of(_rotated(path, 1), _TAIL_BYTES - len(text)) + text
    return "\n".join(without_settings(text.decode(errors="replace"))[-lines:]).strip()


def without_settings(text: str) -> list[str]:
    """Return the lines of a log without the settings that Kafka's clients list, up to a hundred each time."""
    return [line for line in text.splitlines() if not _SETTING.match(line)]


def _end_of(path: Path, most_bytes: int) -> bytes:
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - most_bytes))
        return log.read(most_bytes)


def _rotated(path: Path, number: int) -> Path:
    """Return the name of a rotated log; 0 while it is being copied."""
    return path.with_name(f"{path.name}.{number}")


def _stem(log: Path) -> str:
    """Return the name of a log without its ending, and without the number of one that was rotated."""
    return re.sub(r"\.log(?:\.\d+)?$", "", log.name)


def _is_in_use(logs: list[Path]) -> bool:
    """Return whether a driver of this machine, or one that shares its locks, still writes to a run's log."""
    for path in logs:
        try:
            with path.open("ab") as log:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Exclude others who rotate logs in a folder; a log's own lock is its driver's."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
