"""What a cluster manager's words mean, and that doubt never submits twice; the managers are HTTP servers."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError, SignatureError
from airflow_flinkstyle.jobs.deployments import rest
from airflow_flinkstyle.jobs.deployments.base import Alive, DriverPending, Gone, Unknown
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.deployments.rest import both_ends
from airflow_flinkstyle.jobs.deployments.yarn import Yarn, command_line
from airflow_flinkstyle.jobs.errors import DEPLOY_MODE, DriverFailedError
from airflow_flinkstyle.jobs.spec import require_recordable
from airflow_flinkstyle.jobs.target import Deployments, deployment_for
from testbed.ports import free_port
from testbed.refusals import refuses
from tests.unit.jobs.managers import Manager, a_manager, a_submission
from tests.unit.jobs.specs import SECRET, a_spec, a_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.spec import SubmitTarget


@pytest.fixture
def manager() -> Iterator[Manager]:
    with a_manager() as manager:
        yield manager


def on_standalone(url: str, **changes: object) -> SubmitTarget:
    return a_target(master="spark://m:7077", deploy_mode="cluster", cluster_url=url, web_url=url, **changes)


CREATE = "/v1/submissions/create"


def test_submission_holds_secrets_in_its_environment_only_and_asks_for_no_supervision(manager: Manager):
    manager.says(CREATE, {"success": True, "submissionId": "driver-1"})
    target = on_standalone(manager.url)
    assert deployment_for(target).submit(a_submission(target)) == {"driver": "driver-1"}
    [(method, path, body)] = manager.asked
    assert (method, path) == ("POST", CREATE)
    said = json.loads(body)
    assert said["sparkProperties"]["spark.driver.supervise"] == "false"
    assert said["appArgs"][:2] == ["--master", "spark://m:7077"]
    assert SECRET in json.dumps(said.pop("environmentVariables"))
    assert SECRET not in json.dumps(said)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", {"success": True}])
def test_answer_that_says_nothing_of_a_driver_is_no_reason_to_submit_again(manager: Manager, body: object):
    manager.says(CREATE, body)
    with a_manager() as other:
        other.says(CREATE, {"success": True, "submissionId": "driver-2"})
        target = on_standalone(f"{manager.url},{other.url}")
        deployment = deployment_for(target)
        native_id = deployment.submit(a_submission(target))
        assert native_id == {"driver": ""}
        assert isinstance(deployment.state(native_id), Unknown)
        assert other.asked == []


def test_submission_goes_to_the_master_that_leads_and_fails_where_none_takes_it(manager: Manager):
    gone = f"http://127.0.0.1:{free_port()}"
    manager.says(CREATE, {"success": False, "message": "Current state is not alive: STANDBY"})
    target = on_standalone(f"{gone},{manager.url}")
    with pytest.raises(DriverFailedError, match="STANDBY") as error:
        deployment_for(target).submit(a_submission(target))
    assert "nobody listens" in str(error.value)


@pytest.fixture
def silent_host() -> Iterator[str]:
    """An address whose connections time out, as those to a host that is down: its queue is full."""
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("first", ["dead", "unknown", "unreachable"])
def test_second_master_is_asked_where_the_first_ones_host_is_gone(
    manager: Manager, silent_host: str, monkeypatch: pytest.MonkeyPatch, first: str
):
    monkeypatch.setattr(rest, "TIMEOUT_S", 0.5)
    manager.says(CREATE, {"success": True, "submissionId": "driver-2"})
    hosts = {"dead": silent_host, "unknown": "master-1.invalid:6066", "unreachable": "255.255.255.255:6066"}
    target = on_standalone(f"http://{hosts[first]},{manager.url}")
    assert deployment_for(target).submit(a_submission(target)) == {"driver": "driver-2"}


def test_master_that_has_taken_a_connection_and_does_not_answer_may_have_the_driver(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rest, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        target = on_standalone(f"http://127.0.0.1:{hung.getsockname()[1]},{manager.url}")
        assert deployment_for(target).submit(a_submission(target)) == {"driver": ""}
    assert manager.asked == []


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"success": True, "driverState": "RUNNING"}, Alive),
        ({"success": True, "driverState": "SUBMITTED"}, DriverPending),
        ({"success": True, "driverState": "RELAUNCHING"}, Alive),
        ({"success": True, "driverState": "FINISHED"}, Gone),
        ({"success": True, "driverState": "FAILED"}, Gone),
        ({"success": True, "driverState": "KILLED"}, Gone),
        ({"success": True, "driverState": "ERROR", "message": "Exception: no such folder"}, Gone),
        ({"success": True, "driverState": "ERROR"}, Unknown),  # its worker is lost: it may run on
        ({"success": True, "driverState": "UNKNOWN"}, Unknown),
        ({"success": True, "driverState": "NOT_FOUND"}, Unknown),
        ({"success": False}, Unknown),  # forgotten, by a master that came back
        (b"<html>", Unknown),
    ],
)
def test_what_a_master_says_of_a_driver_ends_it_only_if_its_process_has_ended(
    manager: Manager, said: object, state: type
):
    manager.says("/v1/submissions/status/driver-1", said)
    assert isinstance(deployment_for(on_standalone(manager.url)).state({"driver": "driver-1"}), state)


@pytest.mark.parametrize(("python", "jvm", "shown"), [(9, 9, 6), (9, 0, 6), (0, 9, 6), (1, 9, 6), (9, 1, 6)])
def test_end_of_the_log_has_what_python_wrote_and_what_the_jvm_did(python: int, jvm: int, shown: int):
    stdout, stderr = (
        "".join(f"{word} {n}\n" for n in range(most)) for word, most in (("p", python), ("j", jvm))
    )
    lines = [line for line in both_ends(stdout, stderr, 6).splitlines() if not line.startswith("---")]
    assert len(lines) == shown
    for word, most in (("p", python), ("j", jvm)):
        assert not most or f"{word} {most - 1}" in lines


def test_master_that_is_away_ends_no_driver():
    deployment = deployment_for(on_standalone(f"http://127.0.0.1:{free_port()}"))
    assert isinstance(deployment.state({"driver": "driver-1"}), Unknown)


def test_driver_that_only_its_own_record_names_is_not_killed(manager: Manager):
    manager.says("/v1/submissions/status/driver-9", {"success": True, "driverState": "RUNNING"})
    deployment = deployment_for(on_standalone(manager.url))
    assert isinstance(deployment.end({"driver": "driver-9", "said_by": "driver"}), Unknown)
    assert {method for method, _, _ in manager.asked} == {"GET"}


def test_zip_without_a_place_is_refused_on_a_standalone_cluster_before_anything_is_claimed():
    with pytest.raises(BadInputError, match="agent's zip"):
        deployment_for(on_standalone("http://m:6066", agent="py-files")).require_able()
    deployment_for(on_standalone("http://m:6066", agent="py-files", agent_path="/a.zip")).require_able()


APP = "application_1_0001"
DRIVER = {"application": APP, "claim": "claim-1"}
TAG = "flinkstyle-claim-1"


def on_yarn(url: str | None, **changes: object) -> SubmitTarget:
    return a_target(master="yarn", deploy_mode="cluster", cluster_url=url, **changes)


@pytest.mark.parametrize(
    ("app", "state"),
    [
        ({"state": "ACCEPTED"}, DriverPending),
        ({"state": "RUNNING"}, Alive),
        ({"state": "FINISHED", "finalStatus": "FAILED"}, Gone),
        ({"state": "FAILED", "diagnostics": "AM Container exited with  exitCode: 137"}, Gone),
        ({"state": "FAILED", "diagnostics": "exitCode: -100, lost node"}, Unknown),
        ({"state": "FAILED", "diagnostics": "AM timed out"}, Unknown),
        ({"state": "KILLED"}, Unknown),  # Python has been seen to live for 8 s more
    ],
)
def test_what_yarn_says_of_an_application_ends_it_only_if_its_process_has_ended(
    manager: Manager, app: dict[str, str], state: type
):
    manager.says(
        f"/ws/v1/cluster/apps/{APP}", {"app": {"id": APP, "diagnostics": "", "applicationTags": TAG, **app}}
    )
    assert isinstance(deployment_for(on_yarn(manager.url)).state(DRIVER), state)


@pytest.mark.parametrize(
    ("place", "may_pass"), [({}, False), ({"amContainerLogs": "http://node/logs"}, True)]
)
def test_application_whose_node_is_preparing_it_is_not_stuck(
    manager: Manager, place: dict[str, str], may_pass: bool
):
    """Large archives take a node longer than a queue may keep an application waiting."""
    app = {"id": APP, "applicationTags": TAG, "state": "ACCEPTED", "diagnostics": "", **place}
    manager.says(f"/ws/v1/cluster/apps/{APP}", {"app": app})
    state = deployment_for(on_yarn(manager.url)).state(DRIVER)
    assert isinstance(state, DriverPending)
    assert state.may_pass is may_pass


def test_application_that_a_restarted_resource_manager_does_not_know_yet_is_no_end(manager: Manager):
    deployment = deployment_for(on_yarn(f"http://127.0.0.1:{free_port()},{manager.url}"))
    assert isinstance(deployment.state(DRIVER), Unknown)
    assert manager.asked, "the second one was asked"


def test_resource_managers_are_found_in_hadoops_settings(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = {
        "yarn.resourcemanager.ha.rm-ids": "a,b",
        "yarn.resourcemanager.webapp.address.a": f"127.0.0.1:{free_port()}",
        "yarn.resourcemanager.webapp.address.b": manager.url.removeprefix("http://"),
    }
    properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in rows.items())
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{properties}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    manager.says(
        f"/ws/v1/cluster/apps/{APP}", {"app": {"id": APP, "state": "RUNNING", "applicationTags": TAG}}
    )
    assert isinstance(deployment_for(on_yarn(None)).state(DRIVER), Alive)


def test_driver_is_found_on_yarn_by_the_tag_of_its_claim(manager: Manager):
    target = on_yarn(manager.url)
    apps = [
        {"id": "application_1_0001", "state": "FINISHED", "startedTime": 3},
        {"id": "application_1_0002", "state": "RUNNING", "startedTime": 2},
    ]
    manager.says("/ws/v1/cluster/apps?applicationTags=flinkstyle-claim-1", {"apps": {"app": apps}})
    found = deployment_for(target).find(a_submission(target))
    assert found is not None
    assert found["application"] == "application_1_0002"


def test_application_whose_submission_was_not_answered_is_killed_by_its_tag(manager: Manager):
    app = {"id": APP, "state": "ACCEPTED", "applicationTags": "flinkstyle-claim-1"}
    manager.says("/ws/v1/cluster/apps?applicationTags=flinkstyle-claim-1", {"apps": {"app": [app]}})
    manager.says(f"/ws/v1/cluster/apps/{APP}", {"app": {**app, "state": "KILLED"}})
    deployment = deployment_for(on_yarn(manager.url, proxy_user="etl"))
    native_id = {"application": "", "tag": TAG, "claim": "claim-1"}
    assert isinstance(deployment.state(native_id), DriverPending)
    assert isinstance(deployment.end(native_id), Unknown), "a process that was killed may live on"
    assert ("PUT", f"/ws/v1/cluster/apps/{APP}/state?user.name=etl", b'{"state": "KILLED"}') in manager.asked


def test_application_of_others_and_one_that_only_its_own_record_names_are_not_killed(manager: Manager):
    manager.says(f"/ws/v1/cluster/apps/{APP}", {"app": {"id": APP, "state": "RUNNING"}})
    deployment = deployment_for(on_yarn(manager.url))
    for native_id in (DRIVER, {"application": APP}, {**DRIVER, "said_by": "driver"}):
        assert isinstance(deployment.end(native_id), Unknown)
    manager.says(f"/ws/v1/cluster/apps/{APP}", b"<html>", status=502)
    state = deployment_for(on_yarn(manager.url)).end(DRIVER)
    assert isinstance(state, Unknown)
    assert "502" in state.reason, "not that it is no driver"
    assert {method for method, _, _ in manager.asked} == {"GET"}


def test_yarn_is_given_secrets_in_a_file_of_this_user_only(tmp_path: Path):
    target = on_yarn("http://rm:8088", spark_home=str(tmp_path))
    command = command_line(Yarn(), a_submission(target), "tag", tmp_path)
    file = tmp_path / "driver.properties"
    assert command[1:3] == ["--properties-file", str(file)]
    assert file.stat().st_mode & 0o777 == 0o600
    assert SECRET in file.read_text()
    assert SECRET not in " ".join(command)


def test_application_is_tagged_and_not_waited_for_whatever_the_job_sets(tmp_path: Path):
    conf = {"spark.yarn.submit.waitAppCompletion": "true", "spark.yarn.tags": "mine"}
    target = on_yarn("http://rm:8088", spark_home=str(tmp_path), conf=conf)
    command = command_line(Yarn(), a_submission(target), "tag", tmp_path)
    assert not any(part.startswith(tuple(conf)) for part in command), "there it would win over the file"
    said = (tmp_path / "driver.properties").read_text()
    assert "waitAppCompletion=false" in said
    assert "spark.yarn.tags=mine,tag" in said


@pytest.mark.parametrize("name", ["spark.driver.supervise", "spark.yarn.maxAppAttempts"])
def test_cluster_that_would_start_a_driver_again_too_is_refused(name: str):
    value = {"spark.driver.supervise": "true", "spark.yarn.maxAppAttempts": "2"}[name]
    with pytest.raises(BadInputError, match=name):
        require_recordable(a_spec(conf={name: value}), on_yarn(None))


def test_master_that_holds_no_drivers_and_unknown_deployments_are_refused_by_name():
    with refuses(DEPLOY_MODE, match=r"local\[2\]"):
        deployment_for(a_target(deploy_mode="cluster"))
    with refuses(DEPLOY_MODE, match="'elsewhere'"):
        deployment_for(a_target(deployment="elsewhere"))


def test_no_cluster_is_asked_at_an_address_that_no_caller_signed(manager: Manager):
    def unsigned() -> SubmitTarget:
        raise SignatureError("x", state_after="y", remedy="z")

    local, launch = DetachedDeployment(), {"target": {"deploy_mode": "cluster", "cluster_url": manager.url}}
    deployment = Deployments().of_claim("c", launch, unsigned, local=local)
    assert isinstance(deployment.state({"driver": "driver-1"}), Unknown)
    assert manager.asked == []
    assert Deployments().of_claim("c", {}, unsigned, local=local) is local


@pytest.mark.parametrize(
    ("tags", "kills"), [("mine,flinkstyle-claim-1", 1), ("flinkstyle-claim-2", 0), ("mine", 0), (None, 0)]
)
def test_only_an_application_with_the_tag_of_the_claim_is_killed(
    manager: Manager, tags: str | None, kills: int
):
    path = f"/ws/v1/cluster/apps/{APP}"
    manager.says(path, {"app": {"id": APP, "state": "RUNNING", "applicationTags": tags}})
    asked = manager.asked

    class Ends(dict[str, tuple[int, bytes]]):
        """The application has ended once it was asked to."""

        def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - as dict names it
            if any(method == "PUT" for method, _, _ in asked):
                app = {"id": APP, "state": "FAILED", "diagnostics": "exitCode: 137", "applicationTags": tags}
                return 200, json.dumps({"app": app}).encode()
            return super().get(key, default)

    manager.answers = Ends(manager.answers)
    deployment_for(on_yarn(manager.url)).end(DRIVER)
    assert [method for method, _, _ in asked].count("PUT") == kills
