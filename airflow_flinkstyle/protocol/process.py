"""Which operating system process a record speaks of: a pid alone is reused."""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def process_started(pid: int) -> str | None:
    """Return ``<start time in clock ticks>@<boot id>`` of a living process; None if it has ended.

    A zombie has ended: it runs nothing any more, somebody only has not asked for its exit code.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot_id = _BOOT_ID.read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    return None if state in "ZX" else f"{rest[18]}@{boot_id}"
