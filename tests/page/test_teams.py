"""Two teams of one Airflow at the page: each sees the roots whose DAG is its own, by its own connections."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from testbed import paths
from testbed.waiting import wait_until
from tests.integration.page_lab import Caller, an_airflow_of, connection
from tests.seeming_jobs import SeemingJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.airflow import Airflow

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]
TEAMS = ("shop", "billing")
ROLES = {"sam": "user:shop", "bo": "viewer:billing", "ann": "viewer:shop|billing", "root": "admin"}
API = "/flinkstyle/api"
DAG = """
from airflow.sdk import DAG, task

with DAG("take_{team}", schedule=None) as dag:
    task(lambda: None, task_id="take")()
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Each team has a bundle with DAG ``take_<team>``, and a root with job ``orders-<team>``."""
    folder = tmp_path_factory.mktemp("teams")
    connections, bundles = {}, []
    for team in TEAMS:
        SeemingJob(folder / team, f"orders-{team}").seem_running(state="closed")
        connections[f"root_{team}"] = connection(folder / team / "root")
        bundles.append(bundle(folder, team))
    SeemingJob(folder / "vault", "payroll").seem_running(state="closed")
    connections["root_lost"] = connection(folder / "vault" / "root")
    page = [*(f"root_{team}:take_{team}" for team in TEAMS), "root_lost:no_such_dag", "vault:take_billing"]
    airflow = an_airflow_of(
        folder,
        connections,
        ", ".join(page),
        roles=ROLES,
        env={
            "AIRFLOW__CORE__MULTI_TEAM": "True",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        },
    )
    for command in (["db", "migrate"], *(["teams", "create", team] for team in TEAMS)):
        subprocess.run(
            [paths.VENV_AIRFLOW / "bin" / "airflow", *command],
            env=airflow.env,
            check=True,
            capture_output=True,
        )
    with airflow:
        vault = json.loads(connection(folder / "vault" / "root"))
        body = {
            "connection_id": "vault",
            "conn_type": "flinkstyle",
            "password": vault["password"],
            "extra": json.dumps(vault["extra"]),
            "team_name": "billing",
        }
        status, said = Caller(airflow.base_url, "root").ask("POST", "/api/v2/connections", body=body)
        assert status == 201, said
        for team, user in zip(TEAMS, ("sam", "bo"), strict=True):
            Caller(airflow.base_url, user).until_parsed(f"take_{team}")
        yield airflow


def bundle(folder: Path, team: str) -> dict[str, object]:
    dags = folder / f"dags-{team}"
    dags.mkdir()
    (dags / "take.py").write_text(DAG.format(team=team))
    kind = "airflow.dag_processing.bundles.local.LocalDagBundle"
    return {"name": team, "classpath": kind, "kwargs": {"path": str(dags)}, "team_name": team}


def jobs(airflow: Airflow, user: str) -> dict[str, list[str]]:
    """Return the roots that a user sees, with their jobs; nothing for one who may see none."""
    status, told = Caller(airflow.base_url, user).ask("GET", f"{API}/jobs")
    roots = told["roots"] if status == 200 else []
    return {root["conn_id"]: [job["job"] for job in root["jobs"]] for root in roots}


def test_each_team_sees_its_own_roots_only(airflow: Airflow):
    expected = {
        "sam": {"root_shop": ["orders-shop"]},
        "bo": {"root_billing": ["orders-billing"], "vault": ["payroll"]},
        "ann": {"root_shop": ["orders-shop"], "root_billing": ["orders-billing"], "vault": ["payroll"]},
    }
    for user, roots in expected.items():
        wait_until(f"what {user} sees", lambda: jobs(airflow, user) == roots)  # noqa: B023  # called now
    sam, bo = Caller(airflow.base_url, "sam"), Caller(airflow.base_url, "bo")
    own, other = (f"{API}/roots/root_{team}/jobs/orders-{team}" for team in TEAMS)
    assert sam.ask("GET", own)[0] == 200
    assert sam.ask("GET", other)[0] == 403
    assert sam.ask("GET", other) == sam.ask("GET", f"{API}/roots/no_such/jobs/x")
    assert sam.ask("POST", f"{API}/roots/root_shop/refresh")[0] == 200
    assert sam.ask("POST", f"{API}/roots/root_billing/refresh")[0] == 403
    assert bo.ask("POST", f"{API}/roots/root_billing/refresh")[0] == 403


def test_root_whose_dag_is_not_there_is_nobodys(airflow: Airflow):
    for user in ROLES:
        caller = Caller(airflow.base_url, user)
        assert "root_lost" not in jobs(airflow, user)
        assert caller.ask("GET", f"{API}/roots/root_lost/jobs/payroll")[0] == 403
        assert caller.ask("GET", f"{API}/roots/root_lost/jobs/payroll/runs/1/log")[0] == 403
        assert caller.ask("POST", f"{API}/roots/root_lost/refresh")[0] == 403


def test_connection_of_a_team_is_found_for_it_and_for_no_other(airflow: Airflow):
    path = f"{API}/roots/vault/jobs/payroll"
    assert Caller(airflow.base_url, "bo").ask("GET", path)[0] == 200
    assert Caller(airflow.base_url, "sam").ask("GET", path)[0] == 403
