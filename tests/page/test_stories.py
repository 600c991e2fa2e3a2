"""A person on call at the page, with a real job on real Kafka: each story begins where the one before ended.

``make test-page``. The job is started from the page, refused a migration, upgraded badly and well, brought
back, killed, started again, brought to rest after an upgrade that nobody finishes, and migrated; at the end
every order is counted once.
"""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.unsettled import find_unsettled
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from testbed.waiting import PATIENCE_S, scaled, wait_until
from tests.page_browser import (
    CHROMIUM,
    findings,
    keep_picture,
    open_job,
    open_page,
    press,
)
from tools.npm import AXE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.sync_api import Page

    from testbed.judge import StateReader
    from tests.page.conftest import Shop

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.airflow,
    pytest.mark.skipif(CHROMIUM is None or not AXE.exists(), reason="needs Chromium and npm"),
]
SCRIPTS = Path(__file__).parents[1] / "e2e" / "scripts"
LONG_MS = PATIENCE_S * 1000
SETTLE = "Finish or undo what nobody finishes"
API = "/flinkstyle/api/roots/flinkstyle_default"


def at_the_job(shop: Shop) -> Page:
    """Return the job's view, opened by an admin."""
    page = open_page(shop.browser, shop.airflow.base_url, "admin")
    open_job(page, shop.airflow.base_url, "orders")
    return page


def fill_in(page: Page, values: Mapping[str, Any]) -> None:
    """Fill in the form that is open; sections that are closed are opened."""
    page.wait_for_selector("dialog form input")
    for name, value in values.items():
        field = page.locator(f"dialog [name={name}]")
        section = page.locator(f"dialog details:not([open]):has([name={name}]) > summary")
        if section.count():
            section.click()
        text = shlex.join(value) if isinstance(value, list) else str(value)
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(text)
        else:
            field.fill(text)


def trigger(page: Page, button: str, values: Mapping[str, Any]) -> str:
    """Press a button, fill in its form, trigger; return the address of the run, and leave the form open."""
    press(page, button)
    fill_in(page, values)
    page.click("dialog button:text-is('Trigger')")
    link = page.wait_for_selector("dialog [role=status] a, dialog .fault")
    assert link is not None
    address = link.get_attribute("href")
    assert address, link.inner_text()
    return address


def wait_for_end(page: Page, state: str) -> None:
    """Wait until the run that the form has triggered ended, as the form says."""
    ended = page.wait_for_selector(
        "dialog [role=status]:has-text(', success'), dialog [role=status]:has-text(', failed')",
        timeout=scaled(LONG_MS),
    )
    assert ended is not None
    assert ended.inner_text().endswith(f", {state}"), ended.inner_text()
    page.click("dialog button:text-is('Close')")


def job(shop: Shop) -> dict[str, Any]:
    """Return the job as the API tells it."""
    found: dict[str, Any] = shop.admin.ask("GET", f"{API}/jobs/orders")[1]
    return found


def wait_for_state(page: Page, state: str) -> None:
    """Wait until the page shows a state of the job."""
    page.wait_for_selector(f"h1 .badge:text-is('{state}')", timeout=scaled(LONG_MS))


def test_job_is_started_from_the_page_and_its_driver_is_found(shop: Shop):
    page = open_page(shop.browser, shop.airflow.base_url, "admin")
    page.wait_for_selector("text=There is no job below this savepoint root.")
    trigger(page, "Start a job", shop.orders.start_form())
    wait_for_end(page, "success")
    shop.orders.wait_commits(2)
    open_job(page, shop.airflow.base_url, "orders")
    wait_for_state(page, "running")
    page.click('a:has-text("with the driver\'s log")')
    page.wait_for_selector("pre:has-text('StreamingQuery'), pre:has-text('MicroBatch'), pre:has-text('INFO')")
    spark_ui = page.locator("a[href^='http://'][target=_blank]").first.get_attribute("href")
    assert spark_ui
    looked = page.context.new_page()
    looked.goto(spark_ui)
    assert "Spark" in looked.title()
    looked.close()
    page.click("dd a:has-text('start_job, page__')")
    page.wait_for_url("**/dags/start_job/runs/page__*")


