"""The Savepoints page in a real Airflow and a real Chromium, for an admin, a viewer, and who has no right.

Its jobs are made up; ``tests/page`` clicks through whole stories on real ones (``make test-page``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.waiting import wait_until
from tests import hearts
from tests.integration.page_lab import HOSTILE_FOLDER, MARKUP, Caller, an_airflow
from tests.nightly import matrix_but
from tests.page_browser import (
    CHROMIUM,
    a_browser,
    findings,
    keep_picture,
    log_in,
    open_job,
    open_page,
    press,
    wait_for_words,
)
from tools.npm import AXE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from testbed.airflow import Airflow

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
NEEDED = {"take_savepoint", "start_job", "upgrade_job", "migrate_kafka_cluster", "roll_back", "fail_back"}
SAVEPOINT = "/plugin/savepoints#/flinkstyle_default/orders"
with_axe = pytest.mark.skipif(not AXE.exists(), reason="needs axe-core, which needs npm")


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
    admin.until_parsed(*NEEDED)
    return admin


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as browser:
        yield browser


@pytest.fixture
def url(airflow: Airflow, admin: Caller) -> str:
    return airflow.base_url


@pytest.mark.nightly
def test_viewer_sees_jobs_and_savepoints_and_can_trigger_nothing(url: str, browser: Browser):
    page = open_page(browser, url, "viewer")
    orders = "tr:has(a:text-is('orders'))"
    wait_for_words(page, orders, "running", "worker-7", "1,235 in", "2,346 processed", "321")
    wait_for_words(page, orders, "verified (quick)", "to-new-cluster")
    wait_for_words(page, ".flinkstyle section", "refunds", "SCRIPT_FAILED")
    assert page.locator(".flinkstyle button").count() == 0
    page.click("a:text-is('orders')")
    page.wait_for_selector("text=audit of the quarter")
    for drawn in ("svg.timeline a >> nth=2", "figure svg polyline >> nth=5"):
        page.wait_for_selector(drawn, state="attached")
    sections = page.locator(".flinkstyle caption, .flinkstyle h2").all_inner_texts()
    assert sections.index("What went wrong, the newest first") < sections.index("Timeline"), "failures first"
    assert page.locator("svg.timeline a").count() == 3
    assert page.locator("svg.timeline .cross").count() == 2
    assert page.locator("figure svg polyline").count() == 6
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
    wait_for_words(page, ".flinkstyle", "82,000")


@pytest.mark.nightly
def test_job_leads_to_the_runs_the_graph_and_what_was_asked(url: str, browser: Browser):
    page = open_page(browser, url, "viewer")
    open_job(page, url, "orders")
    assert page.get_attribute("a:text-is('http://worker-7:4040')", "rel") == "noopener noreferrer"
    asked = page.get_attribute("a:text-is('start_job, manual__1') >> nth=0", "href") or ""
    assert asked == f"{url}/dags/start_job/runs/manual__1"
    assert page.locator("svg.lineage a").count() == 5  # two runs, three savepoints
    page.click("summary:has-text('As a list')")
    page.wait_for_selector("li:text-is('sp-1 is where it started: generation 2')")
    wait_for_words(page, "table:has(caption:has-text('What went wrong'))", "its driver had ended")
    page.click("svg.lineage a[aria-label^='generation 1']")
    page.wait_for_selector("h1:has-text('Generation 1')")
    page.wait_for_selector("pre:has-text('(no log)')")
    assert "disk full" in page.inner_text(".flinkstyle")


@pytest.mark.nightly
def test_comparison_is_shown_with_its_counts_its_rows_and_what_it_leaves_open(url: str, browser: Browser):
    page = open_page(browser, url, "viewer")
    open_job(page, url, "refunds")
    wait_for_words(page, "table:has(th:text-is('Verdict'))", "2 changed")
    page.click("table:has(th:text-is('Verdict')) a:text-is('2')")
    page.wait_for_selector("h2:has-text('Comparison differs')")
    page.wait_for_selector("caption:has-text('Rows that differ')")
    shown = page.inner_text(".flinkstyle")
    for words in ("3,998", "price differs in 2", '{"id":7,"price":1.25}', "loaded_at", "later batches"):
        assert words in shown


@pytest.mark.nightly
def test_dry_run_says_what_a_start_would_meet(url: str, browser: Browser):
    page = open_page(browser, url, "viewer")
    page.goto(url + SAVEPOINT + "/sp-1")
    page.click("button:text-is('Look')")
    page.wait_for_selector("text=JOB_RUNNING")
    found = page.inner_text(".flinkstyle [role=status]")
    # The line says that the job is past it; by query ids alone nothing was known to have come since.
    for words in ("REWIND", "refused", "not judged", "Re-emit", "Restores"):
        assert words in found
    assert page.locator("button:text-is('Ask Kafka')").count() == 0  # that takes the right to trigger


@pytest.mark.nightly
def test_admin_triggers_a_dag_with_the_fields_filled_in(url: str, admin: Caller, browser: Browser):
    page = open_page(browser, url, "admin")
    page.wait_for_selector("button:has-text('Read again')")
    page.click("button:has-text('Read again')")
    page.wait_for_selector("[role=status]:has-text('Reading'), [role=status]:has-text('often enough')")
    keep_picture(page, ".flinkstyle section", "page-jobs")
    page.click("a:text-is('orders')")
    page.wait_for_selector("text=audit of the quarter")
    page.wait_for_selector("button:has-text('Take a savepoint')")
    page.set_viewport_size({"width": 1280, "height": 1500})
    keep_picture(page, ".flinkstyle", "page-job")
    assert page.locator(".actions button:text-is('Start')").count() == 0  # it runs
    press(page, "Take a savepoint")
    assert page.input_value("dialog input[name=job]") == "orders"
    assert page.input_value("dialog input[name=flinkstyle_conn_id]") == "flinkstyle_default"
    assert "paused" in page.inner_text("dialog")
    page.dblclick("dialog button:has-text('Trigger')")
    page.wait_for_selector("dialog [role=status] a")
    page.wait_for_selector("dialog [role=status]:has-text('queued')")
    (run,) = admin.ask("GET", "/api/v2/dags/take_savepoint/dagRuns")[1]["dag_runs"]
    assert run["conf"] == {"job": "orders", "flinkstyle_conn_id": "flinkstyle_default"}
    assert run["triggering_user_name"] == "admin"
    page.click("dialog button:text-is('Close')")
    press(page, "Take a savepoint")
    page.wait_for_selector("dialog .fault:has-text('A run is under way')")
    assert f"{run['dag_run_id']} by admin" in page.inner_text("dialog .fault")


@pytest.mark.matrix
def test_quotes_keep_the_words_of_an_argument_together(url: str, admin: Caller, browser: Browser):
    page = open_page(browser, url, "admin")
    page.goto(url + SAVEPOINT)
    press(page, "Upgrade")
    page.wait_for_selector("dialog form input")
    section = page.locator("dialog details:not([open]):has([name=args]) > summary")
    if section.count():
        section.click()
    page.fill("dialog input[name=script]", "/jobs/orders.py")
    page.fill("dialog textarea[name=args]", """--title "two words" --to='a b' --n 3""")
    page.click("dialog button:text-is('Trigger')")
    page.wait_for_selector("dialog [role=status] a")
    (run,) = admin.ask("GET", "/api/v2/dags/upgrade_job/dagRuns")[1]["dag_runs"]
    assert run["conf"]["args"] == ["--title", "two words", "--to=a b", "--n", "3"]


@pytest.mark.nightly
def test_savepoint_is_pinned_with_a_reason_and_let_go(url: str, browser: Browser):
    page = open_page(browser, url, "admin")
    page.goto(url + SAVEPOINT + "/sp-2")
    press(page, "Pin")
    page.fill("dialog input[name=reason]", f"before the audit {MARKUP}")
    page.click("dialog button:text-is('Pin')")
    page.wait_for_selector(f"dd:has-text('pinned: before the audit {MARKUP}')")
    press(page, "Unpin")
    page.wait_for_selector("dd:text-is('retention decides')")
    assert page.evaluate("globalThis.hacked") is None


@pytest.mark.matrix
def test_savepoint_that_goes_while_the_form_is_open_is_a_sentence_and_nothing_is_triggered(
    url: str, airflow: Airflow, admin: Caller, browser: Browser
):
    page = open_page(browser, url, "admin")
    page.goto(url + SAVEPOINT + "/sp-2")
    press(page, "Bring the job back to it")
    page.wait_for_selector("dialog [name=savepoint_id]")
    page.click("dialog button:has-text('Trigger')")  # nothing is chosen about the batches since
    assert page.evaluate("document.querySelector('dialog form').checkValidity()") is False
    page.select_option("dialog [name=rewind]", "fork")
    manifest = airflow.folder.parent / "shop" / "root" / "orders" / "savepoints" / "sp-2.json"
    manifest.rename(manifest.with_suffix(".gone"))
    try:
        gone = "/flinkstyle/api/roots/flinkstyle_default/jobs/orders/savepoints/sp-2"
        wait_until("it is gone", lambda: admin.ask("GET", gone)[0] == 404)
        page.click("dialog button:has-text('Trigger')")
        page.wait_for_selector("dialog .fault:has-text('sp-2')")
        assert "newest" in page.inner_text("dialog .fault")
        assert admin.ask("GET", "/api/v2/dags/roll_back/dagRuns")[1]["dag_runs"] == []
    finally:
        manifest.with_suffix(".gone").rename(manifest)


@pytest.mark.nightly
def test_markup_from_the_store_is_text_and_errors_are_sentences(url: str, browser: Browser):
    page = open_page(browser, url, "admin", dark=True)
    page.wait_for_selector("text=No job can be shown. Add the connection")
    text = page.inner_text(".flinkstyle")
    assert f"no job can have such a name: {HOSTILE_FOLDER}" in text
    assert MARKUP in text
    page.click("a:text-is('hostile')")
    page.wait_for_selector("text=Migrations and upgrades")
    assert page.inner_text(".flinkstyle").count(MARKUP) >= 5
    page.goto(f"{url}/plugin/savepoints#/flinkstyle_hostile/hostile?run=3")
    page.wait_for_selector("caption:has-text('Rows that differ')")
    assert page.inner_text(".flinkstyle").count(MARKUP) >= 4
    page.goto(f"{url}/plugin/savepoints#/flinkstyle_hostile/hostile")
    page.wait_for_selector("text=Migrations and upgrades")
    addresses = "links => links.map(one => new URL(one.getAttribute('href'), document.baseURI).href)"
    links = page.locator(".flinkstyle a").evaluate_all(addresses)
    assert len(links) > 5
    assert all(link.startswith(url) for link in links)
    assert not any("/logout" in link for link in links)
    for job, said in (
        ("%3Cimg%20src=x%20onerror=globalThis.hacked=1%3E", "A job name"),
        ("..%2F..%2Fetc", "Nothing has this address"),
        ("gone", "No job gone"),
    ):
        page.goto(f"{url}/plugin/savepoints#/flinkstyle_default/{job}")
        page.wait_for_selector(f".fault:has-text('{said}')")
    assert page.evaluate("globalThis.hacked") is None
    assert page.locator(".flinkstyle img, .flinkstyle script").count() == 0


@pytest.mark.nightly
def test_who_has_no_right_finds_no_page_and_no_job(url: str, browser: Browser):
    page = log_in(browser, url, "nobody")
    page.wait_for_url(lambda address: "/auth/" not in address)
    page.goto(f"{url}/plugin/savepoints")
    page.wait_for_load_state("networkidle")
    assert page.locator("a[href$='/plugin/savepoints']").count() == 0
    assert page.locator(".flinkstyle table").count() == 0
    assert "orders" not in page.inner_text("body")


@pytest.mark.matrix
def test_narrow_window_scrolls_tables_and_not_the_page(url: str, browser: Browser):
    page = open_page(browser, url, "viewer")
    page.wait_for_selector("text=refunds")
    page.set_viewport_size({"width": 480, "height": 800})
    widths = "(page => [page.scrollWidth, page.clientWidth])(document.querySelector('.flinkstyle'))"
    for address in ("", "#/flinkstyle_default/orders", "#/flinkstyle_default/orders/sp-3"):
        page.goto(f"{url}/plugin/savepoints{address}")
        page.wait_for_selector(".flinkstyle table")
        content, window = page.evaluate(widths)
        assert content <= window, address
        for shown in page.locator(".flinkstyle .wide th:last-child, .flinkstyle svg.timeline text").all():
            shown.scroll_into_view_if_needed()
            box = shown.bounding_box()
            assert box, "every column, and every row of the timeline, can be reached"
            assert box["x"] + box["width"] <= 481, address


@pytest.mark.nightly
def test_keyboard_alone_opens_a_job_fills_in_a_form_and_leaves_it(url: str, browser: Browser):
    page = open_page(browser, url, "admin")
    page.wait_for_selector("a:text-is('refunds')")
    tab_to(page, "a:text-is('refunds')")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('refunds')")
    page.wait_for_selector(".actions button")
    tab_to(page, ".actions button:text-is('Start')")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog input[name=script]")
    tab_to(page, "dialog input[name=script]")
    page.keyboard.type("/jobs/refunds.py")
    assert page.input_value("dialog input[name=script]") == "/jobs/refunds.py"
    assert page.evaluate("Boolean(document.activeElement.closest('dialog'))")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def tab_to(page: object, selector: str, *, most: int = 120) -> None:
    """Press Tab until an element has the focus, which must be visible then."""
    there = "selected => document.activeElement === selected"
    wanted = page.locator(selector).first  # type: ignore[attr-defined]
    for _ in range(most):
        if wanted.evaluate(there):
            outline = wanted.evaluate("one => getComputedStyle(one).outlineStyle")
            assert outline != "none" or wanted.evaluate("one => one.matches(':focus-visible')")
            return
        page.keyboard.press("Tab")  # type: ignore[attr-defined]
    raise AssertionError(f"not reached by {most} tabs: {selector}")


@pytest.mark.nightly
@with_axe
@pytest.mark.parametrize("dark", matrix_but(False.__eq__, [False, True]), ids=["light", "dark"])
def test_axe_finds_nothing_serious(url: str, browser: Browser, dark: bool):
    page = open_page(browser, url, "admin", dark=dark)
    page.wait_for_selector("text=refunds")
    assert findings(page) == []
    open_job(page, url, "orders")
    assert findings(page) == []
    press(page, "Take a savepoint")
    page.wait_for_selector("dialog input[name=job]")
    assert findings(page, "dialog") == []
    page.goto(url + SAVEPOINT + "/sp-3")
    page.click("button:text-is('Look')")
    page.wait_for_selector("text=Batches since")
    assert findings(page) == []
    page.goto(url + SAVEPOINT + "?run=1")
    page.wait_for_selector("pre")
    assert findings(page) == []
