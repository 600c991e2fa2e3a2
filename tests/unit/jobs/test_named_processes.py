"""A record that nobody signed chooses no process: not whose log is shown, nor what is ended."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.signing import Signer
from airflow_flinkstyle.jobs.spec import launch_of
from airflow_flinkstyle.jobs.status import Sightings
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.driver_log import PATH_VARIABLE, name_of
from airflow_flinkstyle.protocol.process import pid_namespace, process_started
from airflow_flinkstyle.protocol.records import Claim, IncarnationRecord, Submit
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import Generation, Incarnation
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore
from testbed.waiting import wait_until
from tests.unit.jobs.managers import Manager, a_manager
from tests.unit.jobs.pods import on_kubernetes
from tests.unit.jobs.specs import a_spec, a_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.jobs.spec import SubmitTarget

G1 = Generation(1)
OWN, OTHER = "0a" * 16, "0b" * 16
LOG = "what payroll's driver has printed"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One on which this job and another one have a driver each."""

    target: SubmitTarget
    deployment: str
    own: dict[str, str]
    other: dict[str, str]
    said: IncarnationRecord
    """By who forges the driver's own record: that it is the other one's."""


def a_record(cluster_id: str) -> IncarnationRecord:
    return IncarnationRecord(
        host="h", pid=1, jvm_pid=1, pid_started="x", started_at_ms=1, submit=1, cluster_id=cluster_id
    )


def kubernetes(manager: Manager, folder: Path, operator: str | None = None) -> Cluster:
    pods = "/api/v1/namespaces/default/pods"
    names = {claim: f"flinkstyle-{claim[:24]}-1" for claim in (OWN, OTHER)}
    for claim, name in names.items():
        spec = {"containers": [{"name": "spark-kubernetes-driver"}]}
        labels = {"airflow-flinkstyle/claim": claim}
        pod = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Running"}}
        manager.says(f"{pods}/{name}", pod)
        manager.says(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}", {})
        printed = LOG if claim == OTHER else "own words"
        manager.says(f"{pods}/{name}/log?container=spark-kubernetes-driver&tailLines=30", printed.encode())
    return Cluster(
        target=on_kubernetes(manager.url, folder, spark_operator=operator),
        deployment="spark-application" if operator else "kubernetes",
        own={"pod": names[OWN]},
        other={"pod": names[OTHER]},
        said=a_record(names[OTHER]),
    )


def yarn(manager: Manager, folder: Path) -> Cluster:
    names = {OWN: "application_1_0001", OTHER: "application_1_0002"}
    for claim, name in names.items():
        node = f"{manager.url}/node/containerlogs/container_{claim}/etl"
        app = {
            "id": name,
            "state": "RUNNING",
            "applicationTags": f"flinkstyle-{claim}",
            "amContainerLogs": node,
        }
        manager.says(f"/ws/v1/cluster/apps/{name}", {"app": app})
        printed = LOG if claim == OTHER else "own words"
        for kind in ("stdout", "stderr"):
            manager.says(
                f"/ws/v1/node/containers/container_{claim}/logs/{kind}?size=-65536", printed.encode()
            )
        manager.says(f"/ws/v1/cluster/apps?applicationTags=flinkstyle-{claim}", {"apps": {"app": [app]}})
    return Cluster(
        target=a_target(master="yarn", deploy_mode="cluster", cluster_url=manager.url),
        deployment="yarn",
        own={"application": names[OWN], "tag": f"flinkstyle-{OWN}"},
        other={"application": names[OTHER], "tag": f"flinkstyle-{OTHER}"},
        said=a_record(names[OTHER]),
    )


def yarn_by_tag(manager: Manager, folder: Path) -> Cluster:
    """Whose submission was not answered: the record has the tag alone."""
    found = yarn(manager, folder)
    return replace(found, own={**found.own, "application": ""}, other={**found.other, "application": ""})


