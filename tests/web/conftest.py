"""The real server as its own process, and a real browser before it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from web_page import SHOTS, Page, Ui

ROOT = Path(__file__).parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WAIT_MS = 120_000


@pytest.fixture(scope="session")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """`vramledger ui` on a free port, in a folder where there is nothing to read."""
    pytest.importorskip("starlette")
    folder = tmp_path_factory.mktemp("ui")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "vramledger", "ui", "--port", "0", "--no-open"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found is not None
            address = found[0].rstrip("/")
            with urllib.request.urlopen(address, timeout=60) as page:
                token = re.search(r'vramledger-token" content="([^"]+)"', page.read().decode())
            assert token is not None
            yield Ui(address=address, token=token[1])
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
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
