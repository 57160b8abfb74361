"""Chromium without a window, for the tests of the page: Debian's, or the one that `VARIABLE` names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from watersmeet.errors import WatersmeetError

VARIABLE = "WATERSMEET_TEST_CHROMIUM"


def chromium() -> str:
    """Its program. Raises: WatersmeetError when there is none."""
    found = os.environ.get(VARIABLE) or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise WatersmeetError(
            "there is no Chromium to look at the page with",
            code="no-browser",
            hint=f"run scripts/browser (apt-get install chromium), or let {VARIABLE} name the program",
        )
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """One, until the end of the block. As root it has no sandbox: it shows nothing but our own page."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            yield started
        finally:
            started.close()


def faults(page: Page) -> list[str]:
    """What the accessibility checker axe finds that is serious or critical, one line each."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    found: dict[str, Any] = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:200]} {node['failureSummary']}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]
