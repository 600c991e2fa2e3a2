"""Drivers whose pods an operator makes: what it is told, and what its words mean."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.base import DriverPending, Gone, Unknown
from airflow_flinkstyle.jobs.errors import DriverFailedError, NotTakenError
from airflow_flinkstyle.jobs.target import deployment_for
from tests.unit.jobs.managers import Manager, a_manager, a_submission
from tests.unit.jobs.pods import (
    DRIVER,
    FORBIDDEN,
    IMAGE,
    MISSING,
    POD,
    PODS,
    SECRETS,
    on_kubernetes,
)
from tests.unit.jobs.specs import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.deployments.base import Deployment

KUBEFLOW = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/default/sparkapplications"
APACHE = "/apis/spark.apache.org/v1/namespaces/default/sparkapplications"
PATHS = {"kubeflow": KUBEFLOW, "apache": APACHE}
QUOTA = 'Message: pods "x" is forbidden: exceeded quota: full. Received status: Status(code=403)'

POLICY = "Failure executing: POST at: https://k/apis/networking.k8s.io/v1/namespaces/default/networkpolicies."
ENDED = "TerminatedWithoutReleaseResources"


@pytest.fixture
def api() -> Iterator[Manager]:
    with a_manager() as manager:
        manager.says(f"{PODS}/{POD}", MISSING, status=404)
        manager.says(f"{PODS}?limit=1", {"kind": "PodList", "items": []})
        manager.says(SECRETS, {"kind": "Secret", "metadata": {"name": POD}})
        manager.says(f"{SECRETS}/{POD}", {"kind": "Secret"})
        yield manager


def by(operator: str, api: Manager, folder: Path, **changes: Any) -> Deployment:
    conf = {"spark.kubernetes.namespace": "default", "spark.kubernetes.context": "here"}
    changes["conf"] = {**conf, **changes.pop("conf", {})}
    return deployment_for(on_kubernetes(api.url, folder, spark_operator=operator, **changes))


def application(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": POD, "uid": "u", "creationTimestamp": "1"},
        "status": status,
    }


def kubeflow(state: str, attempts: int = 0, message: str = "") -> dict[str, Any]:
    told = {"state": state, "errorMessage": message}
    return application(applicationState=told, executionAttempts=attempts)


def apache(*states: str, message: str = "") -> dict[str, Any]:
    """Return what Apache's operator 1.0.0 says: its own words of the first state, else why."""
    created = "Spark application has been created on Kubernetes Cluster."
    told = [
        {"currentStateSummary": state, "message": message if at else created}
        for at, state in enumerate(states)
    ]
    return application(stateTransitionHistory={str(at): one for at, one in enumerate(told)})


def submitted(operator: str, api: Manager, folder: Path) -> dict[str, Any]:
    """Submit a driver, and return the resource that was made."""
    api.says(PATHS[operator], application())
    deployment = by(operator, api, folder)
    target = on_kubernetes(api.url, folder, spark_operator=operator)
    assert deployment.submit(a_submission(target)) == {"pod": POD}
    bodies = {(method, path): json.loads(body) for method, path, body in api.asked if body}
    secret = bodies["POST", SECRETS]["data"]
    assert base64.b64decode(secret["AWS_SECRET_ACCESS_KEY"]).decode() == SECRET
    owner = bodies["PUT", f"{SECRETS}/{POD}"]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("SparkApplication", "u")
    made: dict[str, Any] = bodies["POST", PATHS[operator]]
    return made


@pytest.mark.parametrize("operator", ["kubeflow", "apache"])
def test_application_has_the_pods_name_its_labels_and_its_environment_by_reference(
    operator: str, api: Manager, tmp_path: Path
):
    made = submitted(operator, api, tmp_path)
    conf = made["spec"]["sparkConf"]
    assert made["metadata"]["name"] == conf["spark.kubernetes.driver.pod.name"] == POD
    assert made["metadata"]["labels"] == {
        "airflow-flinkstyle/claim": "Claim-1",
        "airflow-flinkstyle/job": "orders",
        "airflow-flinkstyle/generation": "1",
    }
    for role in ("driver", "executor"):
        assert conf[f"spark.kubernetes.{role}.label.airflow-flinkstyle/claim"] == "Claim-1"
    reference = f"{POD}:AWS_SECRET_ACCESS_KEY"
    assert conf["spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY"] == reference
    assert SECRET not in json.dumps(made)
    assert conf[IMAGE] == "spark:1"
    assert not [name for name in conf if "submission" in name or name.endswith(("namespace", "context"))]