def standalone(manager: Manager, folder: Path) -> Cluster:
    for driver in ("driver-1", "driver-2"):
        said = {"success": True, "driverState": "RUNNING", "workerId": f"w-{driver}"}
        manager.says(f"/v1/submissions/status/{driver}", said)
        printed = LOG if driver == "driver-2" else "own words"
        for kind in ("stdout", "stderr"):
            page = f"/log/?driverId={driver}&logType={kind}&byteLength=65536"
            manager.says(page, f"==== Bytes 0-1 of 1 ====\n{printed}".encode())
    workers = [{"id": f"w-driver-{n}", "webuiaddress": manager.url} for n in (1, 2)]
    manager.says("/json/", {"workers": workers})
    return Cluster(
        target=a_target(
            master="spark://m:7077", deploy_mode="cluster", cluster_url=manager.url, web_url=manager.url
        ),
        deployment="standalone",
        own={"driver": "driver-1"},
        other={"driver": "driver-2"},
        said=a_record("driver-2"),
    )


CLUSTERS = [
    kubernetes,
    pytest.param(partial(kubernetes, operator="kubeflow"), id="kubeflow"),
    pytest.param(partial(kubernetes, operator="apache"), id="apache"),
    yarn,
    yarn_by_tag,
    standalone,
]


@pytest.fixture
def manager() -> Iterator[Manager]:
    with a_manager() as manager:
        yield manager


def a_client(target: SubmitTarget, **more: Any) -> JobClient:
    store = MemoryStore()
    board = JobBoard(store, "orders")
    claim = Claim(
        claim_key="start", claim_id=OWN, follows=None, checkpoint_location="/checkpoints",
        prepare_savepoint_id=None, overrides=(), lease_s=30.0, launch=launch_of(a_spec(), target),
        claimed_at_ms=1,
    )  # fmt: skip
    board.create_claim(G1, SIGNER.sign(claim, board.claim_place(G1)))
    deployment = more.pop("deployment", None) or DetachedDeployment()
    return JobClient(
        view=JobView(
            board=board,
            repository=SavepointRepository(store, "orders"),
            deployment=deployment,
            signer=SIGNER,
            base_env={},
            sightings=Sightings(),
            **more,
        )
    )


def submitted(client: JobClient, deployment: str, native_id: dict[str, str]) -> None:
    submit = Submit(key="start", deployment=deployment, state="submitted", asked_at_ms=1, native_id=native_id)
    client.view.board.create_submit(G1, 1, submit)


def signed(client: JobClient, cluster: Cluster) -> dict[str, str]:
    by = Submit(key="start", deployment=cluster.deployment, state="submitted", asked_at_ms=1)
    return SIGNER.sign_process(cluster.own, client.view.board.submit_place(G1), by)


def of_another_signature(client: JobClient, cluster: Cluster) -> dict[str, str]:
    return {**signed(client, cluster), **cluster.other}


def unsigned(client: JobClient, cluster: Cluster) -> dict[str, str]:
    return cluster.other


def that_claims_the_claim(client: JobClient, cluster: Cluster) -> dict[str, str]:
    return {**cluster.other, "claim": OTHER, "log": "/etc/passwd"}


@pytest.mark.parametrize("forged", [unsigned, of_another_signature, that_claims_the_claim])
@pytest.mark.parametrize("on", CLUSTERS)
def test_forged_submit_shows_no_log_and_ends_nothing(
    on: Callable[[Manager, Path], Cluster],
    forged: Callable[..., dict[str, str]],
    manager: Manager,
    tmp_path: Path,
):
    cluster = on(manager, tmp_path)
    client = a_client(cluster.target)
    submitted(client, cluster.deployment, forged(client, cluster))
    client.view.board.create_incarnation(G1, Incarnation(1), cluster.said)
    run = client.view.run(G1)
    if on is yarn_by_tag:  # the tag is the claim's, whatever the record says: the run's own driver is found
        assert LOG not in client.view.log_tail(run)
    else:
        assert client.view.log_tail(run) in (
            "",
            "(not shown: what the records name is not known to be a driver of this run)",
        )
        client.drivers.end_driver(G1)
    assert {method for method, _, _ in manager.asked} <= {"GET"}
    assert not any(f"{cluster.other.get('pod')}/log" in path for _, path, _ in manager.asked)
    pages = client.view.pages(run)
    assert not any(name and name in f"{pages}" for name in cluster.other.values())


