"""A page under test: what is on it, what the browser said of it, and the commands it stands for."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

WAIT_MS = 120_000
ROOT = Path(__file__).parents[1]
SHOTS = ROOT / "build" / "screenshots"


class Ui(NamedTuple):
    """Where the server listens, and what its page proves itself with."""

    address: str
    token: str
    process: subprocess.Popen[str]

    def workers(self) -> list[list[str]]:
        """The command lines of the processes that it runs, the one that is kept warm first."""
        return [words for _, words in self._children()]

    def worker_pids(self) -> list[int]:
        return [pid for pid, _ in self._children()]

    def _children(self) -> list[tuple[int, list[str]]]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = re.search(r"^PPid:\t(\d+)$", (folder / "status").read_text(), re.MULTILINE)
                words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
            except OSError:
                continue
            if parent is not None and int(parent[1]) == self.process.pid and words:
                found.append((int(folder.name), words))
        return sorted(found)

    def ended(self) -> str:
        """End it; what it said beside its address."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        return said

    def run(self, ask: dict[str, object]) -> dict[str, Any]:
        """What `/api/run` answers at the end."""
        body = json.dumps(ask).encode()
        asked = urllib.request.Request(
            f"{self.address}/api/run", data=body, headers={"x-vramledger-token": self.token}
        )
        with urllib.request.urlopen(asked, timeout=120) as answer:
            found: dict[str, Any] = json.loads(answer.read().splitlines()[-1])
        return found


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Ui]:
    """`vramledger ui` on a free port, started in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "vramledger", "ui", "--port", "0", "--no-open", *options]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found is not None
            address = found[0].rstrip("/")
            with urllib.request.urlopen(address, timeout=60) as page:
                token = re.search(r'vramledger-token" content="([^"]+)"', page.read().decode())
            assert token is not None
            yield Ui(address=address, token=token[1], process=process)
        finally:
            process.terminate()
            process.wait(60)


class Page:
    """A browser's page. `here` is playwright's own."""

    def __init__(self, here: Any, address: str, shots: Path) -> None:
        self.here = here
        self.address = address
        self._shots = shots
        self.complaints: list[str] = []
        self.asked: list[str] = []
        here.on("console", lambda said: self._hear(said.type, said.text))
        here.on("pageerror", lambda error: self.complaints.append(str(error)))
        here.on("request", lambda request: self.asked.append(request.url))

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    @classmethod
    @contextmanager
    def opened(
        cls,
        browser: Any,
        address: str,
        *,
        shots: Path,
        width: int = 1280,
        scheme: str = "light",
        language: str = "en-US",
    ) -> Iterator[Page]:
        """A page in a browser of its own; what the browser complained of fails the test at the end."""
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            locale=language,
            reduced_motion="reduce",
        )
        context.set_default_timeout(WAIT_MS)
        try:
            page = cls(context.new_page(), address, shots)
            yield page
            assert page.complaints == []
            assert [
                url for url in page.asked if not url.startswith((address, "data:", "blob:", "file:"))
            ] == []
        finally:
            context.close()

    def tab(self, name: str) -> Page:
        """Open a tab and wait until it is there."""
        self.here.goto(f"{self.address}/#{name}")
        self.here.wait_for_selector("main >> css=:not(:empty)")
        return self

    def rests(self) -> Page:
        """Wait until the tab's controls are there and nothing that it asked for is on its way."""
        self.waits_for(
            "() => document.querySelector('main .controls') && !document.querySelector('progress')"
        )
        return self

    def address_of(self, tab: str, state: object) -> str:
        """Where a tab shows this, as the page writes it: packed JSON."""
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        packed = packer.compress(json.dumps(state).encode()) + packer.flush()
        return f"{self.address}/#{tab}/{base64.urlsafe_b64encode(packed).decode().rstrip('=')}"

    def told_by_address(self) -> dict[str, Any]:
        """What the address says that is shown; nothing where it says only the tab."""
        # Asked of the page: what the library tells of itself is of its last event.
        packed = self.here.evaluate("location.hash").partition("/")[2]
        found: dict[str, Any] = (
            json.loads(zlib.decompress(base64.urlsafe_b64decode(packed + "==="), -zlib.MAX_WBITS))
            if packed
            else {}
        )
        return found

    def shot(self, name: str) -> None:
        """A picture for who looks at a run."""
        self._shots.mkdir(parents=True, exist_ok=True)
        self.here.screenshot(path=str(self._shots / f"{name}.png"), full_page=True)

    def command(self) -> str:
        """The command line that the page shows beside what it shows."""
        return str(self.here.inner_text("section.command >> nth=0 >> code")).strip()

    def says(self, selector: str) -> str:
        return str(self.here.inner_text(selector))

    def waits_for(self, expression: str, argument: object = None) -> None:
        """Until a function of the page is true."""
        self.here.wait_for_function(expression, arg=argument)

    def broken_rules(self) -> list[str]:
        """Rules of axe-core (WCAG A and AA) that the page breaks."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright")
        found = (
            axe.Axe()
            .run(self.here, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
            .response
        )
        return [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in found["violations"]]

    def overflow_px(self) -> int:
        """By how much the page is wider than its window."""
        return int(
            self.here.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Until something is so that must come; `what` is wrong where it never does. A browser's loop may run in this thread: no asyncio."""
    end_s = time.monotonic() + WAIT_MS / 1000
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.05)


def printed(command: str, *, folder: Path = ROOT) -> dict[str, Any]:
    """The document that a shown command line writes with --json in a terminal, whatever it exits with."""
    words = shlex.split(command)
    assert words[0] == "vramledger"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *words, "--json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
