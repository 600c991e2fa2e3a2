"""The API of the Savepoints page in a real Airflow: who may, what is answered, and that it is described."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from testbed import paths
from tests import hearts
from tests.integration.page_lab import SECRETS, Caller, an_airflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.airflow import Airflow

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.nightly]

API = "/flinkstyle/api"
ROOT = f"{API}/roots/flinkstyle_default"
ORDERS = f"{ROOT}/jobs/orders"
MOST_BUNDLE_BYTES = 200_000


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    with an_airflow(tmp_path_factory.mktemp("page")) as airflow:
        yield airflow


@pytest.fixture(autouse=True, scope="module")
def _no_heart_beats_on() -> Iterator[None]:
    """The jobs seem to run in all tests of the module; replaces the fixture that ends them after each."""
    yield
    hearts.end_all()


@pytest.fixture(scope="module")
def admin(airflow: Airflow) -> Caller:
    return Caller(airflow.base_url, "admin")


@pytest.fixture(autouse=True, scope="module")
def _dags(admin: Caller) -> None:
    admin.until_parsed("take_savepoint", "take_savepoint_payments", "start_job")


@pytest.fixture(scope="module")
def viewer(airflow: Airflow) -> Caller:
    return Caller(airflow.base_url, "viewer")


@pytest.mark.parametrize(
    "path", ["/jobs", "/roots/flinkstyle_default/jobs/orders/runs/1/log", "/roots/lost/actions"]
)
def test_api_tells_nothing_without_a_login_or_a_right(airflow: Airflow, path: str):
    assert Caller(airflow.base_url).ask("GET", API + path)[0] == 401
    forged = {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."}
    assert Caller(airflow.base_url).ask("GET", API + path, headers=forged)[0] in (401, 403)
    assert Caller(airflow.base_url, "nobody").ask("GET", API + path)[0] == 403


def test_root_that_is_not_there_answers_as_one_that_may_not_be_read(airflow: Airflow, admin: Caller):
    nobody = Caller(airflow.base_url, "nobody").ask("GET", f"{ROOT}/actions")
    assert nobody == admin.ask("GET", f"{API}/roots/no-such/actions")


def test_root_whose_dag_is_not_there_is_nobodys(admin: Caller, airflow: Airflow):
    shown = admin.ask("GET", f"{API}/jobs")[1]["roots"]
    assert "ghost" not in {root["conn_id"] for root in shown}
    assert {"flinkstyle_default", "lost"} <= {root["conn_id"] for root in shown}
    for method, path in (("GET", "/jobs/orders"), ("GET", "/jobs/orders/runs/1/log"), ("POST", "/refresh")):
        assert admin.ask(method, f"{API}/roots/ghost{path}")[0] == 403, path
    assert "shows nobody the root of DAG no_such_dag: there is no such DAG" in airflow.service.log_text()


def test_viewer_reads_and_changes_nothing(viewer: Caller, admin: Caller):
    status, told = viewer.ask("GET", f"{ROOT}/actions")
    nothing = {"dags": {}, "refresh": False, "pin": False, "kafka": False, "logs": True}
    assert (status, told) == (200, nothing)
    assert viewer.ask("POST", f"{ROOT}/refresh")[0] == 403
    status, refused = viewer.ask("PUT", f"{ORDERS}/savepoints/sp-3/pin", body={"reason": "mine"})
    assert (status, refused["detail"]) == (403, "No right to trigger DAG take_savepoint.")
    assert viewer.ask("DELETE", f"{ORDERS}/savepoints/sp-1/pin")[0] == 403
    assert admin.ask("POST", f"{ROOT}/refresh")[0] == 200
    assert admin.ask("GET", f"{ORDERS}/savepoints/sp-1")[1]["pinned"] == "audit of the quarter"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{ROOT}/refresh", None),
        ("PUT", f"{ORDERS}/savepoints/sp-3/pin", {"reason": "kept"}),
        ("DELETE", f"{ORDERS}/savepoints/sp-3/pin", None),
    ],
)
def test_change_with_a_cookie_comes_from_our_own_origin(
    airflow: Airflow, admin: Caller, method: str, path: str, body: dict[str, str] | None
):
    def ask(**headers: str) -> int:
        cookie = {"Cookie": f"_token={admin.token}"}
        return admin.ask(method, path, body=body, headers={**cookie, **headers})[0]

    for origin in (
        "https://evil.example",
        "null",
        f"{airflow.base_url}.evil.example",
        airflow.base_url + "1",
    ):
        assert ask(Origin=origin) == 403, origin
    assert ask() == 403
    assert ask(Origin=airflow.base_url) == 200


def test_pin_says_who_and_why_and_is_seen_at_once(admin: Caller, airflow: Airflow):
    pin = f"{ORDERS}/savepoints/sp-2/pin"
    assert admin.ask("PUT", pin, body={"reason": "before the audit"}) == (200, {"pinned": "before the audit"})
    kept = json.loads((airflow.folder.parent / "shop/root/orders/references/sp-2/pin.json").read_text())
    assert (kept["by"], kept["reason"]) == ("admin", "before the audit")
    assert admin.ask("GET", f"{ORDERS}/savepoints/sp-2")[1]["pinned"] == "before the audit"
    assert admin.ask("DELETE", pin) == (200, {"pinned": None})
    assert admin.ask("GET", f"{ORDERS}/savepoints/sp-2")[1]["pinned"] is None
    assert admin.ask("DELETE", pin)[0] == 200  # twice is no error


def test_answers_hold_no_secret(admin: Caller):
    paths_ = [f"{API}/jobs", ORDERS, f"{ORDERS}/savepoints", f"{ORDERS}/savepoints/sp-3"]
    paths_ += [f"{ORDERS}/diff?before=sp-1&after=sp-3", f"{ORDERS}/savepoints/sp-3/start"]
    paths_ += [f"{ORDERS}/runs/2/log", f"{ROOT}/actions"]
    answers = [admin.ask("GET", path) for path in paths_]
    assert [status for status, _ in answers] == [200] * len(paths_)
    assert not any(secret in json.dumps(answers) for secret in SECRETS.values())


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"{ORDERS}/savepoints/sp-9", None, 404),
        ("GET", f"{ORDERS}/savepoints/sp-9/start", None, 404),
        ("GET", f"{ORDERS}/savepoints/..%2fx", None, 404),
        ("GET", f"{ORDERS}/savepoints/%3Cscript%3E", None, 400),
        ("GET", f"{ORDERS}/runs/9/log", None, 404),
        ("GET", f"{ORDERS}/runs/2/comparison", None, 404),
        ("GET", f"{ORDERS}/runs/x/log", None, 422),
        ("GET", f"{ROOT}/jobs/%3Cscript%3E", None, 400),
        ("GET", f"{ROOT}/jobs/gone", None, 404),
        ("GET", f"{ORDERS}/diff?before=sp-1&after=..%2fx", None, 400),
        ("GET", f"{ORDERS}/diff?before=sp-1", None, 422),
        ("GET", f"{ORDERS}/savepoints/sp-3/start?kafka_conn_id=no_such", None, 400),
        ("PUT", f"{ORDERS}/savepoints/sp-9/pin", {"reason": "gone"}, 404),
        ("PUT", f"{ORDERS}/savepoints/sp-3/pin", {"reason": "  "}, 400),
        ("PUT", f"{ORDERS}/savepoints/sp-3/pin", {"reason": ""}, 422),
        ("PUT", f"{ORDERS}/savepoints/sp-3/pin", {"reason": "x" * 501}, 422),
        ("PUT", f"{ORDERS}/savepoints/sp-3/pin", {"reason": "x", "by": "me"}, 422),
    ],
)
def test_bad_input_is_a_sentence(
    admin: Caller, method: str, path: str, body: dict[str, str] | None, status: int
):
    found, told = admin.ask(method, path, body=body)
    assert found == status
    error = told.get("error")
    words = [error["problem"], error["remedy"]] if error else told["detail"]
    assert words
    if status == 404 and "sp-9" in path:
        assert "sp-9" in error["problem"]


def test_clusters_are_asked_only_for_who_may_trigger(viewer: Caller):
    status, told = viewer.ask("GET", f"{ORDERS}/savepoints/sp-3/start?kafka_conn_id=kafka_default")
    assert (status, told["detail"]) == (
        403,
        "No right to trigger DAG take_savepoint, so no cluster is asked.",
    )
    assert viewer.ask("GET", f"{ORDERS}/savepoints/sp-3/start")[0] == 200


def test_what_a_job_keeps_is_counted_once_for_all_and_names_no_place(viewer: Caller, admin: Caller):
    status, told = viewer.ask("GET", f"{ORDERS}/usage")
    found = told["found"]
    assert (status, told["not_counted"], found["job"]) == (200, None, "orders")
    reasons = {one["savepoint_id"]: one["reason"] for one in found["savepoints"]}
    assert reasons["sp-1"].startswith("pinned by")
    assert {one["holder"] for one in found["references"]} >= {"pin", "generation-000002"}
    assert [one["generations"] for one in found["checkpoints"]] == [[2], [1]]
    assert {tuple(sorted(one)) for one in found["checkpoints"]} == {
        ("generations", "goes", "reason", "size_bytes")
    }
    assert found["total_bytes"] == found["blob_bytes"] + found["checkpoint_bytes"] > 0
    assert admin.ask("GET", f"{ORDERS}/usage")[1] == told, "read again only after ten minutes"


def test_button_of_a_job_opens_the_dag_that_it_has_of_its_own(admin: Caller):
    def opened(job: str) -> str | None:
        return admin.ask("GET", f"{ROOT}/actions?job={job}")[1]["dags"].get("take_savepoint")

    assert opened("payments") == "take_savepoint_payments"
    assert opened("orders") == "take_savepoint"
    assert admin.ask("GET", f"{ROOT}/actions?job=..%2fx")[0] == 400


def test_refusals_are_logged_with_whom_they_met(viewer: Caller, airflow: Airflow):
    viewer.ask("POST", f"{ROOT}/refresh")
    log = (airflow.folder / "airflow.log").read_text()
    assert "The Savepoints page refused user viewer: No right to trigger DAG take_savepoint." in log


ANSWERS = {
    "/api/jobs": f"{API}/jobs",
    "/api/roots/{conn_id}/actions": f"{ROOT}/actions",
    "/api/roots/{conn_id}/jobs/{job}": ORDERS,
    "/api/roots/{conn_id}/jobs/{job}/diff": f"{ORDERS}/diff?before=sp-1&after=sp-3",
    "/api/roots/{conn_id}/jobs/{job}/runs/{generation}/comparison": f"{ROOT}/jobs/refunds/runs/2/comparison",
    "/api/roots/{conn_id}/jobs/{job}/runs/{generation}/log": f"{ORDERS}/runs/2/log",
    "/api/roots/{conn_id}/jobs/{job}/usage": f"{ORDERS}/usage",
    "/api/roots/{conn_id}/jobs/{job}/savepoints": f"{ORDERS}/savepoints",
    "/api/roots/{conn_id}/jobs/{job}/savepoints/{savepoint_id}": f"{ORDERS}/savepoints/sp-3",
    "/api/roots/{conn_id}/jobs/{job}/savepoints/{savepoint_id}/start": f"{ORDERS}/savepoints/sp-3/start",
}
"""Route -> an address of it."""


@pytest.fixture(scope="module")
def described(admin: Caller) -> dict[str, Any]:
    found: dict[str, Any] = admin.ask("GET", f"{API}/openapi.json")[1]
    return found


def matches(described: dict[str, Any], route: str, method: str, status: int, answer: Any) -> None:  # noqa: ANN401
    told = described["paths"][route][method]["responses"][str(status)]["content"]["application/json"]
    schema = {**told["schema"], "components": described["components"]}
    Draft202012Validator(schema).validate(answer)


def test_every_route_is_described_and_tried(described: dict[str, Any]):
    read = {route for route, methods in described["paths"].items() if "get" in methods}
    assert read == set(ANSWERS)
    changed = {
        (route.removeprefix("/api/roots/{conn_id}"), method)
        for route, methods in described["paths"].items()
        for method in methods
        if method != "get"
    }
    pin = "/jobs/{job}/savepoints/{savepoint_id}/pin"
    assert changed == {("/refresh", "post"), (pin, "put"), (pin, "delete")}


@pytest.mark.parametrize("route", ANSWERS)
def test_answer_is_as_it_is_described(described: dict[str, Any], admin: Caller, route: str):
    status, answer = admin.ask("GET", ANSWERS[route])
    matches(described, route, "get", status, answer)
    if isinstance(answer, dict) and not route.endswith("/diff"):
        with pytest.raises(Exception, match=r"Additional properties|does not match"):
            matches(described, route, "get", 200, {**answer, "secret": 1})


def test_answers_of_jobs_that_failed_or_never_ran_are_described_too(described: dict[str, Any], admin: Caller):
    for job in ("payments", "refunds"):
        status, answer = admin.ask("GET", f"{ROOT}/jobs/{job}")
        matches(described, "/api/roots/{conn_id}/jobs/{job}", "get", status, answer)
    status, answer = admin.ask("GET", f"{API}/roots/flinkstyle_hostile/jobs/hostile")
    matches(described, "/api/roots/{conn_id}/jobs/{job}", "get", status, answer)


def test_error_is_as_it_is_described(described: dict[str, Any], admin: Caller):
    route = "/api/roots/{conn_id}/jobs/{job}/savepoints/{savepoint_id}"
    matches(described, route, "get", 404, admin.ask("GET", f"{ORDERS}/savepoints/sp-9")[1])


def test_page_is_small():
    static = paths.ROOT / "airflow_flinkstyle" / "plugin" / "static"
    assert 0 < sum(file.stat().st_size for file in static.iterdir()) <= MOST_BUNDLE_BYTES
