"""A deployment outside of the package: drivers on another host, by ssh, chosen with "deployment": "ssh".

``cluster-url`` in the connection's extra is the host. A process is told by its id, its start time and its
host's boot; whatever ssh cannot tell is Unknown, and then the lease decides.
"""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.deployments.base import Alive, DriverState, Gone, Unknown
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.target import Brought

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.jobs.target import SubmitTarget
    from airflow_flinkstyle.protocol.records import IncarnationRecord

_START = """mkdir -p {folder} "$(dirname {log})" && cd {folder} || exit 1
{exports}
setsid {command} >>{log} 2>&1 </dev/null &
echo $! $(started $!)@$(cat /proc/sys/kernel/random/boot_id)
"""
_STARTED = """started() { sed -n 's/.*) [^ZX] //p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f19; }\n"""
_STATE = (
    """[ "$(started {pid})@$(cat /proc/sys/kernel/random/boot_id)" = {id} ] && echo lives || echo ended"""
)
_KILL = """kill -9 -{pid}; while [ -n "$(started {pid})" ]; do sleep 0.1; done"""


class OverSsh:
    """A driver is a process that leads a session on the host."""

    name = "ssh"

    def __init__(self, target: SubmitTarget) -> None:
        own = target.deployment
        self._host = (own.cluster_url if isinstance(own, Brought) else None) or "localhost"
        self._folder = target.working_dir or "."

    def require_able(self) -> None:
        """Start drivers from anywhere."""

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Start the driver; what is secret is in the script on ssh's input, on no command line."""
        exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in submission.env.items())
        log = submission.log_path
        said = self._ask(
            _START.format(
                folder=shlex.quote(self._folder),
                exports=exports,
                command=shlex.join(submission.argv),
                log=shlex.quote(log),
            )
        )
        if said is None:  # it may have been started: never a second time
            return {"pid": "", "id": "", "log": log}
        if len(said.split()) != 2:
            raise DriverFailedError(
                f"A process was expected to start on {self._host}, found {said!r}.",
                state_after="No driver runs; the generation stays claimed.",
                remedy="Correct the Spark connection, and try again.",
            )
        pid, started = said.split()
        return {"pid": pid, "id": started, "log": log}

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Find nothing: a driver whose id was lost is found by its own record."""
        return None

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Name the process of a driver that described itself."""
        return {"pid": str(record.jvm_pid), "id": record.pid_started, "log": "", "said_by": "driver"}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Ask the host; no answer is no end."""
        pid, started = native_id["pid"], native_id["id"]
        if not pid.isdigit():
            return Unknown("its process was not recorded")
        said = self._ask(_STATE.format(pid=pid, id=shlex.quote(started)))
        known: dict[str, DriverState] = {"lives": Alive(), "ended": Gone()}
        return known.get((said or "").strip(), Unknown(f"{self._host} does not answer"))

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Kill the session of a driver that a caller started: anyone may have written what a record says."""
        if isinstance(self.state(native_id), Alive) and not native_id.get("said_by"):
            self._ask(_KILL.format(pid=native_id["pid"]))
        return self.state(native_id)

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return the end of the log on the host."""
        return self._ask(f"tail -n {lines} {shlex.quote(native_id['log'])}") or ""

    def _ask(self, script: str) -> str | None:
        """Return what a script said on the host; None if ssh failed."""
        command = ["ssh", "-o", "BatchMode=yes", self._host, "sh -s"]
        try:
            done = subprocess.run(  # noqa: S603 - no shell here, and the words are quoted for the one there
                command, input=_STARTED + script, capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode != 255 else None  # 255: ssh's own failure
