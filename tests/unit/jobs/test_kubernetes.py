"""Drivers in pods: what the API server's words mean, and what it is asked; it is an HTTP server here."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.base import Alive, DriverPending, Gone, Unknown
from airflow_flinkstyle.jobs.deployments.kubernetes import makers
from airflow_flinkstyle.jobs.deployments.kubernetes.driver import CLAIM_LABEL
from airflow_flinkstyle.jobs.deployments.kubernetes.pods import describe_pod, refusal_reason, state_of
from airflow_flinkstyle.jobs.errors import ClusterLoginError, DriverFailedError
from airflow_flinkstyle.jobs.target import deployment_for
from testbed.ports import free_port
from tests.unit.jobs.managers import Manager, a_manager, a_submission
from tests.unit.jobs.pods import DRIVER, FORBIDDEN, IMAGE, MISSING, POD, PODS, SECRETS, on_kubernetes
from tests.unit.jobs.specs import SECRET, a_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.deployments.base import Deployment


@pytest.fixture
def api() -> Iterator[Manager]:
    with a_manager() as manager:
        manager.says(f"{PODS}/{POD}", MISSING, status=404)
        yield manager


def a_pod(phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": POD, "uid": "u"}, "status": {"phase": phase, **status}}


def in_state(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "spark-kubernetes-driver", "state": state}]}


ENDED = in_state(terminated={"exitCode": 137, "reason": "Error"})
PENDING = in_state(waiting={"reason": "ErrImagePull", "message": "no such image spark:1"})


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (a_pod("Pending"), DriverPending),
        (a_pod("Running"), Alive),
        (a_pod("Succeeded", **in_state(terminated={"exitCode": 0})), Gone),
        (a_pod("Failed", **ENDED), Gone),
        (a_pod("Failed", **in_state(running={})), Unknown),  # the control plane says so, not the node
        (
            a_pod(
                "Failed",
                conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}],
            ),
            Unknown,
        ),
        (a_pod("Unknown"), Unknown),
    ],
)
def test_what_the_api_server_says_of_a_pod_ends_it_only_if_its_node_says_so(pod: dict[str, Any], state: type):
    assert isinstance(state_of(pod), state)


@pytest.mark.parametrize(
    ("driver", "policy", "state"),
    [
        ({"running": {}}, "Never", Alive),
        ({"terminated": {"exitCode": 137}}, "Never", Gone),
        ({"terminated": {"exitCode": 137}}, "Always", Alive),  # the node starts it again
    ],
)
def test_driver_beside_a_sidecar_has_ended_with_its_own_container(
    driver: dict[str, Any], policy: str, state: type
):
    own, sidecar = in_state(**driver)["containerStatuses"], {"name": "sidecar", "state": {"running": {}}}
    pod = {**a_pod("Running", containerStatuses=[sidecar, *own]), "spec": {"restartPolicy": policy}}
    assert isinstance(state_of(pod), state)
    assert ("killed by signal 9" in describe_pod(pod)) == (state is Gone)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (a_pod("Pending", **PENDING), "image cannot be pulled (ErrImagePull: no such image spark:1)"),
        (
            a_pod(
                "Pending",
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "Insufficient memory",
                    }
                ],
            ),
            "no node can take it (Unschedulable: Insufficient memory)",
        ),
        (
            a_pod("Failed", **in_state(terminated={"exitCode": 137, "reason": "OOMKilled"})),
            "spark.driver.memoryOverhead",
        ),
        (a_pod("Failed", **ENDED), "killed by signal 9"),
        (a_pod("Failed", **in_state(terminated={"exitCode": 2})), "ended with exit code 2"),
        (a_pod("Failed", reason="Evicted", message="low on disk"), "the node evicted it (low on disk)"),
    ],
)
def test_why_a_pod_does_not_run_is_told_in_words(pod: dict[str, Any], words: str):
    assert words in describe_pod(pod)


def test_warnings_of_a_pod_are_told_but_for_those_that_pass():
    events = [
        {"type": "Warning", "reason": "FailedMount", "message": "configmap not found", "lastTimestamp": "1"},
        {"type": "Warning", "reason": "Failed", "message": "pull access denied", "lastTimestamp": "2"},
        {"type": "Normal", "reason": "Scheduled", "message": "to node1", "lastTimestamp": "3"},
    ]
    said = describe_pod(a_pod("Pending", **PENDING), events)
    assert "pull access denied" in said
    assert "configmap" not in said
    assert "node1" not in said
    assert describe_pod(a_pod("Running"), events) == ""


def not_mounted(last: str) -> dict[str, Any]:
    """Return what a node says again and again of a ConfigMap that was never made."""
    return {
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "spark-conf-volume-driver" : configmap "c" not found',
        "firstTimestamp": "2026-11-27T00:00:00Z",
        "lastTimestamp": last,
    }


@pytest.mark.parametrize(
    ("last", "may_pass"),
    [("2026-11-27T00:00:02Z", True), ("", True), ("at noon", True), ("2026-11-27T00:02:08Z", False)],
)
def test_pod_whose_configmap_never_came_is_no_pod_that_is_being_prepared(
    last: str, api: Manager, tmp_path: Path, *, may_pass: bool
):
    """The submission had ended in between: https://github.com/kubeflow/spark-operator/issues/1828."""
    preparing = a_pod("Pending", **in_state(waiting={"reason": "ContainerCreating"}))
    api.says(f"{PODS}/{POD}", preparing)
    deployment = deployment_for(on_kubernetes(api.url, tmp_path))
    path = "/api/v1/namespaces/default/events"
    events = f"{path}?fieldSelector={quote(f'involvedObject.name={POD}', safe='')}"
    api.says(events, {"kind": "EventList", "items": [not_mounted(last)]})
    state = deployment.state(DRIVER)
    assert isinstance(state, DriverPending)
    assert state.may_pass == may_pass
    assert ('configmap "c" not found' in state.reason) != may_pass
    assert ('configmap "c" not found' in deployment.log_tail(DRIVER)) != may_pass


