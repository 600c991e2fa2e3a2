"""Where a driver would end with what starts it, from what the operating system shows."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.jobs.deployments.survival import Unit, one_task_container, unit_of

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