def test_migration_that_the_system_refuses_leaves_the_job_where_it_is(shop: Shop):
    page = at_the_job(shop)
    address = trigger(page, "Migrate to another Kafka cluster", migration(shop))  # no mirror runs
    keep_picture(page, "dialog", "page-migration-form")
    wait_for_end(page, "failed")
    assert job(shop)["generation"] == 1
    wait_for_state(page, "running")
    page.goto(address)
    page.wait_for_selector("text=pre_flight")
    run = address.rpartition("/")[2]
    log = task_log(shop, "migrate_kafka_cluster", run, "pre_flight")
    assert "PREFLIGHT" in log
    shop.orders.wait_commits(1)


def test_upgrade_that_fails_is_told_on_the_page_and_never_stops_the_job(shop: Shop):
    page = at_the_job(shop)
    trigger(page, "Upgrade", {"script": SCRIPTS / "raises_at_import.py"})
    wait_for_end(page, "failed")
    page.wait_for_selector("table:has(caption:text-is('The newest first')) .badge:text-is('went back')")
    assert "raised at import" in page.inner_text(".flinkstyle")
    assert page.locator("svg.timeline .cross").count() >= 1
    assert job(shop)["generation"] == 1
    shop.orders.wait_commits(1)


def test_upgrade_and_the_way_back_are_two_more_runs_of_the_job(shop: Shop):
    page = at_the_job(shop)
    trigger(page, "Upgrade", {"script": SCRIPTS / "orders_job_v2.py"})
    wait_for_end(page, "success")
    upgraded = job(shop)["generation"]
    assert upgraded > 1
    trigger(page, "Bring back to the version before", {})
    wait_for_end(page, "success")
    after = job(shop)
    assert (after["state"], after["generation"]) == ("running", upgraded + 1)
    asked = {run["generation"]: run["asked_by"]["dag_id"] for run in after["runs"] if run["asked_by"]}
    assert (asked[upgraded], asked[upgraded + 1]) == ("upgrade_job", "roll_back")
    kinds = {edge["kind"] for edge in after["lineage"]["edges"]}
    assert {"took", "started"} <= kinds
    shop.orders.wait_commits(1)


def test_savepoint_is_taken_verified_kept_and_its_start_judged_with_kafka(shop: Shop):
    page = at_the_job(shop)
    before = job(shop)["savepoints_total"]
    trigger(page, "Take a savepoint", {})
    wait_for_end(page, "success")
    page.wait_for_selector(f"caption:has-text('{before + 1} savepoints')", timeout=scaled(60) * 1000)
    page.click("table:has(caption:has-text('savepoints')) tbody tr:first-child a >> nth=0")
    page.wait_for_selector(".actions button:text-is('Verify')")
    trigger(page, "Verify", {"level": "full"})
    wait_for_end(page, "success")
    page.wait_for_selector("dd .badge:text-is('verified (full)')", timeout=scaled(60) * 1000)
    press(page, "Pin")
    page.fill("dialog input[name=reason]", "before the migration")
    page.click("dialog button:text-is('Pin')")
    page.wait_for_selector("dd:text-is('pinned: before the migration')")
    page.click("button:text-is('Look')")
    page.wait_for_selector("td:text-is('the job has stopped')")
    page.fill("label:has-text('Kafka connections') input", "kafka_old kafka_new")
    page.click("button:text-is('Ask Kafka')")
    page.wait_for_selector("td:has-text('are in their logs')")
    keep_picture(page, "section:has(h2:text-is('What a start from it would meet'))", "page-start")
    assert findings(page) == []
    trigger(page, "Export", {"to": shop.orders.folder / "export"})
    wait_for_end(page, "success")
    assert (shop.orders.folder / "export" / "savepoint.json").is_file()


def test_dead_driver_is_noticed_and_started_again_from_the_page(shop: Shop):
    page = at_the_job(shop)
    wait_for_state(page, "running")
    generation = job(shop)["generation"]
    shop.orders.kill_driver()
    wait_for_state(page, "dead")
    assert "without reporting why" in page.inner_text(".flinkstyle")
    page.wait_for_selector("table:has(caption:has-text('What went wrong')) .badge:text-is('dead')")
    page.goto(f"{shop.airflow.base_url}/plugin/savepoints")
    page.wait_for_selector("table .badge:text-is('dead')")
    open_job(page, shop.airflow.base_url, "orders")
    trigger(page, "Start", shop.orders.start_form())
    wait_for_end(page, "success")
    wait_for_state(page, "running")
    assert job(shop)["generation"] > generation
    shop.orders.wait_commits(1)