def test_refusal_of_a_pod_is_told_in_the_api_servers_words():
    message = 'pods "x" is forbidden: exceeded quota: full'
    said = f"Failure executing: POST at: https://a. Message: {message}. Received status: Status("
    assert refusal_reason(said) == f"the namespace's quota is full: {message}"
    assert not refusal_reason("Exception in thread main")


def test_target_without_image_place_of_the_agent_or_rights_is_refused(api: Manager, tmp_path: Path):
    api.says(f"{PODS}?limit=1", FORBIDDEN, status=403)
    for changes, words in (
        ({"conf": {IMAGE: ""}}, IMAGE),
        ({"agent": "py-files"}, "agent's zip"),
        ({}, 'cannot list resource "pods"'),
    ):
        with pytest.raises(BadInputError, match=words):
            deployment_for(on_kubernetes(api.url, tmp_path, **changes)).require_able()
    api.says(f"{PODS}?limit=1", {"kind": "PodList", "items": []})
    deployment_for(on_kubernetes(api.url, tmp_path)).require_able()


@pytest.mark.parametrize("code", [429, 500, 503])
def test_api_server_that_refuses_everything_for_a_while_is_no_reason_to_give_up(
    code: int, api: Manager, tmp_path: Path
):
    busy = {"kind": "Status", "status": "Failure", "code": code, "message": "etcdserver: request timed out"}
    api.says(f"{PODS}?limit=1", busy, status=code)
    deployment_for(on_kubernetes(api.url, tmp_path)).require_able()


def with_kubeconfig(path: Path) -> Deployment:
    target = a_target(
        master="k8s://https://api", deploy_mode="cluster", conf={IMAGE: "i"}, kube_config=str(path)
    )
    return deployment_for(target)


def test_login_that_cannot_be_read_is_refused_and_names_where_it_was_looked_for(tmp_path: Path):
    with pytest.raises(BadInputError, match="No such file"):
        with_kubeconfig(tmp_path / "none").require_able()


