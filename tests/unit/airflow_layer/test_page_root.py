"""What the Savepoints page does through a hook: a driver's log, and a dry run that may ask Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.errors import ConnectionMissingError
from airflow_flinkstyle.hooks.page_roots import PageRoot
from airflow_flinkstyle.jobs.deployments.base import DriverPages
from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.plugin.cache.root_watch import RootWatch
from airflow_flinkstyle.plugin.driver_log import driver_log
from airflow_flinkstyle.plugin.roots import OpenRoot, Roots
from airflow_flinkstyle.plugin.starting import dry_run
from airflow_flinkstyle.types import Generation
from testbed.keys import SIGNING_KEY
from testbed.ports import free_port
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from types import SimpleNamespace

    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow
LISTED: dict[str, Any] = {"damaged": None, "verified": {"level": "quick", "at_ms": 1}}


def root_of(world: World) -> OpenRoot:
    page = PageRoot(conn_id="flinkstyle_default", dag_id="take_savepoint")
    return OpenRoot(page=page, watch=RootWatch(lambda: world.store))


def test_log_is_shown_with_the_page_of_the_cluster(world: World):
    world.start()
    found = driver_log(root_of(world), world.job, Generation(1), 10)
    assert (found["text"], found["cluster_page"]) == ("the end of the log", "https://cluster/drivers/1")


def test_page_that_is_no_address_of_the_web_is_left_out(world: World, monkeypatch: pytest.MonkeyPatch):
    world.start()
    script = "javascript:alert(1)"
    hostile = DriverPages(cluster=script, log=script, spark_ui=script)
    monkeypatch.setattr(world, "pages", lambda native_id: hostile)
    found = driver_log(root_of(world), world.job, Generation(1), 10)
    assert (found["cluster_page"], found["log_page"], found["spark_ui"]) == (None, None, None)


def test_log_of_a_claim_that_nobody_signed_is_not_shown(world: World):
    world.start()
    key = f"{world.job}/runs/000001/claim.json"
    forged = world.store.read(key).replace(b'"log_dir": "', b'"log_dir": "/etc')
    world.store.write(key, forged)
    found = driver_log(root_of(world), world.job, Generation(1), 10)
    assert found["text"] == "(not shown: SIGNATURE)"


def test_log_of_a_run_that_is_not_there_is_refused(world: World):
    world.start()
    with pytest.raises(JobNotRunningError, match="Generation 7"):
        driver_log(root_of(world), world.job, Generation(7), 10)


def saved(world: World) -> str:
    client = world.start()
    _, end = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    assert end.savepoint_id is not None
    return str(end.savepoint_id)


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {check["about"]: check["verdict"] for check in found["checks"]}


def test_dry_run_judges_files_and_records_and_asks_no_cluster_unless_told(world: World):
    found = dry_run(root_of(world), world.job, saved(world), LISTED, ())
    assert verdicts(found) == {
        "the job has stopped": "refused",
        "Spark's version and settings": "passes",
        "the script": "not judged",
        "the savepoint's files": "passes",
        "positions of query orders, source 0": "not judged",
    }
    assert found["restores_files"] > 0
    damaged = dry_run(root_of(world), world.job, found["savepoint_id"], {**LISTED, "damaged": "gone"}, ())
    assert verdicts(damaged)["the savepoint's files"] == "refused"
    unknown = dry_run(
        root_of(world), world.job, found["savepoint_id"], {"damaged": None, "verified": None}, ()
    )
    assert verdicts(unknown)["the savepoint's files"] == "not judged"


def test_cluster_that_does_not_answer_is_not_judged_and_waited_for_briefly(
    world: World, connections: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("airflow_flinkstyle.plugin.starting.KAFKA_TIMEOUT_S", 1.0)
    connections.set("kafka_old", "kafka", {"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    found = dry_run(root_of(world), world.job, saved(world), LISTED, ("kafka_old",))
    (positions,) = [check for check in found["checks"] if check["about"].startswith("positions")]
    assert positions["verdict"] == "not judged"
    assert "kafka_old" in positions["says"]


def test_only_kafka_connections_that_jobs_may_use_are_asked(world: World, connections: SimpleNamespace):
    savepoint_id = saved(world)
    there = {**connections.extra, "savepoint_root": "s3://savepoints/jobs", "kafka_connections": "kafka_new"}
    connections.set("flinkstyle_default", "flinkstyle", there, password=SIGNING_KEY)
    with pytest.raises(BadInputError, match="kafka_payroll"):
        dry_run(root_of(world), world.job, savepoint_id, LISTED, ("kafka_payroll",))


def test_kafka_connection_that_is_not_there_is_refused_by_name(world: World):
    with pytest.raises(BadInputError, match="connection kafka_lost of type kafka was expected"):
        dry_run(root_of(world), world.job, saved(world), LISTED, ("kafka_lost",))


def test_connection_that_is_not_there_is_a_sentence_on_the_page():
    page = PageRoot(conn_id="lost", dag_id="take_savepoint")
    root = Roots(pages={"lost": page}).root("lost")
    wait_until("it was read", lambda: not root.watch.jobs()["loading"])
    assert "A connection lost of type flinkstyle was expected" in root.watch.jobs()["error"]["problem"]


def test_connections_are_read_as_the_team_of_the_roots_dag(monkeypatch: pytest.MonkeyPatch):
    extra = {"savepoint_root": "/vault", "aws_conn_id": "keys"}
    of_team = {
        "VAULT": {"conn_type": "flinkstyle", "password": SIGNING_KEY, "extra": extra},
        "KEYS": {"conn_type": "aws", "login": "of-billing", "password": "its-key"},
    }
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    for name, value in of_team.items():
        monkeypatch.setenv(f"AIRFLOW_CONN__BILLING___{name}", json.dumps(value))
    roots = Roots(pages={"vault": PageRoot(conn_id="vault", dag_id="take_billing")})
    found = roots.root("vault", "billing").hook()
    assert (found.defaults.savepoint_root, found.signer.keys) == ("/vault", (SIGNING_KEY,))
    assert found.s3 is not None
    assert found.s3.access_key == "of-billing"
    for team in ("shop", None):
        with pytest.raises(ConnectionMissingError):
            roots.root("vault", team).hook().defaults  # noqa: B018 - reads the connection
    assert roots.root("vault", "billing") is roots.root("vault", "billing")
    assert roots.root("vault", "billing") is not roots.root("vault", "shop")