@pytest.mark.parametrize("on", CLUSTERS)
def test_driver_of_the_claim_is_shown_and_ended(
    on: Callable[[Manager, Path], Cluster], manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("airflow_flinkstyle.jobs.deployments.rest._KILL_TIMEOUT_S", 0.0)
    cluster = on(manager, tmp_path)
    client = a_client(cluster.target)
    submitted(client, cluster.deployment, signed(client, cluster))
    assert "own words" in client.view.log_tail(client.view.run(G1))
    client.drivers.end_driver(G1)
    assert {method for method, _, _ in manager.asked} & {"DELETE", "PUT", "POST"}


@pytest.mark.parametrize("on", CLUSTERS)
def test_who_has_no_key_is_shown_no_log_of_a_cluster(
    on: Callable[[Manager, Path], Cluster], manager: Manager, tmp_path: Path
):
    cluster = on(manager, tmp_path)
    client = a_client(cluster.target)
    submitted(client, cluster.deployment, signed(client, cluster))
    keyless = replace(client, view=replace(client.view, signer=Signer()))
    assert keyless.view.log_tail(keyless.view.run(G1)) == "(not shown: SIGNING_KEY)"
    keyless.drivers.end_driver(G1)
    assert manager.asked == []


def test_driver_of_another_job_on_this_machine_is_not_ended(tmp_path: Path):
    marker = ["--root", "r", "--job", "payroll", "--claim", OTHER, "--generation", "1"]
    argv = ["/bin/bash", "-c", "sleep 600; true", *marker]
    with subprocess.Popen(argv, start_new_session=True) as payroll:
        try:
            wait_until("it has begun", lambda: OTHER in Path(f"/proc/{payroll.pid}/cmdline").read_text())
            started = process_started(payroll.pid) or ""
            client = a_client(a_target(log_dir=str(tmp_path)))
            named = {"host": "h", "namespace": pid_namespace(), "pid": str(payroll.pid), "started": started}
            submitted(client, "detached", {**named, "log": str(tmp_path / "payroll.log"), "claim": OTHER})
            own_words = replace(
                a_record(""), jvm_pid=payroll.pid, pid_started=started, pid_namespace=pid_namespace()
            )
            client.view.board.create_incarnation(G1, Incarnation(1), own_words)
            client.drivers.end_driver(G1)
            assert payroll.poll() is None
        finally:
            os.killpg(payroll.pid, signal.SIGKILL)  # and what it waits for


@pytest.mark.parametrize("log", ["orders", "payroll"])
def test_what_is_left_of_a_driver_is_known_by_the_log_that_it_inherits(tmp_path: Path, log: str):
    client = a_client(a_target(log_dir=str(tmp_path)))
    own = name_of("orders", client.view.board.root.root_id, 1, OWN)
    path = str(tmp_path / (own if log == "orders" else "payroll.log"))
    argv = ["/bin/bash", "-c", "sleep 600 <&- & echo $! > child; read; exit 1"]
    env = {PATH_VARIABLE: path, "PATH": "/bin"}
    with subprocess.Popen(argv, start_new_session=True, cwd=tmp_path, env=env, stdin=subprocess.PIPE) as one:
        started = process_started(one.pid) or ""  # it waits to be read, then ends: its input is closed
    child = int((tmp_path / "child").read_text())
    named = {"host": "h", "namespace": pid_namespace(), "pid": str(one.pid), "started": started}
    submitted(client, "detached", {**named, "log": path})
    client.drivers.end_driver(G1)
    if log == "orders":  # it is told to end, and does so in its own time
        wait_until("it has ended", lambda: process_started(child) is None)
        return
    assert process_started(child) is not None
    subprocess.run(["/bin/kill", "-9", str(child)], check=True)