KUBECONFIG = """\
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://api"}}]
users: [{name: u, user: {exec: {apiVersion: v1, command: "false"}}}]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (KUBECONFIG, "returned non-zero exit status 1"),
        (KUBECONFIG[:40], "is no YAML"),
        ("", "'NoneType' object is not subscriptable"),
        (KUBECONFIG.replace('{server: "https://api"}', ""), "'NoneType' object has no attribute 'get'"),
    ],
    ids=["program fails", "cut off", "emptied", "lacks a field"],
)
def test_login_that_cannot_be_used_now_may_be_tried_again(text: str, words: str, tmp_path: Path):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    deployment = with_kubeconfig(path)
    with pytest.raises(ClusterLoginError, match=words) as raised:
        deployment.require_able()
    assert raised.value.retryable
    assert isinstance(deployment.state(DRIVER), Unknown)


def test_program_that_logs_in_runs_once_for_a_check_and_its_questions(api: Manager, tmp_path: Path):
    runs, path = tmp_path / "runs", tmp_path / "kubeconfig"
    program = tmp_path / "login"
    program.write_text(f'#!/bin/sh\necho >> {runs}\necho \'{{"status": {{"token": "t"}}}}\'\n')
    program.chmod(0o755)
    path.write_text(KUBECONFIG.replace('"false"', f'"{program}"'))
    api.says(f"{PODS}?limit=1", {"kind": "PodList", "items": []})
    no_files = {"spark.kubernetes.authenticate.submission.oauthTokenFile": ""}
    deployment_for(on_kubernetes(api.url, tmp_path, kube_config=str(path), conf=no_files)).require_able()
    assert api.said_who == ["Bearer t"]
    assert len(runs.read_text().splitlines()) == 1


def submit(api: Manager, folder: Path, script: str) -> tuple[Deployment, Any]:
    """Submit with a program in place of spark-submit."""
    program = folder / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    target = on_kubernetes(api.url, folder, spark_home=str(folder))
    return deployment_for(target), a_submission(target)


def test_driver_gets_its_environment_by_reference_and_its_secret_ends_with_the_pod(
    api: Manager, tmp_path: Path
):
    deployment, submission = submit(api, tmp_path, f'echo "$@" > {tmp_path}/argv')
    api.says(SECRETS, {"kind": "Secret", "metadata": {"name": POD}})
    api.says(f"{SECRETS}/{POD}", {"kind": "Secret"})
    api.says(f"{PODS}/{POD}", a_pod("Pending"))
    assert deployment.submit(submission) == {"pod": POD}
    bodies = {(method, path): json.loads(body) for method, path, body in api.asked if body}
    data = bodies["POST", SECRETS]["data"]
    assert base64.b64decode(data["AWS_SECRET_ACCESS_KEY"]).decode() == SECRET
    assert bodies["PUT", f"{SECRETS}/{POD}"]["metadata"]["ownerReferences"][0]["uid"] == "u"
    argv = (tmp_path / "argv").read_text()
    assert SECRET not in argv
    assert f"spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY={POD}:AWS_SECRET_ACCESS_KEY" in argv
    assert f"spark.kubernetes.driver.pod.name={POD}" in argv
    assert "--deploy-mode cluster" in argv
    assert " local:///" in argv


def test_pod_has_its_name_and_is_not_waited_for_whatever_the_job_sets(api: Manager, tmp_path: Path):
    target = on_kubernetes(
        api.url,
        tmp_path,
        conf={
            "spark.kubernetes.driver.pod.name": "mine",
            "spark.kubernetes.submission.waitAppCompletion": "true",
        },
    )
    submission = a_submission(target)
    command = makers._command(submission, POD)
    set_last = dict(part.split("=", 1) for before, part in pairwise(command) if before == "--conf")
    assert set_last["spark.kubernetes.driver.pod.name"] == POD
    assert set_last["spark.kubernetes.submission.waitAppCompletion"] == "false"
    program = submission.program
    assert command[-len(program.arguments) - 1 :] == [program.application, *program.arguments]


def test_submission_that_made_no_pod_fails_and_leaves_no_secret(api: Manager, tmp_path: Path):
    deployment, submission = submit(
        api, tmp_path, "echo 'Message: pods is forbidden: exceeded quota: full'; exit 1"
    )
    api.says(SECRETS, {"kind": "Secret", "metadata": {"name": POD}})
    with pytest.raises(DriverFailedError, match="quota is full"):
        deployment.submit(submission)
    assert [path for method, path, _ in api.asked if method == "DELETE"] == [f"{SECRETS}/{POD}?"]


def test_pod_that_spark_takes_back_is_waited_for_and_then_told_as_a_failure(api: Manager, tmp_path: Path):
    deployment, submission = submit(api, tmp_path, "echo 'Message: networkpolicies is forbidden'; exit 1")
    api.says(SECRETS, {"kind": "Secret", "metadata": {"name": POD}})
    leaving = a_pod("Pending")
    leaving["metadata"]["deletionTimestamp"] = "now"
    api.says_once(f"{PODS}/{POD}", leaving)
    with pytest.raises(DriverFailedError, match="networkpolicies is forbidden"):
        deployment.submit(submission)


def test_no_answer_of_the_api_server_is_no_reason_to_submit_again(api: Manager, tmp_path: Path):
    deployment, submission = submit(api, tmp_path, "exit 1")
    api.says(SECRETS, {"kind": "Secret", "metadata": {"name": POD}})
    api.says(f"{PODS}/{POD}", b"<html>", status=502)
    assert deployment.submit(submission) == {"pod": POD}
    assert isinstance(deployment.state(DRIVER), Unknown)
    away = deployment_for(on_kubernetes(f"http://127.0.0.1:{free_port()}", tmp_path))
    assert isinstance(away.state(DRIVER), Unknown)
    with pytest.raises(DriverFailedError, match="Secret"):
        away.submit(submission)


def deleted(api: Manager) -> list[str]:
    return [path.partition("?")[0] for method, path, _ in api.asked if method == "DELETE"]


def test_secret_that_was_perhaps_written_is_taken_back(api: Manager, tmp_path: Path):
    deployment, submission = submit(api, tmp_path, "exit 1")
    api.says(SECRETS, b"<html>", status=504)
    with pytest.raises(DriverFailedError, match="environment could not be written"):
        deployment.submit(submission)
    assert deleted(api) == [f"{SECRETS}/{POD}"]


def test_driver_that_is_ended_leaves_no_secret_that_nothing_owns(api: Manager, tmp_path: Path):
    deployment, submission = submit(api, tmp_path, "exit 1")
    api.says(SECRETS, {"kind": "Secret", "metadata": {"name": POD}})
    api.says(f"{PODS}/{POD}", b"<html>", status=502)
    deployment.submit(submission)
    deployment.end(DRIVER)
    assert deleted(api) == [f"{PODS}/{POD}", f"{SECRETS}/{POD}"]


def test_driver_is_found_by_the_label_of_its_claim(api: Manager, tmp_path: Path):
    target = on_kubernetes(api.url, tmp_path)
    pods = [
        {**a_pod("Failed", **ENDED), "metadata": {"name": "old", "creationTimestamp": "2"}},
        {**a_pod("Running"), "metadata": {"name": "new", "creationTimestamp": "1"}},
    ]
    submission = a_submission(target)
    claim = submission.marker[submission.marker.index("--claim") + 1]
    label = quote(f"{CLAIM_LABEL}={claim},spark-role=driver", safe="")
    api.says(f"{PODS}?labelSelector={label}", {"kind": "PodList", "items": pods})
    assert deployment_for(target).find(submission) == {"pod": "new"}


def test_driver_that_only_its_own_record_names_is_not_deleted(api: Manager, tmp_path: Path):
    api.says(f"{PODS}/other", a_pod("Running"))
    deployment = deployment_for(on_kubernetes(api.url, tmp_path))
    api.says(f"{PODS}/{POD}", a_pod("Running"))
    for native_id in ({"pod": "other", "claim": "claim-1"}, {**DRIVER, "said_by": "driver"}, {"pod": POD}):
        assert isinstance(deployment.end(native_id), (Alive, Unknown))
    assert {method for method, _, _ in api.asked} == {"GET"}
