"""Whether a process that is started here outlives its starter: a session of its own is not enough.

systemd ends all processes in a service's cgroup with the service, in whatever session they are; a container
ends with all of its processes. Nothing is needed where neither ends with a task or a restart of a worker.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import DiesWithStarterError, MayDieWithStarterError
from airflow_flinkstyle.patience import patiently

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTING = "driver_may_end_with_worker"
"""The field of a ``flinkstyle`` connection with which a person accepts that drivers end."""
_TASK_CONTAINERS = ("AIRFLOW_IS_K8S_EXECUTOR_POD", "AIRFLOW_IS_EXECUTOR_CONTAINER")
"""What Airflow's executors set in a pod (KubernetesExecutor) or container (ECS, Batch) of one task."""
_ONE_TASK = re.compile(rb"airflow\.sdk\.execution_time\.execute_workload|airflow\0tasks\0run\0")
_SYSTEMD = Path("/run/systemd/system")  # there if systemd manages this machine or container: sd_booted(3)
_LINGER = Path("/var/lib/systemd/linger")
_USER_MANAGER = re.compile(r"user@\d+\.service")
_ASK_TIMEOUT_S = 20
_PATIENCE_S, _ASK_AGAIN_S = 30.0, 1.0
_LOST = re.compile(
    "timed out|disconnected|not connected|reset by peer|Connection refused|Broken pipe|"
    "temporarily unavailable"
)
"""What systemd's programs print while the bus or the manager is away, such as during ``daemon-reexec``.

Their exit code is that of a refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A systemd unit."""

    name: str
    is_users: bool
    """Whether the user's own manager runs it, not the system's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemdAnswer:
    """What a program of systemd answered."""

    is_yes: bool
    text: str
    """What it printed; an error's text if it failed."""
    was_lost: bool = False
    """Whether systemd did not answer: it may if it is asked again."""


def way_out() -> tuple[str, ...]:
    """Return the prefix with which a command outlives this process's service or container; mostly empty.

    Raises:
        DiesWithStarterError: If there is none.
        MayDieWithStarterError: If systemd does not answer.
    """
    if (container := one_task_container(os.environ, _pid_1())) is not None:
        raise _refused(
            container,
            "Run this task where workers outlive tasks, for example with executor='CeleryExecutor'; Spark's "
            "executors can still run on a cluster.",
        )
    unit = unit_of(Path("/proc/self/cgroup").read_text()) if _SYSTEMD.is_dir() else None
    if unit is None:
        return ()
    return patiently(
        lambda: _way_out_of(unit), of=(MayDieWithStarterError,), for_s=_PATIENCE_S, every_s=_ASK_AGAIN_S
    )


def one_task_container(env: Mapping[str, str], pid_1: bytes) -> str | None:
    """Describe the container of this process if it is made for one task only, else None.

    Args:
        env: Of this process.
        pid_1: The command line of the first process, as ``/proc`` shows it.
    """
    if any(env.get(name) for name in _TASK_CONTAINERS) or _ONE_TASK.search(pid_1):
        return "a pod or container that was made for this task and ends with it"
    return None


def unit_of(cgroups: str) -> Unit | None:
    """Return the unit that a process belongs to; None outside of any.

    Args:
        cgroups: What ``/proc/<pid>/cgroup`` holds.
    """
    paths = dict(line.split(":", 2)[1:] for line in cgroups.splitlines())
    for hierarchy in ("name=systemd", ""):  # before cgroup v2, systemd had a hierarchy of its own
        parts = [part for part in paths.get(hierarchy, "").split("/") if not part.endswith(".slice")]
        units = [part for part in parts if part.endswith((".service", ".scope")) and part != "init.scope"]
        if len(units) > 1 and _USER_MANAGER.fullmatch(units[0]):
            return Unit(name=units[1], is_users=True)
        if units:
            return Unit(name=units[0], is_users=False)
    return None


