"""Drivers as processes of this machine that outlive the task, and the Airflow, that started them.

Also the input of a supervisor beside such a driver.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from glob import iglob
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Final

from airflow_flinkstyle.jobs.deployments import survival
from airflow_flinkstyle.jobs.deployments.base import (
    CLAIM,
    OF_ANOTHER,
    SUCCEEDED,
    Alive,
    DriverState,
    Gone,
    Submission,
    Unknown,
)
from airflow_flinkstyle.jobs.deployments.class_archive import with_archive
from airflow_flinkstyle.jobs.deployments.refusals import FINAL_ERRNOS, not_taken
from airflow_flinkstyle.jobs.errors import DiesWithStarterError
from airflow_flinkstyle.jobs.packing import DriverAgent, HandOver, require_agent
from airflow_flinkstyle.jobs.signing import KEY_VARIABLE, PREVIOUS_VARIABLE
from airflow_flinkstyle.protocol import driver_log
from airflow_flinkstyle.protocol.process import boot_id, pid_namespace, process_started, recorded_start
from airflow_flinkstyle.python_versions import SAFE_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.protocol.records import IncarnationRecord

SUPERVISOR: Final = "airflow_flinkstyle.jobs.deployments.supervisor"
"""The module that a supervisor runs, as its command line names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a supervisor reads from its standard input, since a driver's environment holds credentials."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    log_path: str
    native_id: Mapping[str, str]
    """The driver process to supervise."""
    class_archives: bool = False
    """Whether later drivers may start from an archive of classes, which this one may have begun to make."""

    def to_json(self) -> str:
        """Render it as JSON."""
        names = ("argv", "env", "cwd", "log_path", "native_id", "class_archives")
        return json.dumps({name: getattr(self, name) for name in names})

    @property
    def submission(self) -> Submission:
        """How the driver was started."""
        return Submission(
            argv=tuple(self.argv), marker=(), env=self.env, cwd=self.cwd, log_path=self.log_path
        )


def option(argv: tuple[str, ...], name: str) -> str:
    """Return the value of a launcher's option in a driver's command line."""
    return argv[argv.index(f"--{name}") + 1]


def environment(starter: Mapping[str, str], reaches: Mapping[str, str]) -> dict[str, str]:
    """Return a supervisor's environment: that of its starter, without signing keys and Airflow's secrets.

    Args:
        starter: The environment of the caller.
        reaches: Variables with which the store is reached, added to it.
    """
    hidden = (KEY_VARIABLE, PREVIOUS_VARIABLE)
    kept = {
        name: value
        for name, value in starter.items()
        if name not in hidden and not name.startswith("AIRFLOW_")
    }
    return {**kept, **reaches}


log = logging.getLogger(__name__)

_KILL_TIMEOUT_S = 10.0
"""How long a killed process may take to end."""
_EXEC_POLLS, _EXEC_POLL_S = 200, 0.01
_SCOPE_TIMEOUT_S = 20.0
"""How long systemd may take to put a process into a scope; a probe has just been put into one."""
_DRIVERS_OPTIONS = ("root", "job", "generation")

_children: dict[int, subprocess.Popen[bytes]] = {}  # kept, so that ended ones are reaped by poll()


@dataclass(frozen=True, slots=True)
class Detached:
    """A process of this machine is the driver; its executors may be on a cluster."""

    how: ClassVar = HandOver()
    agent: ClassVar = DriverAgent()


