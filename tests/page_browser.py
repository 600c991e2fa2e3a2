"""A person at the Savepoints page, in a real Chromium: logs in, looks, and is checked by axe-core."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.waiting import scaled
from tests.page_users import password_of
from tools.npm import AXE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
PICTURES = os.environ.get("PAGE_PICTURES")
"""Folder for the screenshots of the documentation (``make pictures``)."""
SERIOUS = ("serious", "critical")


@contextmanager
def a_browser() -> Iterator[Browser]:
    """Yield a Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox needs rights that containers lack; the pages are our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def log_in(browser: Browser, base_url: str, user: str, *, dark: bool = False, narrow: bool = False) -> Page:
    """Log a user in, as a person does."""
    viewport: Any = {"width": 480, "height": 800} if narrow else {"width": 1280, "height": 900}
    page = browser.new_context(viewport=viewport).new_page()
    page.set_default_timeout(scaled(30) * 1000)
    if dark:
        page.add_init_script("localStorage.setItem('theme', 'dark')")
    page.goto(base_url)
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password_of(user))
    page.click("button[type=submit]")
    return page


def wait_for_words(page: Page, selector: str, *words: str) -> None:
    """Wait until the first element shows all of them: the page reads again what it had no answer for yet."""
    from playwright.sync_api import expect

    for one in words:
        expect(page.locator(selector).first).to_contain_text(one, timeout=scaled(30) * 1000)


def open_page(
    browser: Browser, base_url: str, user: str, *, dark: bool = False, narrow: bool = False
) -> Page:
    """Log a user in, and open the page from the navigation."""
    page = log_in(browser, base_url, user, dark=dark, narrow=narrow)
    page.click("a[href$='/plugin/savepoints']")
    page.wait_for_selector(".flinkstyle h1")
    return page


def open_job(page: Page, base_url: str, job: str, conn_id: str = "flinkstyle_default") -> None:
    """Open a job's view by its address."""
    page.goto(f"{base_url}/plugin/savepoints#/{conn_id}/{job}")
    page.wait_for_selector(f"h1:has-text('{job}')")
    page.wait_for_selector(".flinkstyle h2:has-text('Runs')")


def press(page: Page, button: str) -> None:
    """Press a button of the page, outside of dialogs."""
    page.click(f".flinkstyle .actions button:text-is('{button}')")


def keep_picture(page: Page, selector: str, name: str) -> None:
    """Store a screenshot, if they are wanted."""
    if PICTURES:
        page.locator(selector).first.screenshot(path=str(Path(PICTURES) / f"{name}.png"))


def findings(page: Page, selector: str = ".flinkstyle") -> list[str]:
    """Return what axe-core finds serious or critical below an element, with the places."""
    if not page.evaluate("() => Boolean(globalThis.axe)"):
        page.evaluate(AXE.read_text())
    found = page.evaluate("selector => globalThis.axe.run(selector, {resultTypes: ['violations']})", selector)
    return [
        f"{one['id']} ({one['impact']}): {one['help']}; {node['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:5]
    ]
