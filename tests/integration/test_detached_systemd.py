"""Drivers that workers of a real systemd start, and what is left of them once their worker has stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.deployments.base import Unknown
from airflow_flinkstyle.jobs.status import Running
from testbed import systemd
from testbed.paths import ROOT
from testbed.process import ServiceError
from testbed.waiting import wait_until
from tests.integration import starting_worker
from tests.integration.detached_lab import TIMEOUT_S, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_JOB = """
import sys, time
from pathlib import Path
from tests.integration.detached_lab import TIMEOUT_S, Lab
lab = Lab(Path(sys.argv[1]))
lab.client.starts.start(lab.spec(), lab.target(), claim_key="start")
lab.client.drivers.wait_running(1, timeout_s=TIMEOUT_S)
(lab.folder / "started").touch()
time.sleep(1000)
"""
_JAVA = ("JAVA_HOME", "SPARK_LOCAL_IP", "PATH")
pytestmark = pytest.mark.integration

NOBODY = 65534
CANNOT = systemd.why_not()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[systemd.Systemd]:
    if CANNOT is not None:
        pytest.skip(CANNOT)
    machine = systemd.Systemd(tmp_path_factory.mktemp("systemd"))
    try:
        machine.start()
    except ServiceError as error:  # a sandbox may refuse what only systemd itself asks for
        pytest.skip(f"systemd does not start here: {error}")
    with contextlib.closing(machine):
        yield machine


@dataclass(frozen=True)
class Worker:
    """A service that starts a driver."""

    machine: systemd.Systemd
    name: str
    said: dict[str, Any]

    @classmethod
    def start(
        cls,
        machine: systemd.Systemd,
        name: str,
        *,
        uid: int = 0,
        kill_mode: str = "control-group",
        **env: str,
    ) -> Worker:
        unit = ("systemd-run", f"--unit={name}", f"--property=KillMode={kill_mode}", "--property=Type=exec")
        variables = [f"--setenv={key}={value}" for key, value in {"PYTHONPATH": str(ROOT), **env}.items()]
        folder, errors = f"/run/{name}", f"/run/{name}.errors"
        output = f"--property=StandardError=append:{errors}"
        machine.run(*unit, output, *variables, sys.executable, starting_worker.__file__, folder, str(uid))

        def has_said() -> bool:
            state = machine.run("systemctl", "show", "--property=ActiveState", "--value", f"{name}.service")
            assert state.strip() == "active", machine.run("cat", errors)
            return "said" in machine.run("find", "/run", "-path", f"{folder}/said")

        wait_until(f"{name} says something", has_said)
        return cls(machine, name, json.loads(machine.run("cat", f"{folder}/said")))

    def stop(self) -> None:
        self.machine.run("systemctl", "stop", f"{self.name}.service")

    def lives(self, pid: int | str) -> bool:
        """Return whether a process runs; a zombie does not."""
        stat = self.machine.run("sh", "-c", f"cat /proc/{pid}/stat 2>/dev/null || true")
        return bool(stat) and stat.rpartition(")")[2].split()[0] not in "ZX"


def test_driver_of_a_service_outlives_it_in_a_scope_of_its_own(machine: systemd.Systemd):
    worker = Worker.start(machine, "root-worker")
    assert worker.lives(worker.said["id"]["pid"])
    worker.stop()
    assert not worker.lives(worker.said["with_session"])  # setsid alone is not enough
    assert worker.lives(worker.said["id"]["pid"])
    units = machine.run("systemctl", "list-units", "--plain", "--no-legend", "flinkstyle-job-000001-*.scope")
    assert "running" in units


def test_driver_is_in_its_scope_once_it_was_started_however_slow_systemd_is(machine: systemd.Systemd):
    slow = machine.folder / "slow" / "systemd-run"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {shutil.which("systemd-run")} "$@"\n')
    slow.chmod(0o755)
    worker = Worker.start(machine, "hasty-worker", PATH=f"{slow.parent}:{os.environ['PATH']}")
    worker.stop()
    assert worker.lives(worker.said["id"]["pid"])


def test_service_that_leaves_processes_alone_needs_no_scope(machine: systemd.Systemd):
    worker = Worker.start(machine, "lenient-worker", uid=NOBODY, kill_mode="process")
    worker.stop()
    assert worker.lives(worker.said["with_session"])
    assert worker.lives(worker.said["id"]["pid"])
    assert "lenient" in machine.run("cat", f"/proc/{worker.said['id']['pid']}/cgroup")


def test_start_that_its_service_would_end_is_refused_by_name_unless_accepted(machine: systemd.Systemd):
    worker = Worker.start(machine, "strict-worker", uid=NOBODY)
    assert worker.said["code"] == "DIES_WITH_STARTER"
    assert "strict-worker.service, of which systemd ends all processes" in worker.said["text"]
    assert "Set KillMode=process in strict-worker.service" in worker.said["text"]
    assert "driver_may_end_with_worker" in worker.said["text"]
    accepted = Worker.start(machine, "accepted-worker", uid=NOBODY, ACCEPTED="yes")
    assert accepted.lives(accepted.said["id"]["pid"])
    accepted.stop()
    assert not accepted.lives(accepted.said["id"]["pid"])


def test_driver_of_a_user_that_lingers_outlives_the_service_in_a_scope_of_the_users(machine: systemd.Systemd):
    machine.run("install", "--directory", f"--owner={NOBODY}", "--mode=700", f"/run/user/{NOBODY}")
    machine.run("touch", "/var/lib/systemd/linger/nobody")
    machine.run("systemctl", "start", f"user@{NOBODY}.service")
    worker = Worker.start(machine, "users-worker", uid=NOBODY)
    assert "id" in worker.said, worker.said
    worker.stop()
    assert not worker.lives(worker.said["with_session"])
    assert worker.lives(worker.said["id"]["pid"])
    cgroup = machine.run("cat", f"/proc/{worker.said['id']['pid']}/cgroup")
    assert f"user@{NOBODY}.service/app.slice/flinkstyle-job-000001-" in cgroup


@pytest.mark.matrix
def test_job_that_a_service_started_runs_on_and_is_controlled_from_another_pid_namespace(
    machine: systemd.Systemd,
):
    lab = Lab(machine.folder)
    temporary = {"TMPDIR": str(lab.folder), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={lab.folder}"}
    env = {"PYTHONPATH": str(ROOT), **temporary, **{name: os.environ[name] for name in _JAVA}}
    run = ("systemd-run", "--unit=worker", *(f"--setenv={name}={value}" for name, value in env.items()))
    machine.run(*run, sys.executable, "-c", _START_JOB, lab.folder)

    def has_started() -> bool:
        machine.run("systemctl", "is-active", "worker.service")  # fails if the worker has ended
        return (lab.folder / "started").exists()

    wait_until("the job runs", has_started)
    machine.run("systemctl", "stop", "worker.service")
    batch = lab.until_committed_beyond(0)
    # The same boot, the same name of the host: yet no pid counts here, the lease alone does.
    (native_id, *_) = lab.client.view.native_ids(lab.client.view.run(1))
    assert native_id["host"] == socket.gethostname()
    assert isinstance(lab.client.view.deployment.state(native_id), Unknown)
    assert isinstance(lab.client.view.settled_status(), Running)
    lab.until_committed_beyond(batch)
    lab.client.requests.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
    lab.judge()