def _way_out_of(unit: Unit) -> tuple[str, ...]:
    """Return the prefix with which a command outlives a unit; raises as ``way_out``."""
    answers = [_spares_processes(unit)]
    if answers[0].is_yes:
        return ()
    for scope in _scopes(unit):
        answers.append(_ask(*scope, "--", "true"))
        if answers[-1].is_yes:
            return scope
    remedy = f"Set KillMode=process in {unit.name}; or let its user start scopes (`loginctl enable-linger`)."
    lost = [answer.text for answer in answers if answer.was_lost]
    if lost:
        raise _refused(
            f"{unit.name}, and no answer of systemd whether its processes outlive it: {'; '.join(lost)}",
            f"Nothing, if it passes: a retry asks again. If it stays: {remedy}",
            kind=MayDieWithStarterError,
        )
    raise _refused(
        f"{unit.name}, of which systemd ends all processes when it stops, and no scope outside of it "
        f"could be started: {'; '.join(answer.text for answer in answers[1:])}",
        remedy,
    )


def _spares_processes(unit: Unit) -> SystemdAnswer:
    """Ask whether processes that a unit's processes leave behind outlive the unit.

    A scope ends when its last process does; but logind may end the scope of a session at its logout.
    """
    if unit.name.endswith(".scope"):
        if not unit.name.startswith("session-"):
            return SystemdAnswer(is_yes=True, text="")
        manager = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
        answer = _ask("busctl", "get-property", *manager, "KillUserProcesses")
        return replace(answer, is_yes=answer.text == "b false")
    users = ("--user",) if unit.is_users else ()
    answer = _ask("systemctl", *users, "show", "--property=KillMode", "--value", unit.name)
    return replace(answer, is_yes=answer.text in ("process", "none"))


def _scopes(unit: Unit) -> list[tuple[str, ...]]:
    """Return the commands that may start a process in a scope of its own, beside ``unit``."""
    run = (shutil.which("systemd-run") or "systemd-run",)
    options = ("--scope", "--collect", "--quiet", "--no-ask-password")
    # An Airflow without a login session does not have the variable that names the user's manager.
    runtime = f"XDG_RUNTIME_DIR={os.environ.get('XDG_RUNTIME_DIR', f'/run/user/{os.getuid()}')}"
    users = (shutil.which("env") or "env", runtime, *run, "--user", *options)
    if unit.is_users:
        return [users]
    # Without lingering the user's manager ends, with all that it runs, when the user logs out.
    return [(*run, *options), *([users] if _lingers() else [])]


def _lingers() -> bool:
    try:
        return (_LINGER / pwd.getpwuid(os.getuid()).pw_name).exists()
    except KeyError:
        return False  # a user without a name has no manager


def _pid_1() -> bytes:
    try:
        return Path("/proc/1/cmdline").read_bytes()
    except OSError:
        return b""  # hidden from other users: then it is not a task's


def _ask(*command: str) -> SystemdAnswer:
    """Return the answer of a program; one that is missing, or may not be run, answers no."""
    try:
        done = subprocess.run(  # noqa: S603 - programs of systemd, no shell
            command,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
        )
    except (FileNotFoundError, PermissionError) as error:
        return SystemdAnswer(is_yes=False, text=str(error))
    except (OSError, subprocess.TimeoutExpired) as error:
        return SystemdAnswer(is_yes=False, text=str(error), was_lost=True)
    if done.returncode == 0:
        return SystemdAnswer(is_yes=True, text=done.stdout.strip())
    error_text = done.stderr.strip()
    was_lost = done.returncode < 0 or bool(_LOST.search(error_text))
    return SystemdAnswer(is_yes=False, text=error_text, was_lost=was_lost)


def _refused(
    here: str, remedy: str, kind: type[DiesWithStarterError] = DiesWithStarterError
) -> DiesWithStarterError:
    return kind(
        f"A place where a driver outlives the task that starts it was expected, found {here}.",
        state_after="No driver was started, and nothing was stopped.",
        remedy=f"{remedy} If drivers may end with it, set {SETTING} in the flinkstyle connection, or "
        "FLINKSTYLE_DRIVER_MAY_END_WITH_WORKER=true for a command.",
    )
