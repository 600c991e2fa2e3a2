"""The Savepoints page in a real Airflow and a real Chromium, for an admin, a viewer, and who has no right."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import paths
from testbed.waiting import scaled, wait_until
from tests import hearts
from tests.integration.page_lab import HOSTILE_FOLDER, MARKUP, SECRETS, Caller, an_airflow, password_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from testbed.airflow import Airflow

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

CHROMIUM = shutil.which("chromium")
API = "/flinkstyle/api"
PICTURES = os.environ.get("PAGE_PICTURES")
"""Folder for the screenshots of the documentation (``make pictures``)."""
MOST_BUNDLE_BYTES = 200_000
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


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
    admin = Caller(airflow.base_url, "admin")
    actions = f"{API}/roots/flinkstyle_default/actions"
    wait_until("DAGs parsed", lambda: len(admin.ask("GET", actions)[1]["dags"]) == 6)
    return admin


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox needs rights that containers lack; the pages are our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def log_in(browser: Browser, airflow: Airflow, user: str, *, dark: bool = False) -> Page:
    """Log a user in, as a person does."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(scaled(30) * 1000)
    if dark:
        page.add_init_script("localStorage.setItem('theme', 'dark')")
    page.goto(airflow.base_url)
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password_of(user))
    page.click("button[type=submit]")
    return page


def open_page(browser: Browser, airflow: Airflow, user: str, *, dark: bool = False) -> Page:
    """Log a user in, and open the page from the navigation."""
    page = log_in(browser, airflow, user, dark=dark)
    page.click("a[href$='/plugin/savepoints']")
    page.wait_for_selector(".flinkstyle h1")
    return page


def keep_picture(page: Page, selector: str, name: str) -> None:
    """Store a screenshot, if they are wanted."""
    if PICTURES:
        page.locator(selector).first.screenshot(path=str(Path(PICTURES) / f"{name}.png"))


# --- in the browser ---------------------------------------------------------------------------


@in_a_browser
def test_viewer_sees_jobs_and_savepoints_and_can_trigger_nothing(
    airflow: Airflow, admin: Caller, browser: Browser
):
    page = open_page(browser, airflow, "viewer")
    page.wait_for_selector("text=refunds")
    table = page.inner_text(".flinkstyle section >> nth=0")
    for words in (
        "orders",
        "running",
        "worker-7",
        "1,235 in",
        "2,346 processed",
        "321",
        "verified (quick)",
        "to-new-cluster",
    ):
        assert words in table
    assert "SCRIPT_FAILED" in table
    assert page.locator(".flinkstyle button").count() == 0
    page.click("a:text-is('orders')")
    page.wait_for_selector("text=audit of the quarter")
    assert page.locator("svg.timeline a").count() == 3
    assert page.locator("figure svg polyline").count() == 5
    assert set(page.locator(".flinkstyle button").all_inner_texts()) == {
        "2 hours",
        "1 day",
        "1 week",
        "120 days",
    }
    page.click("table a:text-is('sp-3')")
    page.wait_for_selector("text=123,000")
    page.select_option("select", label=page.inner_text("option >> nth=2"))
    page.wait_for_selector("text=Positions that moved")
    assert "82,000" in page.inner_text(".flinkstyle")


@in_a_browser
def test_admin_triggers_a_dag_with_the_fields_filled_in(airflow: Airflow, admin: Caller, browser: Browser):
    page = open_page(browser, airflow, "admin")
    page.wait_for_selector("button:has-text('Read again')")
    page.click("button:has-text('Read again')")
    page.wait_for_selector("[role=status]:has-text('Reading'), [role=status]:has-text('often enough')")
    keep_picture(page, ".flinkstyle section", "page-jobs")
    page.click("a:text-is('orders')")
    page.wait_for_selector("text=audit of the quarter")
    page.wait_for_selector("button:has-text('Take a savepoint')")
    page.set_viewport_size({"width": 1280, "height": 1500})
    keep_picture(page, ".flinkstyle", "page-job")
    page.click("button:has-text('Take a savepoint')")
    assert page.input_value("dialog input[name=job]") == "orders"
    assert page.input_value("dialog input[name=flinkstyle_conn_id]") == "flinkstyle_default"
    assert "paused" in page.inner_text("dialog")
    page.click("dialog button:has-text('Trigger')")
    page.wait_for_selector("dialog [role=status] a")
    (run,) = admin.ask("GET", "/api/v2/dags/take_savepoint/dagRuns")[1]["dag_runs"]
    assert run["conf"] == {"job": "orders", "flinkstyle_conn_id": "flinkstyle_default"}
    assert run["triggering_user_name"] == "admin"


@in_a_browser
def test_markup_from_the_store_is_text_and_errors_are_sentences(
    airflow: Airflow, admin: Caller, browser: Browser
):
    page = open_page(browser, airflow, "admin", dark=True)
    page.wait_for_selector("text=No job can be shown. Add the connection")
    text = page.inner_text(".flinkstyle")
    assert f"no job can have such a name: {HOSTILE_FOLDER}" in text
    assert text.count(MARKUP) >= 2
    page.click("a:text-is('hostile')")
    page.wait_for_selector("text=Migrations and upgrades")
    assert page.inner_text(".flinkstyle").count(MARKUP) >= 5
    for job, said in (
        ("%3Cimg%20src=x%20onerror=globalThis.hacked=1%3E", "A job name"),
        ("gone", "No job gone"),
    ):
        page.goto(f"{airflow.base_url}/plugin/savepoints#/flinkstyle_default/{job}")
        page.wait_for_selector(f".fault:has-text('{said}')")
    assert page.evaluate("globalThis.hacked") is None
    assert page.locator(".flinkstyle img, .flinkstyle script").count() == 0