class DetachedDeployment:
    """``spark-submit`` in a session of its own, input closed, output in a file that its agent rotates.

    Under systemd it also gets a scope of its own if the starter's unit would end it (``survival``).
    """

    name = "detached"
    binds_claims = True

    def __init__(
        self,
        *,
        namespace: str | None = None,
        may_end_with_starter: bool = False,
        supervisor_env: Mapping[str, str] | None = None,
        class_archives: bool = False,
    ) -> None:
        """Prepare.

        Args:
            namespace: The pid namespace of the native ids; None for that of this process.
            may_end_with_starter: Start drivers also where they end with the task or the worker.
            supervisor_env: Variables with which a supervisor beside each driver reaches the store, added to
                this process's environment; None for no supervisor.
            class_archives: Let drivers start from an archive of Spark's classes, which the first one makes.
        """
        self._class_archives = class_archives
        self._supervisor_env = supervisor_env
        self._namespace = pid_namespace() if namespace is None else namespace
        self._may_end_with_starter = may_end_with_starter

    def require_able(self) -> None:
        """Refuse to start drivers that would end with the task or the worker, or that have no agent.

        Raises:
            BadInputError: If this package is not here as a whole.
            DiesWithStarterError: Unless that is accepted.
        """
        require_agent()
        self._way_out()

    def _way_out(self) -> tuple[str, ...]:
        try:
            return survival.way_out()
        except DiesWithStarterError as error:
            if not self._may_end_with_starter:
                raise
            log.warning("Starting a driver that may end with its starter: %s", error.problem)
            return ()

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Start the driver and return at once with its native id."""
        _reap()
        if self._class_archives:
            submission = replace(submission, env=with_archive(submission))
        path, way_out = Path(submission.log_path), self._way_out()
        try:
            if shutil.which(submission.argv[0], path=submission.env.get("PATH")) is None:
                raise FileNotFoundError(errno.ENOENT, "no such program")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as output:
                _hold(output, path)
                process = _outliving(
                    submission.argv,
                    way_out,
                    name=path.stem,
                    output=output,
                    env={**submission.env, driver_log.PATH_VARIABLE: str(path.absolute())},
                    cwd=submission.cwd,
                )
        except OSError as error:
            raise not_taken(
                f"it could not be started with {submission.argv[0]}: {error}.",
                by="This machine",
                remedy="Correct the Spark connection (Spark home, Python, log folder), or this machine.",
                why=FINAL_ERRNOS.get(error.errno or 0),
            ) from error
        log.info("Started driver process %d, log %s", process.pid, path)
        try:
            driver_log.delete_old(path)
        except OSError as error:  # the driver runs all the same
            log.warning("Logs of earlier runs are left where they are: %s", error)
        native_id = self._id(process.pid, recorded_start(process.pid), str(path))
        if self._supervisor_env is not None:
            self._supervise(submission, native_id, way_out)
        return native_id

    def _supervise(
        self, submission: Submission, native_id: Mapping[str, str], way_out: tuple[str, ...]
    ) -> None:
        """Start a process that starts the driver again at once; without it watchers do, later."""
        task = Task(
            argv=submission.argv,
            env=submission.env,
            cwd=submission.cwd,
            log_path=submission.log_path,
            native_id=native_id,
            class_archives=self._class_archives,
        )
        path = Path(submission.log_path)
        command = (sys.executable, *SAFE_PATH, "-m", SUPERVISOR, "--claim", option(submission.argv, "claim"))
        try:
            with path.open("ab") as output:
                _outliving(
                    command,
                    way_out,
                    name=f"{path.stem}-supervisor",
                    output=output,
                    env=environment(os.environ, self._supervisor_env or {}),
                    cwd="/",
                    stdin=task.to_json().encode(),
                )
        except OSError as error:
            log.warning("The driver runs without a supervisor: %s", error)

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Look for a process whose command line holds the submission's marker."""
        wanted = "\0".join(submission.marker).encode() + b"\0"
        for _ in range(_EXEC_POLLS):
            leaders = list(_session_leaders())
            for pid, started, command in leaders:
                if wanted in command:
                    return self._id(pid, started, submission.log_path)
            if all(command for _, _, command in leaders):
                break
            # Empty while a process replaces itself, as spark-submit does several times (exec): read it again.
            time.sleep(_EXEC_POLL_S)
        return None

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Name the JVM of a driver that described itself."""
        return {
            "host": record.host,
            "namespace": record.pid_namespace,
            "pid": str(record.jvm_pid),
            "started": record.pid_started,
            "log": "",
        }

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Compare pid and start time, within one boot and one pid namespace only."""
        if not self._sees(native_id):
            return Unknown(f"it was started on {native_id['host']}, out of sight of {socket.gethostname()}")
        _reap()
        return Alive() if process_started(int(native_id["pid"])) == native_id["started"] else Gone()

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Kill the driver's whole session: the JVM, the Python process under it, and that JVM's workers.

        Gone means that none of them is left. Spark's workers have a process group of their own, and outlive a
        killed JVM for a moment, or as long as they are frozen.
        """
        state, pid = self.state(native_id), int(native_id["pid"])
        if isinstance(state, Unknown):
            return state
        if SUCCEEDED not in native_id:
            _end_supervisors(native_id.get(CLAIM))
        if isinstance(state, Gone) and process_started(pid) is not None:
            return state  # the pid, and so the session, belongs to another process by now
        group = _group_of(pid)
        if _is_of(os.getpid(), group):
            return Unknown("it runs in this process's own group or session")
        if not _members(group):
            return Gone()
        if not _is_driver(group, native_id):  # a forged record can name any process
            return Unknown(OF_ANOTHER) if _members(group) else Gone()
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while time.monotonic() < deadline:
            members = _members(group)
            if isinstance(self.state(native_id), Gone) and not members:
                return Gone()
            for member in members:  # again: one may have been forked since
                _kill(member, group)
            time.sleep(0.05)
        return Unknown(f"it did not end within {_KILL_TIMEOUT_S:g} s of SIGKILL")

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return the last lines of the log file."""
        try:
            return driver_log.tail(Path(native_id.get("log") or "/nonexistent"), lines)
        except OSError:
            return ""

    def _sees(self, native_id: Mapping[str, str]) -> bool:
        """Return whether a pid means a process here; host names do not show it, two hosts may share one."""
        booted = native_id["started"].partition("@")[2]
        return native_id.get("namespace") == self._namespace != "" and booted == boot_id()

    def _id(self, pid: int, started: str, log_path: str) -> dict[str, str]:
        return {
            "host": socket.gethostname(),
            "namespace": self._namespace,
            "pid": str(pid),
            "started": started,
            "log": log_path,
        }


