"""A YARN that wants Kerberos: who is said to ask, and what is refused; a real one is in tests/clusters."""

from __future__ import annotations

import base64
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.base import Alive, Unknown
from airflow_flinkstyle.jobs.deployments.yarn import manager_urls
from airflow_flinkstyle.jobs.errors import ClusterLoginError
from airflow_flinkstyle.jobs.target import deployment_for
from tests.unit.jobs.managers import Manager, a_manager
from tests.unit.jobs.specs import a_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.jobs.target import SubmitTarget

APP = "application_1_0001"
DRIVER = {"application": APP, "claim": "claim-1"}
TAG = "flinkstyle-claim-1"
PATH = f"/ws/v1/cluster/apps/{APP}"


@pytest.fixture
def manager() -> Iterator[Manager]:
    with a_manager() as manager:
        manager.wants_to_know = "Negotiate"
        manager.says(PATH, {"app": {"id": APP, "state": "RUNNING", "applicationTags": TAG}})
        yield manager


def on_yarn(url: str, **changes: object) -> SubmitTarget:
    return a_target(master="yarn", deploy_mode="cluster", cluster_url=url, **changes)


class Gss(ModuleType):
    """In place of the package that only an installation with Kerberos has: tokens tell for whom they are."""

    NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
    exceptions = SimpleNamespace(GSSError=PermissionError)
    OID = SimpleNamespace(from_int_seq=str)

    def __init__(self, *, has_ticket: bool = True) -> None:
        super().__init__("gssapi")
        self.has_ticket, self.stores = has_ticket, []

    def Name(self, name: str, kind: str) -> str:
        return f"{kind} {name}"

    def Credentials(self, *, name: str | None, usage: str, store: Mapping[str, str]) -> str:
        self.stores.append(store)
        return f"{name}, {usage}"

    def SecurityContext(self, *, name: str, creds: str | None, usage: str, mech: str) -> SimpleNamespace:
        if not self.has_ticket:
            raise PermissionError("No credentials cache found")
        return SimpleNamespace(step=lambda: f"{creds} to {name}".encode())


def said(user: str, host: str = "127.0.0.1") -> str:
    """Return what a manager on a host is told of who asks."""
    return f"Negotiate {base64.b64encode(f'{user} to service HTTP@{host}'.encode()).decode()}"


def test_manager_that_wants_to_know_is_told_who_asks_by_the_keytab(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    gss, keytab = Gss(), tmp_path / "etl.keytab"
    keytab.touch()
    monkeypatch.setitem(sys.modules, "gssapi", gss)
    conf = {"spark.kerberos.principal": "etl@REALM", "spark.kerberos.keytab": str(keytab)}
    assert isinstance(deployment_for(on_yarn(manager.url, conf=conf)).state(DRIVER), Alive)
    assert manager.said_who == [said("principal etl@REALM, initiate")]
    assert [store["client_keytab"] for store in gss.stores] == [str(keytab)]


def test_what_is_put_arrives_once_it_is_known_who_asks(manager: Manager, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gssapi", Gss())
    path = f"{PATH}/state?user.name=etl&doAs=etl"
    manager.says(f"{PATH}?doAs=etl", {"app": {"id": APP, "state": "RUNNING", "applicationTags": TAG}})
    manager.says(path, {"state": "KILLED"})
    deployment = deployment_for(on_yarn(manager.url, proxy_user="etl"))
    monkeypatch.setattr("airflow_flinkstyle.jobs.deployments.rest._KILL_TIMEOUT_S", 0.0)
    deployment.end(DRIVER)
    assert [(method, body) for method, asked, body in manager.asked if asked == path] == [
        ("PUT", b'{"state": "KILLED"}')
    ]


def test_who_asks_is_told_to_each_manager_by_a_ticket_of_its_own(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "gssapi", Gss())
    with a_manager() as standby:
        standby.wants_to_know = "Negotiate"
        standby.leads_to = manager.url.replace("127.0.0.1", "localhost")
        state = deployment_for(on_yarn(standby.url)).state(DRIVER)
    assert isinstance(state, Alive)
    assert (standby.said_who, manager.said_who) == ([said("None")], [said("None", "localhost")])


def test_manager_that_asks_otherwise_is_told_nothing(manager: Manager, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gssapi", Gss())
    manager.wants_to_know = "Basic"
    assert isinstance(deployment_for(on_yarn(manager.url)).state(DRIVER), Unknown)
    assert manager.said_who == []


def test_manager_that_refuses_is_no_manager_that_knows_nothing(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "gssapi", Gss())
    refusal = {"RemoteException": {"exception": "AuthorizationException", "message": "may not act for etl"}}
    with a_manager() as other:
        for path in (PATH, "/ws/v1/cluster/info"):
            other.says(f"{path}?doAs=etl", refusal, status=403)
        manager.says(f"{PATH}?doAs=etl", {"app": {"id": APP, "state": "RUNNING", "applicationTags": TAG}})
        manager.says("/ws/v1/cluster/info?doAs=etl", {"clusterInfo": {}})
        other.wants_to_know = "Negotiate"
        both = deployment_for(on_yarn(f"{other.url},{manager.url}", proxy_user="etl"))
        assert isinstance(both.state(DRIVER), Alive)
        both.require_able()
        with pytest.raises(ClusterLoginError, match="may not act for etl"):
            deployment_for(on_yarn(other.url, proxy_user="etl")).require_able()


@pytest.mark.parametrize(
    ("gss", "kind", "words"),
    [
        (
            None,
            BadInputError,
            r"the package gssapi is missing here .+ Install airflow-flinkstyle\[kerberos\]",
        ),
        (Gss(has_ticket=False), ClusterLoginError, r"could be got: No credentials .+ Run `airflow kerberos`"),
    ],
)
def test_caller_whom_no_manager_lets_in_starts_nothing(
    manager: Manager,
    gss: Gss | None,
    kind: type[FlinkstyleError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "gssapi", gss)
    deployment = deployment_for(on_yarn(manager.url))
    with pytest.raises(kind, match=words):
        deployment.require_able()
    state = deployment.state(DRIVER)
    assert isinstance(state, Unknown)
    assert "wants Kerberos" in state.reason


def test_manager_that_does_not_answer_refuses_nothing(manager: Manager):
    manager.wants_to_know = ""
    deployment_for(on_yarn(manager.url)).require_able()
    assert [path for _, path, _ in manager.asked] == ["/ws/v1/cluster/info"]


@pytest.mark.parametrize(
    ("rows", "urls"),
    [
        ({"yarn_resourcemanager_hostname": "rm"}, ["http://rm:8088"]),
        ({"yarn_resourcemanager_hostname": "rm", "yarn_http_policy": "HTTPS_ONLY"}, ["https://rm:8090"]),
        (
            {
                "yarn_http_policy": "HTTPS_ONLY",
                "yarn_resourcemanager_webapp_address": "rm:1",
                "yarn_resourcemanager_webapp_https_address": "rm:2",
            },
            ["https://rm:2"],
        ),
        ({}, []),
    ],
)
def test_managers_are_asked_where_hadoops_settings_say(tmp_path: Path, rows: dict[str, str], urls: list[str]):
    lines = (
        f"<property><name>{key.replace('_', '.')}</name><value>{value}</value></property>"
        for key, value in rows.items()
    )
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    assert manager_urls({"HADOOP_CONF_DIR": str(tmp_path)}) == urls