def test_kubeflows_operator_is_told_to_run_the_launcher_once(api: Manager, tmp_path: Path):
    spec = submitted("kubeflow", api, tmp_path)["spec"]
    assert spec["restartPolicy"] == {"type": "Never"}
    assert spec["driver"] == {"podName": POD}
    assert spec["mainApplicationFile"].startswith("local:///")
    assert spec["arguments"][:2] == ["--root", "/root"]
    assert spec["arguments"][-3:] == ["/jobs/orders.py", "--topic", "orders"]
    assert spec["deps"] == {"jars": ["/a.jar", "/b.jar"]}


def test_connection_adds_to_an_application_and_changes_nothing_that_is_said(api: Manager, tmp_path: Path):
    template = {"spec": {"tolerations": [{"key": "streams", "operator": "Exists"}]}}
    more = {
        "driver": {"template": template, "podName": "mine"},
        "restartPolicy": {"type": "Always", "onFailureRetries": 3},
        "sparkConf": {IMAGE: "mine", "spark.x": "more"},
        "batchScheduler": "volcano",
    }
    api.says(KUBEFLOW, application())
    target = on_kubernetes(api.url, tmp_path, spark_operator="kubeflow", application=more)
    deployment_for(target).submit(a_submission(target))
    [spec] = [json.loads(body)["spec"] for method, path, body in api.asked if path == KUBEFLOW and body]
    assert spec["driver"] == {"template": template, "podName": POD}
    assert spec["restartPolicy"]["type"] == "Never"
    assert spec["batchScheduler"] == "volcano"
    assert spec["sparkConf"][IMAGE] == "spark:1"


def test_apaches_operator_is_told_to_run_the_launcher_once_and_to_keep_its_pod(api: Manager, tmp_path: Path):
    spec = submitted("apache", api, tmp_path)["spec"]
    assert spec["applicationTolerations"]["restartConfig"] == {"restartPolicy": "Never"}
    assert spec["applicationTolerations"]["resourceRetainPolicy"] == "Always"
    assert spec["mainClass"] == "org.apache.spark.deploy.PythonRunner"
    assert spec["pyFiles"].startswith("local:///")
    assert spec["driverArgs"][:2] == ["--root", "/root"]
    assert spec["sparkConf"]["spark.jars"] == "/a.jar,/b.jar"


@pytest.mark.parametrize(
    ("operator", "said", "state"),
    [
        ("kubeflow", kubeflow(""), DriverPending),
        ("kubeflow", kubeflow("SUBMITTED", 1), DriverPending),
        ("kubeflow", kubeflow("SUBMISSION_FAILED", message="Exception"), Gone),
        ("kubeflow", kubeflow("FAILED", message="Exception"), Gone),
        ("kubeflow", kubeflow("FAILED", message="driver pod already exist"), Unknown),
        ("kubeflow", kubeflow("FAILED", 1, message="driver pod not found"), Unknown),
        ("kubeflow", kubeflow("RUNNING", 1), Unknown),
        ("apache", application(), DriverPending),
        ("apache", apache("Submitted"), DriverPending),
        ("apache", apache("Submitted", "DriverRequested"), Unknown),
        ("apache", apache("Submitted", "SchedulingFailure", ENDED, message=QUOTA), Gone),
        ("apache", apache("Submitted", "SchedulingFailure", ENDED, message=POLICY), Unknown),
        ("apache", apache("Submitted", "DriverRequested", "DriverStarted", "Failed"), Unknown),
    ],
)
def test_application_without_a_pod_has_ended_only_if_there_was_never_one(
    operator: str, said: dict[str, Any], state: type, api: Manager, tmp_path: Path
):
    api.says(f"{PATHS[operator]}/{POD}", said)
    assert isinstance(by(operator, api, tmp_path).state(DRIVER), state)


def test_why_the_operator_made_no_pod_is_told_in_words(api: Manager, tmp_path: Path):
    refused = apache("Submitted", "SchedulingFailure", ENDED, message=QUOTA)
    for operator, said, words in (
        ("kubeflow", kubeflow("FAILED", message=QUOTA), "FAILED: the namespace's quota is full"),
        ("apache", refused, f"SparkApplication {POD} is SchedulingFailure: the namespace's quota is full"),
        ("apache", apache("Submitted"), "is Submitted: Spark application has been created"),
        ("kubeflow", application(), "not taken up by an operator"),
    ):
        api.says(f"{PATHS[operator]}/{POD}", said)
        assert words in by(operator, api, tmp_path).log_tail(DRIVER)


def test_operator_that_is_not_known_not_installed_or_not_allowed_is_refused(api: Manager, tmp_path: Path):
    with pytest.raises(BadInputError, match="'kubeflow' or 'apache' was expected, found 'mine'"):
        by("mine", api, tmp_path)
    api.says(f"{KUBEFLOW}?limit=1", b"404 page not found\n", status=404)
    with pytest.raises(BadInputError, match=r"sparkapplications\.sparkoperator\.k8s\.io of version v1beta2"):
        by("kubeflow", api, tmp_path).require_able()
    api.says(f"{KUBEFLOW}?limit=1", FORBIDDEN, status=403)
    with pytest.raises(BadInputError, match="cannot list resource"):
        by("kubeflow", api, tmp_path).require_able()


