"""The page's pictures for the documentation, taken in a real browser: `make ui-pictures`.

Nothing compares them with the page of today: they are looked at when they are made.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 860
_SHOWN = {
    "plan": ".shown .verdict",
    "compare": ".shown .verdict",
    "fit": ".shown svg",
    "capacity": ".shown svg",
}


def main() -> int:
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    command = [sys.executable, "-m", "vramledger", "ui", "--port", "0", "--no-open"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, sync_playwright() as run:
        try:
            assert process.stderr is not None
            address = re.search(r"http://\S+", process.stderr.readline())
            assert address is not None
            opened = run.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = opened.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce", locale="en-US"
            )
            for tab, shown in _SHOWN.items():
                _take(page, f"{address[0]}#{tab}", shown, FOLDER / f"ui-{tab}.png")
            opened.close()
        finally:
            process.terminate()
    return 0


def _take(page: Any, address: str, shown: str, file: Path) -> None:
    page.goto(address)
    page.wait_for_selector(shown, timeout=300_000)
    page.wait_for_selector(".progress progress", state="detached", timeout=300_000)
    page.wait_for_load_state("networkidle")
    page.screenshot(path=str(file))
    print(file)


if __name__ == "__main__":
    sys.exit(main())
