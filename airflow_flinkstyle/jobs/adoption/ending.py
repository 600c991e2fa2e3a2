"""How the driver of plain Spark is ended, by what started it, and how its end is known.

Of a process on this machine the kernel shows that it and all that it had started are gone. Of a driver that
a command or a person ends, these show it: their answer, a second command that checks, and a checkpoint that
stands still. A job that still runs with nothing to read writes nothing either.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from airflow_flinkstyle.clock import CLOCK, Clock
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import OLD_JOB_RUNS
from airflow_flinkstyle.protocol.process import process_started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

log = logging.getLogger(__name__)
_UNTOUCHED: Final = "Nothing was ended; the old job runs on."
_COMMAND_S: Final = 120.0


class Ending(Protocol):
    """Ends the old driver."""

    @property
    def proves_itself(self) -> bool:
        """Whether its end is known for certain: then the checkpoint must stand still for a moment only."""

    def prepare(self) -> Mapping[str, Any]:
        """Return what ``end`` is to end, to be recorded first; raises if there is nothing to end."""

    def end(self, what: Mapping[str, Any]) -> str:
        """End what was prepared, also by an earlier try, and return how its end is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndProcess:
    """A process of this machine: ``spark-submit`` or its JVM, with everything that it has started."""

    pid: int
    grace_s: float = 10.0
    """Between the request to end (SIGTERM) and the end (SIGKILL)."""
    clock: Clock = CLOCK
    proves_itself: bool = True

    def prepare(self) -> dict[str, Any]:
        """Return the process and its children, each with its start: a pid alone is used again."""
        started = process_started(self.pid)
        if started is None or self.pid == os.getpid() or not _is_of_spark(self.pid):
            found_one = "none" if started is None else "one that Spark has no part in"
            raise BadInputError(
                f"A process {self.pid} of this machine was expected to be the old driver, found {found_one}.",
                state_after=_UNTOUCHED,
                remedy="Run this on the machine of the old driver, with the pid of its spark-submit.",
            )
        found = {self.pid: started, **_with_starts(_descendants(self.pid))}
        if any(_has_submitted_to_a_cluster(pid) for pid in found):  # the driver does not end with it
            raise BadInputError(
                f"A process {self.pid} of this machine was expected to be the old driver, found a submitter "
                "in cluster mode: the driver runs on a cluster.",
                state_after=_UNTOUCHED,
                remedy="Give the command that ends the driver there (--end-command), like "
                "yarn application -kill ID.",
            )
        return {"pid": self.pid, "processes": {str(pid): began for pid, began in found.items()}}

    def end(self, what: Mapping[str, Any]) -> str:
        """Ask it to end, and kill what still runs after the grace; raises if something cannot be killed.

        A retry may name another process: then both are ended, for the old job was started again.
        """
        wanted = {int(pid): str(started) for pid, started in what["processes"].items()}
        first = {int(what.get("pid", self.pid)), self.pid}
        if self.pid not in wanted and process_started(self.pid) is not None:
            wanted |= {int(pid): started for pid, started in self.prepare()["processes"].items()}
        for pid in list(wanted):
            if _lives(pid, wanted[pid]):  # it may have started more processes since
                wanted |= _with_starts(child for child in _descendants(pid) if child not in wanted)
        self._send_signal({pid: began for pid, began in wanted.items() if pid in first}, signal.SIGTERM)
        if not self._are_gone(wanted, self.grace_s):
            log.warning("Process %d has not ended in %.0f s: killing it", self.pid, self.grace_s)
            self._send_signal(wanted, signal.SIGKILL)
            if not self._are_gone(wanted, self.grace_s):
                alive = ", ".join(str(pid) for pid, started in wanted.items() if _lives(pid, started))
                raise OLD_JOB_RUNS.with_text(
                    f"The old driver (process {self.pid}) was expected to end, found process {alive} alive "
                    "after SIGKILL.",
                    remedy="Find out what keeps it (a disk that hangs), end it, then try again.",
                )
        root, others = min(first & wanted.keys(), default=self.pid), len(wanted) - 1
        return f"process {root} and {others} that it had started are gone, as the kernel says"

    def _are_gone(self, wanted: Mapping[int, str], within_s: float) -> bool:
        wait = self.clock.wait(within_s, every_s=0.05)
        while any(_lives(pid, started) for pid, started in wanted.items()):
            if not wait.again():
                return False
        return True

    @staticmethod
    def _send_signal(wanted: Mapping[int, str], number: signal.Signals) -> None:
        for pid, started in wanted.items():
            if _lives(pid, started):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndByCommand:
    """A command ends it: ``yarn application -kill ...``, ``kubectl delete sparkapplication ...``."""

    command: Sequence[str]
    gone: Sequence[str] = ()
    """Succeeds once it has ended; empty: only its checkpoint shows that."""
    timeout_s: float = _COMMAND_S
    clock: Clock = CLOCK
    proves_itself: bool = False

    def prepare(self) -> dict[str, Any]:
        """Return the command."""
        if not self.command:
            raise BadInputError(
                "A command that ends the old driver was expected, found none.",
                state_after=_UNTOUCHED,
                remedy="Give the command, a process, or end it yourself.",
            )
        return {"command": list(self.command)}

    def end(self, what: Mapping[str, Any]) -> str:
        """Run it; a retry runs it again, so it must succeed for what has ended already."""
        failure = _run(what["command"], self.timeout_s)
        if failure is not None:
            raise OLD_JOB_RUNS.with_text(
                f"The command {shlex.join(what['command'])} was expected to end the old driver, found that "
                f"it failed: {failure}",
                remedy="Correct the command, or end the driver otherwise, then try again.",
            )
        if not self.gone:
            return f"the command {shlex.join(what['command'])} succeeded"
        wait = self.clock.wait(self.timeout_s, every_s=0.5)
        while (failure := _run(self.gone, self.timeout_s)) is not None:
            if not wait.again():
                raise OLD_JOB_RUNS.with_text(
                    f"The old driver was expected to be gone within {self.timeout_s:.0f} s, found that "
                    f"{shlex.join(self.gone)} still fails: {failure}",
                    remedy="Look at it where it runs, then try again.",
                )
        return f"the command {shlex.join(self.gone)} says that it is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndByPerson:
    """A person ends it, and confirms that."""

    confirm: Callable[[], bool]
    """Asks the person; returns their answer."""
    who: str = "a person"
    said_at_ms: int | None = None
    """When they confirmed it, if that was before."""
    proves_itself: bool = False

    def prepare(self) -> dict[str, Any]:
        """Return when its end was confirmed; nothing if that is still to be asked."""
        return {} if self.said_at_ms is None else {"said_at_ms": self.said_at_ms}

    def end(self, what: Mapping[str, Any]) -> str:
        """Wait for the confirmation."""
        if not self.confirm():
            raise OLD_JOB_RUNS.with_text(
                "A person was expected to end the old driver, found that they did not.",
                state_after="The old job runs on; the driver that waits for it can keep waiting.",
                remedy="End it, then try again.",
            )
        return f"{self.who} says that it has ended"


