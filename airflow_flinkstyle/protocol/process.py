"""Identify the operating system process that a record names: a pid alone may be reused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTAINER = re.compile(r"container(?:_e\d+)?_(\d+_\d+)_\d+_\d+")
_DRIVER = re.compile(r"driver-\d+-\d+")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the kernel's random id of this boot: within one boot, a pid and a start time are one process."""
    return _BOOT_ID.read_text().strip()


def pid_namespace() -> str:
    """Return the pid namespace in which this process sees pids, as Linux numbers it.

    With the boot id it identifies where a pid counts: containers and machines may share a host name. Empty
    if ``/proc`` shows another namespace's processes, so that pids cannot be compared.
    """
    try:
        is_own = Path("/proc/self").readlink() == Path(str(os.getpid()))
        return str(Path("/proc/self/ns/pid").stat().st_ino) if is_own else ""
    except OSError:
        return ""


def process_started(pid: int) -> str | None:
    """Return ``<start time in clock ticks>@<boot id>`` of a living process; None if it has ended.

    A zombie has ended: it runs nothing any more, only its parent has not read its exit code. A leader thread
    is one as soon as it has ended itself: another thread may still be inside a write to a disk that hangs.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    threads = int(rest[16])  # the kernel counts a leader that has ended until its parent has read the code
    return None if state in "ZX" and threads <= 1 else f"{rest[18]}@{boot_id()}"


def recorded_start(pid: int) -> str:
    """Return a process's start as records hold it; that of an ended process matches no other."""
    return process_started(pid) or f"ended@{boot_id()}"


def cluster_id(env: Mapping[str, str], folder: Path) -> str:
    """Return the cluster manager's id of the driver that runs here; empty outside of clusters.

    Args:
        env: The driver's: YARN names the container in it, and Kubernetes the pod, if it is Spark's.
        folder: The one in which it was started: a standalone worker names it after the driver.
    """
    if match := _CONTAINER.fullmatch(env.get("CONTAINER_ID", "")):
        return f"application_{match[1]}"
    if "SPARK_DRIVER_BIND_ADDRESS" in env and "KUBERNETES_SERVICE_HOST" in env:
        return env.get("HOSTNAME", "")
    return folder.name if _DRIVER.fullmatch(folder.name) else ""