def test_application_that_is_refused_fails_and_leaves_no_secret(api: Manager, tmp_path: Path):
    refusal = {"kind": "Status", "status": "Failure", "code": 422, "message": "spec.type is invalid"}
    api.says(KUBEFLOW, refusal, status=422)
    target = on_kubernetes(api.url, tmp_path, spark_operator="kubeflow")
    with pytest.raises(DriverFailedError, match=r"spec\.type is invalid"):
        by("kubeflow", api, tmp_path).submit(a_submission(target))
    assert [path for method, path, _ in api.asked if method == "DELETE"] == [f"{SECRETS}/{POD}?"]


def test_application_that_no_server_knows_fails(api: Manager, tmp_path: Path):
    target = on_kubernetes(api.url, tmp_path, spark_operator="kubeflow")
    api.says(KUBEFLOW, b"404 page not found\n", status=404)
    with pytest.raises(DriverFailedError, match="404 Not Found"):
        by("kubeflow", api, tmp_path).submit(a_submission(target))


def test_application_that_may_have_been_made_is_not_made_again(api: Manager, tmp_path: Path):
    target = on_kubernetes(api.url, tmp_path, spark_operator="kubeflow")
    api.says(KUBEFLOW, b"<html>", status=502)
    assert by("kubeflow", api, tmp_path).submit(a_submission(target)) == {"pod": POD}
    assert not [path for method, path, _ in api.asked if method == "DELETE"], "the pod may need its Secret"


@pytest.mark.parametrize("code", [409, 500, 504])
def test_application_that_a_refused_request_has_made_is_the_drivers(code: int, api: Manager, tmp_path: Path):
    """An API server whose etcd answers late has made what it refuses (500, 504); 409 is a second request."""
    refusal = {"kind": "Status", "status": "Failure", "code": code, "message": "etcdserver: timed out"}
    api.says(KUBEFLOW, refusal, status=code)
    target = on_kubernetes(api.url, tmp_path, spark_operator="kubeflow")
    deployment, submission = by("kubeflow", api, tmp_path), a_submission(target)
    with pytest.raises(NotTakenError, match="timed out"):
        deployment.submit(submission)
    api.says(f"{KUBEFLOW}/{POD}", application())
    assert deployment.submit(submission) == {"pod": POD}
    owned = [json.loads(body) for method, path, body in api.asked if method == "PUT"]
    assert [one["metadata"]["ownerReferences"][0]["uid"] for one in owned][-1:] == ["u"]


def test_driver_whose_pod_is_still_to_be_made_is_found(api: Manager, tmp_path: Path):
    label = "airflow-flinkstyle/claim=Claim-1"
    pods = f"{PODS}?labelSelector={quote(f'{label},spark-role=driver', safe='')}"
    api.says(pods, {"kind": "PodList", "items": []})
    ended = {**kubeflow("FAILED"), "metadata": {"name": "old", "creationTimestamp": "2"}}
    api.says(f"{KUBEFLOW}?labelSelector={quote(label, safe='')}", {"items": [ended, kubeflow("")]})
    target = on_kubernetes(api.url, tmp_path, spark_operator="kubeflow")
    assert by("kubeflow", api, tmp_path).find(a_submission(target)) == {"pod": POD}


def test_driver_that_is_ended_gets_no_pod_later(api: Manager, tmp_path: Path):
    api.says_once(f"{KUBEFLOW}/{POD}", kubeflow(""))
    assert isinstance(by("kubeflow", api, tmp_path).end(DRIVER), Unknown)
    assert ("DELETE", f"{KUBEFLOW}/{POD}") in {(method, path) for method, path, _ in api.asked}


def test_pod_that_its_operator_could_not_complete_is_not_waited_for_as_one_that_is_prepared(
    api: Manager, tmp_path: Path
):
    api.says(f"{PODS}/{POD}", {"metadata": {"name": POD}, "status": {"phase": "Pending"}})
    api.says(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{POD}", {"items": []})
    application_of_pod, deployment = f"{APACHE}/{POD}", by("apache", api, tmp_path)
    api.says(application_of_pod, apache("Submitted"))
    assert deployment.state(DRIVER) == DriverPending(
        "it is being prepared (not scheduled yet)", may_pass=True
    )
    api.says(application_of_pod, apache("Submitted", "SchedulingFailure", message="no rights"))
    state = by("apache", api, tmp_path).state(DRIVER)
    assert state == DriverPending(f"SparkApplication {POD} is SchedulingFailure: no rights")
    assert "SchedulingFailure: no rights" in deployment.log_tail(DRIVER)