def _run(command: Sequence[str], timeout_s: float) -> str | None:
    """Run a command; return None if it succeeded, else the end of its output, or why it did not run."""
    try:
        done = subprocess.run(  # noqa: S603  # a person's own command, no shell
            list(command), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    output = (done.stderr or done.stdout).strip()[-500:]
    return None if done.returncode == 0 else output or f"exit code {done.returncode}"


def _is_of_spark(pid: int) -> bool:
    """Return whether Spark is named in a process's command line: a mistyped pid must end nothing else."""
    try:
        return b"spark" in Path(f"/proc/{pid}/cmdline").read_bytes().lower()
    except OSError:
        return False


def _has_submitted_to_a_cluster(pid: int) -> bool:
    """Return whether a process's command line names Spark's cluster mode; defaults in a file may too."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    options = [*map("=".join, itertools.pairwise(arguments)), *arguments]
    in_cluster = ("--deploy-mode=cluster", "spark.submit.deployMode=cluster")
    return any(option.endswith(in_cluster) for option in options)


def _with_starts(pids: Iterable[int]) -> dict[int, str]:
    return {pid: started for pid in pids if (started := process_started(pid)) is not None}


def _lives(pid: int, started: str) -> bool:
    return process_started(pid) == started


def _descendants(pid: int) -> list[int]:
    """Return the children of a process, theirs, and so on."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *_descendants(child)]
    return found