def test_upgrade_whose_run_was_deleted_in_its_window_is_brought_to_rest_from_the_page(shop: Shop):
    page = at_the_job(shop)
    wait_for_state(page, "running")
    assert page.locator(f"button:text-is('{SETTLE}')").count() == 0
    trigger(page, "Upgrade", {"script": SCRIPTS / "orders_job_v2.py", "rehearse_batches": 0})
    delete_run_in_window(shop)
    page = at_the_job(shop)
    trigger(page, SETTLE, {"now": "true"})
    wait_for_end(page, "success")
    wait_for_state(page, "running")
    page.wait_for_selector(
        "table:has(caption:text-is('The newest first')) tbody tr:first-child "
        ":is(.badge:text-is('went back'), .badge:text-is('done'))"
    )
    page.wait_for_selector(f"button:text-is('{SETTLE}')", state="detached")
    assert find_unsettled(shop.orders.board) == []
    shop.orders.wait_commits(1)


def delete_run_in_window(shop: Shop) -> None:
    """Stop the task of the upgrade once it stops the old version, and delete its run."""
    board = shop.orders.board

    def stops() -> bool:
        try:
            return any("stop" in one.phases for one in find_unsettled(board))
        except StoreUnavailableError:  # the S3 server answers without an ETag while an object is replaced
            return False

    wait_until("the old version stops", stops)
    (found,) = find_unsettled(board)
    pid = int(found.work.holder.rpartition(" ")[2])
    os.kill(pid, signal.SIGSTOP)
    runs = "/api/v2/dags/upgrade_job/dagRuns"
    (run_id,) = (run["dag_run_id"] for run in shop.admin.ask("GET", f"{runs}?state=running")[1]["dag_runs"])
    task = f"{runs}/{run_id}/taskInstances/upgrade"
    assert shop.admin.ask("PATCH", task, body={"new_state": "failed"})[0] == 200
    os.kill(pid, signal.SIGKILL)
    wait_until("the run has ended", lambda: shop.admin.ask("GET", f"{runs}/{run_id}")[1]["state"] == "failed")
    assert shop.admin.ask("DELETE", f"{runs}/{run_id}")[0] == 204


def test_whole_migration_is_clicked_through_and_every_order_counted_once(shop: Shop, reader: StateReader):
    orders = shop.orders
    shop.mirror.start()
    orders.new.wait_for_topic(orders.topic)
    page = at_the_job(shop)
    wait_for_state(page, "running")
    before = job(shop)["generation"]
    trigger(page, "Migrate to another Kafka cluster", migration(shop))
    decision = "dialog [role=status] a[href$='/required_actions']"
    page.wait_for_selector(decision, timeout=scaled(LONG_MS))
    page.click(decision)
    page.wait_for_url("**/required_actions")
    page.wait_for_selector("td:text-is('orders')")
    with page.expect_response(
        lambda answer: answer.request.method == "PATCH", timeout=scaled(LONG_MS)
    ) as said:
        page.click("button:text-is('Approve')")
    assert said.value.ok, said.value.status  # before the page is left, which would take the answer back
    open_job(page, shop.airflow.base_url, "orders")
    page.wait_for_selector(
        "table:has(caption:text-is('The newest first')) tbody tr:first-child .badge:text-is('done')",
        timeout=scaled(2 * LONG_MS),
    )
    after = job(shop)
    assert after["generation"] > before
    assert after["runs"][0]["asked_by"]["dag_id"] == "migrate_kafka_cluster"
    assert after["journals"][0]["asked_by"]["dag_id"] == "migrate_kafka_cluster"
    keep_picture(page, "svg.lineage", "page-lineage")
    wait_until("orders go to new", lambda: orders.producer_is_at() == "new")
    orders.wait_commits(2)
    judgement = orders.judge(reader, orders.new)
    assert judgement.right, judgement


def migration(shop: Shop) -> dict[str, Any]:
    """Return what a person fills in; the job is known."""
    form = shop.orders.migration_form()
    return {name: value for name, value in form.items() if name != "job"}


def task_log(shop: Shop, dag: str, run: str, task: str) -> str:
    """Return the log of a task's first try."""
    path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/1?full_content=true"
    return str(shop.admin.ask("GET", path)[1])
