"""The processes of a Spark job, told by Linux; and a driver whose orphans outlive it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PROC = Path("/proc")
_LOG_TAIL = 4000
_DIES_WITHIN_S = 1.0


def parent_of(pid: int) -> int:
    """Return the parent's process id."""
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """Return what Linux tells of a process, from its state on."""
    # The command name stands in brackets and may hold anything, brackets too.
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def daemon_of(worker: int) -> int:
    """Return the daemon that forked a Python worker."""
    return _expected(parent_of(worker), b"pyspark.daemon")


def executor_of(worker: int) -> int:
    """Return the executor that a Python worker works for."""
    return _expected(parent_of(daemon_of(worker)), b"CoarseGrainedExecutorBackend")


def standalone_worker_of(worker: int) -> int:
    """Return the standalone worker that keeps the executor of a Python worker."""
    return _expected(parent_of(executor_of(worker)), b"org.apache.spark.deploy.worker.Worker")


def _expected(pid: int, command: bytes) -> int:
    """Orphans have other parents, which nobody may kill."""
    if command not in (PROC / str(pid) / "cmdline").read_bytes():
        raise ProcessLookupError(pid)
    return pid


def _state(pid: int) -> str:
    """Return Z for a dead process that its parent has not noted, X for one that has gone."""
    with contextlib.suppress(OSError):
        return _stat(pid)[0]
    return "X"


def _wait_while(busy: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _DIES_WITHIN_S
    while busy() and time.monotonic() < deadline_s:
        time.sleep(0.0002)


def is_python_worker(pid: int) -> bool:
    """Tell whether a process is a Python worker, dead ones apart; its number may be another's by now."""
    with contextlib.suppress(OSError):
        return _expected(pid, b"pyspark.daemon") == pid
    return False


def freeze_worker(pid: int) -> None:
    """Kill the daemon that would tell a Python worker to end with its executor; then stop the worker's clock.

    The other way round Linux would end the worker: a group that loses its last tie to its session gets
    SIGHUP and SIGCONT if one of its processes is stopped. That goes for the death of the daemon, and for its
    parent's if that has not yet taken note of it.
    """
    daemon = daemon_of(pid)
    os.kill(daemon, signal.SIGKILL)
    _wait_while(lambda: _state(daemon) not in "ZX")
    os.kill(pid, signal.SIGSTOP)
    _wait_while(lambda: _state(daemon) != "X")


def session_of(leader: int) -> Iterator[int]:
    """Yield the live processes of a session."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    yield int(entry.name)


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Driver:
    """One incarnation of the job's driver: Python, JVM and, where it is local, the Python workers."""

    def __init__(self, incarnation: int, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.incarnation, self.log = incarnation, log
        with log.open("wb") as out:
            self._process = subprocess.Popen(  # noqa: S603  # starting it is the purpose
                command,
                env=dict(env),
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """False once it has ended by itself or was killed."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal Python and JVM at once; workers are in a group of their own."""
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kill Python and JVM; workers end, or remain as orphans."""
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self._process.wait(60)

    def clear(self) -> None:
        """End everything of it, orphans too."""
        for pid in session_of(self._process.pid):
            send(pid, signal.SIGKILL)
        self._process.wait(60)

    def last_words(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:]