def _hold(output: IO[bytes], path: Path) -> None:
    """Lock the log, so that no later start deletes it while the driver, which inherits the lock, lives."""
    try:
        driver_log.hold(output)
    except OSError as error:  # the driver can start without the lock
        log.warning("Log %s may be deleted while its driver writes to it: %s", path, error)


def _outliving(
    command: Sequence[str],
    way_out: tuple[str, ...],
    *,
    name: str,
    output: IO[bytes],
    env: Mapping[str, str],
    cwd: str | None,
    stdin: bytes = b"",
) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one, in a session of its own; returns once it does.

    Args:
        command: What to run.
        way_out: As ``survival.way_out`` returns it.
        name: Of its scope, if it needs one.
        output: Its output and errors.
        env: All of its environment.
        cwd: Its working directory; None for that of this process.
        stdin: Its input.

    Raises:
        OSError: If it cannot be started, or takes no input.
    """
    scope = f"flinkstyle-{name}-{secrets.token_hex(4)}"
    process = subprocess.Popen(  # noqa: S603 - of submit_argv, or this package's own module; no shell
        (*way_out, f"--unit={scope}", "--", *command) if way_out else command,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    _children[process.pid] = process
    if process.stdin is not None:
        with process.stdin as stream:
            stream.write(stdin)
    if way_out:
        _until_in_scope(process, scope)
    return process


def _until_in_scope(process: subprocess.Popen[bytes], scope: str) -> None:
    """Return once a process is in its scope, or has ended: before that, a unit that stops would end it.

    ``systemd-run`` asks for the scope, moves itself into it, and becomes what it was asked to run.
    """
    deadline = time.monotonic() + _SCOPE_TIMEOUT_S
    while scope.encode() not in _of_process(process.pid, "cgroup") and process.poll() is None:
        if time.monotonic() > deadline:
            log.warning("Process %d is not in scope %s yet", process.pid, scope)
            return
        time.sleep(_EXEC_POLL_S)


def _session_leaders() -> Iterator[tuple[int, str, bytes]]:
    """Yield pid, start time and command line of every live process that leads a session."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            leads = os.getsid(pid) == pid
        except OSError:
            continue  # it has just ended, or belongs to another user
        command = _of_process(pid, "cmdline") if leads else b""
        started = process_started(pid) if leads else None  # last: one that ends has no command line
        if started is not None:
            yield pid, started, command


def _end_supervisors(claim_id: str | None) -> None:
    """End the supervisors that would start a claim's driver again; its drivers run on."""
    if not claim_id:
        return
    wanted = f"\0-m\0{SUPERVISOR}\0--claim\0{claim_id}\0".encode()
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while time.monotonic() < deadline:
        found = [
            pid for pid, _, command in _session_leaders() if command.endswith(wanted) and pid != os.getpid()
        ]
        if not found:
            return
        for pid in found:
            _kill(pid, pid)
        time.sleep(0.02)
        _reap()


def _reap() -> None:
    """Reap children of this process that have ended."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)


def _group_of(pid: int) -> int:
    """Return a driver's process group: its own, also once it has ended, since it led its session."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return pid


def _is_driver(group: int, native_id: Mapping[str, str]) -> bool:
    """Return whether a process of the group belongs to the driver of the native id's claim.

    Such a process has a driver's command line with that claim; or, if only children of the driver are left,
    the log path that all processes of this claim inherit in their environment. A driver's Python ends by
    itself once its JVM was killed, and its command line is empty meanwhile: this waits for that.
    """
    claim_id, log_path = native_id.get(CLAIM), native_id.get("log")
    if not claim_id:
        return False
    options = [f"\0--{option}\0".encode() for option in _DRIVERS_OPTIONS]
    options.append(f"\0--claim\0{claim_id}\0".encode())
    variable = f"\0{driver_log.PATH_VARIABLE}={Path(log_path).absolute()}\0".encode() if log_path else None
    for _ in range(_EXEC_POLLS):
        members = _members(group)
        commands = [_of_process(pid, "cmdline") for pid in members]
        if any(all(option in command for option in options) for command in commands):
            return True
        if variable and any(variable in b"\0" + _of_process(pid, "environ") for pid in members):
            return True
        if all(commands):
            break
        time.sleep(_EXEC_POLL_S)  # empty while a process replaces itself, or ends
    return False


def _of_process(pid: int, what: str) -> bytes:
    """Return a file of a process below ``/proc``; of another thread if the leader thread has ended."""
    threads = iglob(f"/proc/{pid}/task/*")  # noqa: PTH207 - Path.glob raises if the process ends meanwhile
    for folder in chain([f"/proc/{pid}"], threads):
        with contextlib.suppress(OSError):
            if content := Path(folder, what).read_bytes():
                return content
    return b""


def _members(group: int) -> list[int]:
    """Return the live processes of a group, and of the session that it leads if it leads one.

    Zombies are left out: they may stay for long.
    """
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _is_of(pid, group) and process_started(pid) is not None]


def _is_of(pid: int, group: int) -> bool:
    try:
        return group in (os.getpgid(pid), os.getsid(pid))
    except OSError:
        return False


def _kill(pid: int, group: int) -> None:
    """Kill a process if it is still of that group or session; its pid may be another process's by now."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if _is_of(pid, group):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)
