"""The real server as its own process, and a real browser before it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from web_page import SHOTS, Page, Ui, serving

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WAIT_MS = 120_000


@pytest.fixture(scope="session")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """`vramledger ui` on a free port, in a folder where there is nothing to read."""
    pytest.importorskip("starlette")
    with serving(tmp_path_factory.mktemp("ui")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Ended with its module: as long as it is there, no other event loop can run in this process."""
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("no browser is installed (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as run:
        opened = run.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"] if os.geteuid() == 0 else [], timeout=WAIT_MS
        )
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, ui: Ui) -> Iterator[Page]:
    """A page of the server in English and light; the test fails where the browser complained of anything."""
    with Page.opened(browser, ui.address, shots=SHOTS) as opened:
        yield opened
