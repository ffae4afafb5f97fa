"""The browser of the page's tests."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.stage.waiting import DEADLINE_S

expect.set_options(timeout=DEADLINE_S * 1000)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("missing tool: chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], timeout=DEADLINE_S * 1000
        )
        page = browser.new_page(viewport={"width": 1100, "height": 640})
        page.set_default_timeout(DEADLINE_S * 1000)
        yield page
        browser.close()
