"""Where a driver would end with what starts it, from what the operating system shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.deployments import survival
from airflow_flinkstyle.jobs.deployments.survival import Unit, one_task_container, unit_of, way_out
from airflow_flinkstyle.jobs.errors import DiesWithStarterError, MayDieWithStarterError

if TYPE_CHECKING:
    from pathlib import Path

AIRFLOW = "system.slice/airflow-worker.service"


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        (f"0::/{AIRFLOW}\n", Unit(name="airflow-worker.service", is_users=False)),
        (f"0::/{AIRFLOW}/payload\n", Unit(name="airflow-worker.service", is_users=False)),
        (f"5:cpu:/\n1:name=systemd:/{AIRFLOW}\n0::/\n", Unit(name="airflow-worker.service", is_users=False)),
        ("4:memory:/x.service\n1:name=systemd:/\n0::/\n", None),
        ("0::/user.slice/user-7.slice/session-3.scope\n", Unit(name="session-3.scope", is_users=False)),
        (
            "0::/user.slice/user-7.slice/user@7.service/app.slice/airflow.service\n",
            Unit(name="airflow.service", is_users=True),
        ),
        (
            "0::/user.slice/user-7.slice/user@7.service/init.scope\n",
            Unit(name="user@7.service", is_users=False),
        ),
        ("0::/init.scope\n", None),
        ("0::/\n", None),
        ("0::/..\n", None),
        ("", None),
    ],
)
def test_unit_is_read_from_the_cgroup(cgroups: str, unit: Unit | None):
    assert unit_of(cgroups) == unit


@pytest.mark.parametrize(
    ("env", "pid_1"),
    [
        ({"AIRFLOW_IS_K8S_EXECUTOR_POD": "True"}, b"/pause\0"),
        ({"AIRFLOW_IS_EXECUTOR_CONTAINER": "true"}, b""),
        ({}, b"python\0-m\0airflow.sdk.execution_time.execute_workload\0--json-string\0{}\0"),
        ({}, b"/usr/bin/dumb-init\0--\0airflow\0tasks\0run\0dag\0task\0"),
    ],
)
def test_container_of_one_task_is_known(env: dict[str, str], pid_1: bytes):
    assert "ends with it" in (one_task_container(env, pid_1) or "")


@pytest.mark.parametrize(
    "pid_1",
    [
        b"/sbin/init\0",
        b"/usr/bin/dumb-init\0--\0/entrypoint\0celery\0worker\0",
        b"/usr/bin/dumb-init\0--\0/entrypoint\0scheduler\0",
        b"",
    ],
)
def test_container_of_a_worker_that_lives_on_may_start_drivers(pid_1: bytes):
    in_kubernetes = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "AIRFLOW__CORE__EXECUTOR": "KubernetesExecutor"}
    assert one_task_container(in_kubernetes, pid_1) is None


@dataclass(frozen=True, slots=True)
class Systemd:
    """Programs of systemd that answer what a test tells them; this process is in a service's cgroup."""

    folder: Path

    def answers(self, program: str, *each_time: str) -> None:
        """Let a program run these lines of a shell, one each time; the last one again and again."""
        cases = "".join(f"{number}) {line} ;;\n" for number, line in enumerate(each_time[:-1], start=1))
        script = self.folder / program
        script.write_text(
            f"#!/bin/sh\necho >> {script}.asked\ncase $(wc -l < {script}.asked) in\n"
            f"{cases}*) {each_time[-1]} ;;\nesac\n"
        )
        script.chmod(0o755)

    def asked(self, program: str) -> int:
        return len((self.folder / f"{program}.asked").read_text().splitlines())


KILLS, SPARES = "echo control-group", "echo process"
LOST = "echo 'Failed to connect to bus: Connection reset by peer' >&2; exit 1"
LOST_REQUEST = "echo 'Message recipient disconnected from message bus without replying' >&2; exit 1"
DENIED = "echo 'Failed to start transient scope unit: Access denied' >&2; exit 1"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(survival, "_SYSTEMD", tmp_path)
    monkeypatch.setattr(survival, "_ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(survival, "_lingers", lambda: False)
    monkeypatch.setattr(survival, "unit_of", lambda _: Unit(name="airflow.service", is_users=False))
    return Systemd(tmp_path)


@pytest.mark.parametrize("lost", [LOST, LOST_REQUEST, "kill -9 $$"])
def test_question_that_systemd_does_not_answer_is_asked_again(lost: str, systemd: Systemd):
    systemd.answers("systemctl", lost, lost, SPARES)
    systemd.answers("systemd-run", DENIED)
    assert way_out() == ()


def test_scope_that_systemd_does_not_answer_for_is_tried_again(systemd: Systemd):
    systemd.answers("systemctl", KILLS)
    systemd.answers("systemd-run", LOST_REQUEST, "exit 0")
    assert way_out()[:2] == (str(systemd.folder / "systemd-run"), "--scope")


@pytest.mark.parametrize("lost", [LOST, "exec sleep 60"])
def test_start_may_be_tried_again_where_systemd_does_not_answer_for_long(
    lost: str, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(survival, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(survival, "_ASK_TIMEOUT_S", 0.5)
    systemd.answers("systemctl", KILLS)
    systemd.answers("systemd-run", lost)
    with pytest.raises(
        MayDieWithStarterError, match=r"no answer of systemd .*(reset by peer|timed out)"
    ) as raised:
        way_out()
    assert raised.value.retryable


def test_refusal_of_systemd_is_final_and_is_not_asked_for_again(systemd: Systemd):
    systemd.answers("systemctl", KILLS)
    systemd.answers("systemd-run", DENIED)
    with pytest.raises(DiesWithStarterError, match=r"Access denied") as raised:
        way_out()
    assert not raised.value.retryable
    assert systemd.asked("systemd-run") == 1
