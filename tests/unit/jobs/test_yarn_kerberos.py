"""A YARN that wants Kerberos: who is said to ask, and what is refused; a real one is in tests/clusters."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.deployments.base import Alive, Unknown
from airflow_flinkstyle.jobs.deployments.yarn.deployment import YarnDeployment
from airflow_flinkstyle.jobs.deployments.yarn.settings import manager_urls
from airflow_flinkstyle.jobs.errors import DriverFailedError
from tests.unit.jobs.managers import Manager, a_manager
from tests.unit.jobs.specs import a_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.jobs.target import SubmitTarget

APP = "application_1_0001"
PATH = f"/ws/v1/cluster/apps/{APP}"


@pytest.fixture
def manager() -> Iterator[Manager]:
    with a_manager() as manager:
        manager.wants_to_know = "Negotiate"
        manager.says(PATH, {"app": {"id": APP, "state": "RUNNING", "applicationTags": "flinkstyle-claim-1"}})
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


def settings(folder: Path, name: str, **rows: str) -> dict[str, str]:
    """Write a file of Hadoop's settings, dots as underlines; return the environment that names its folder."""
    lines = (
        f"<property><name>{key.replace('_', '.')}</name><value>{value}</value></property>"
        for key, value in rows.items()
    )
    (folder / name).write_text(f"<configuration>{''.join(lines)}</configuration>")
    return {"HADOOP_CONF_DIR": str(folder)}


def test_manager_that_asks_is_told_who_asks_by_the_keytab(manager: Manager, monkeypatch: pytest.MonkeyPatch):
    gss = Gss()
    monkeypatch.setitem(sys.modules, "gssapi", gss)
    conf = {"spark.kerberos.principal": "etl@REALM", "spark.kerberos.keytab": "/etl.keytab"}
    assert isinstance(YarnDeployment(on_yarn(manager.url, conf=conf)).state({"application": APP}), Alive)
    assert manager.said_who == [
        "Negotiate cHJpbmNpcGFsIGV0bEBSRUFMTSwgaW5pdGlhdGUgdG8gc2VydmljZSBIVFRQQDEyNy4wLjAuMQ=="
    ], "principal etl@REALM, initiate to service HTTP@127.0.0.1"
    assert [store["client_keytab"] for store in gss.stores] == ["/etl.keytab"]


def test_manager_that_asks_otherwise_is_told_nothing(manager: Manager, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gssapi", Gss())
    manager.wants_to_know = "Basic"
    assert isinstance(YarnDeployment(on_yarn(manager.url)).state({"application": APP}), Unknown)
    assert manager.said_who == []


def test_who_acts_for_another_user_says_so_where_kerberos_tells_who_asks(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "gssapi", Gss())
    for name, value in settings(tmp_path, "core-site.xml", hadoop_security_authentication="kerberos").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    manager.says(f"{PATH}?doAs=etl", {"app": {"id": APP, "state": "RUNNING"}})
    deployment = YarnDeployment(on_yarn(manager.url, proxy_user="etl"))
    assert isinstance(deployment.state({"application": APP}), Alive)
    assert {path for _, path, _ in manager.asked} == {f"{PATH}?doAs=etl"}


@pytest.mark.parametrize(
    ("gss", "words"),
    [
        (None, r"needs the package gssapi here .+: install airflow-flinkstyle\[kerberos\]"),
        (Gss(has_ticket=False), r"there is no ticket: No credentials cache found; run `airflow kerberos`"),
    ],
)
def test_caller_whom_no_manager_lets_in_starts_nothing(
    manager: Manager, gss: Gss | None, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "gssapi", gss)
    deployment = YarnDeployment(on_yarn(manager.url))
    with pytest.raises(DriverFailedError, match=words):
        deployment.require_able()
    state = deployment.state({"application": APP})
    assert isinstance(state, Unknown)
    assert "asks for Kerberos" in state.reason


def test_manager_that_does_not_answer_refuses_nothing(manager: Manager):
    manager.wants_to_know = ""
    YarnDeployment(on_yarn(manager.url)).require_able()
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
    assert manager_urls(settings(tmp_path, "yarn-site.xml", **rows)) == urls