@in_a_browser
def test_who_has_no_right_finds_no_page_and_no_job(airflow: Airflow, admin: Caller, browser: Browser):
    page = log_in(browser, airflow, "nobody")
    page.wait_for_url(lambda url: "/auth/" not in url)
    page.goto(f"{airflow.base_url}/plugin/savepoints")
    page.wait_for_load_state("networkidle")
    assert page.locator("a[href$='/plugin/savepoints']").count() == 0
    assert page.locator(".flinkstyle table").count() == 0
    assert "orders" not in page.inner_text("body")


@in_a_browser
def test_narrow_window_scrolls_tables_and_not_the_page(airflow: Airflow, admin: Caller, browser: Browser):
    page = open_page(browser, airflow, "viewer")
    page.wait_for_selector("text=refunds")
    page.set_viewport_size({"width": 480, "height": 800})
    content, window = page.evaluate(
        "(page => [page.scrollWidth, page.clientWidth])(document.querySelector('.flinkstyle'))"
    )
    assert content <= window


# --- its API ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/jobs", "/roots/flinkstyle_default/jobs/orders", "/roots/lost/actions"])
def test_api_tells_nothing_without_a_login_or_a_right(airflow: Airflow, path: str):
    assert Caller(airflow.base_url).ask("GET", API + path)[0] == 401
    forged = {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."}
    assert Caller(airflow.base_url).ask("GET", API + path, headers=forged)[0] in (401, 403)
    assert Caller(airflow.base_url, "nobody").ask("GET", API + path)[0] == 403


def test_root_that_is_not_there_answers_as_one_that_may_not_be_read(airflow: Airflow, admin: Caller):
    nobody = Caller(airflow.base_url, "nobody").ask("GET", f"{API}/roots/flinkstyle_default/actions")
    assert nobody == admin.ask("GET", f"{API}/roots/no-such/actions")


def test_viewer_reads_and_does_not_post(airflow: Airflow, admin: Caller):
    viewer = Caller(airflow.base_url, "viewer")
    status, told = viewer.ask("GET", f"{API}/roots/flinkstyle_default/actions")
    assert (status, told) == (200, {"dags": [], "refresh": False})
    assert viewer.ask("POST", f"{API}/roots/flinkstyle_default/refresh")[0] == 403
    assert admin.ask("POST", f"{API}/roots/flinkstyle_default/refresh")[0] == 200


def test_post_with_a_cookie_comes_from_our_own_origin(airflow: Airflow, admin: Caller):
    cookie = {"Cookie": f"_token={admin.token}"}
    refresh = f"{API}/roots/flinkstyle_default/refresh"
    assert admin.ask("POST", refresh, headers={**cookie, "Origin": airflow.base_url})[0] == 200
    for origin in (
        "https://evil.example",
        "null",
        f"{airflow.base_url}.evil.example",
        airflow.base_url + "1",
    ):
        assert admin.ask("POST", refresh, headers={**cookie, "Origin": origin})[0] == 403, origin
    assert admin.ask("POST", refresh, headers=cookie)[0] == 403


def test_answers_hold_no_secret_and_bad_input_is_a_sentence(airflow: Airflow, admin: Caller):
    jobs = f"{API}/roots/flinkstyle_default/jobs"
    paths_ = [f"{API}/jobs", f"{jobs}/orders", f"{jobs}/orders/savepoints", f"{jobs}/orders/savepoints/sp-3"]
    answers = [admin.ask("GET", path) for path in [*paths_, f"{jobs}/orders/diff?before=sp-1&after=sp-3"]]
    assert [status for status, _ in answers] == [200] * 5
    assert not any(secret in json.dumps(answers) for secret in SECRETS.values())
    for path, status in (
        (f"{jobs}/orders/savepoints/sp-9", 404),
        (f"{jobs}/orders/savepoints/..%2fx", 404),
        (f"{jobs}/orders/savepoints/%3Cscript%3E", 400),
        (f"{jobs}/%3Cscript%3E", 400),
        (f"{jobs}/gone", 404),
        (f"{jobs}/orders/diff?before=sp-1&after=..%2fx", 400),
        (f"{jobs}/orders/diff?before=sp-1", 422),
    ):
        assert admin.ask("GET", path)[0] == status, path
    error = admin.ask("GET", f"{jobs}/orders/savepoints/sp-9")[1]["error"]
    assert "sp-9" in error["problem"]
    assert error["remedy"]


def test_api_describes_itself(airflow: Airflow):
    status, described = Caller(airflow.base_url).ask("GET", f"{API}/openapi.json")
    assert status == 200
    assert set(described["paths"]["/api/roots/{conn_id}/refresh"]) == {"post"}


def test_page_is_small():
    static = paths.ROOT / "airflow_flinkstyle" / "plugin" / "static"
    assert 0 < sum(file.stat().st_size for file in static.iterdir()) <= MOST_BUNDLE_BYTES
