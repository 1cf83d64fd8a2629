"""The page on an experiment in a real browser: it asks for nothing, complains of nothing, fits a phone, and is read by who does not see it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments import failed_experiment, rows_of, samples, whole_experiment
from vramledger.experiment.result import Experiment
from vramledger.report.experiment_evidence import Evidence, evidence_of
from vramledger.report.experiment_page import experiment_page

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
RECORDED = Path(__file__).parent / "recorded" / "experiment-llamacpp"
WAIT_MS = 120_000
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no browser is installed (Debian: apt-get install chromium)"),
    pytest.mark.timeout(600),
]

_OVERLAPS = """() => {
  const out = [];
  for (const svg of document.querySelectorAll("svg[role=img]")) {
    if (!svg.getClientRects().length) continue;
    const texts = [...svg.querySelectorAll("text")].map(item => [item.textContent, item.getBoundingClientRect()]);
    texts.forEach(([a, one], place) => texts.slice(place + 1).forEach(([b, other]) => {
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1 && high > 3) out.push([svg.getAttribute("aria-label").slice(0, 60), a, b]);
    }));
  }
  return out;
}"""
_SMALLEST = """() => Math.min(...[...document.querySelectorAll("svg[role=img]")].filter(svg => svg.getClientRects().length)
  .flatMap(svg => [...svg.querySelectorAll("text")].map(item =>
    parseFloat(getComputedStyle(item).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as run:
        opened = run.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"] if os.geteuid() == 0 else [], timeout=WAIT_MS
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of the pages."""
    folder = tmp_path_factory.mktemp("pages")
    whole = whole_experiment()
    made = {
        "whole": Evidence(
            found=whole, samples=samples(), rows={whole.stages[-1].name: rows_of(1.35, 600, seed=3)}
        ),
        "failed": Evidence(found=failed_experiment()),
        "real": evidence_of(
            RECORDED, msgspec.json.decode((RECORDED / "experiment.json").read_bytes(), type=Experiment)
        ),
    }
    out = {}
    for name, evidence in made.items():
        path = Path(folder / f"{name}.html")
        path.write_text(experiment_page(evidence), encoding="utf-8")
        out[name] = path.as_uri()
    return out


def opened(
    browser: Any, address: str, *, width: int, scheme: str, bypass_csp: bool = False
) -> tuple[Any, list[str]]:
    """The page at a width in a colour scheme, and all that it said on the console or asked for."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=bypass_csp
    )
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on(
        "request", lambda request: heard.append(f"asked: {request.url}") if request.url != address else None
    )
    page.goto(address)
    return page, heard


@pytest.mark.parametrize("name", ["whole", "failed", "real"])
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (700, "dark"), (1280, "dark")])
def test_it_asks_for_nothing_and_fits(
    browser: Any, pages: dict[str, str], name: str, width: int, scheme: str
) -> None:
    page, heard = opened(browser, pages[name], width=width, scheme=scheme)
    assert heard == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)"
    )
    assert page.evaluate(_SMALLEST) >= 10
    assert page.evaluate(_OVERLAPS) == []
    # A wide and a narrow drawing of one picture are never both shown.
    assert page.locator("svg[role=img]:visible").count() == page.locator("figure").count() > 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_those_out_who_do_not_see_it(browser: Any, pages: dict[str, str], scheme: str) -> None:
    """The rules of axe-core, contrast among them; its script is put in from outside, which the page's own policy forbids."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page, _ = opened(browser, pages["whole"], width=1280, scheme=scheme, bypass_csp=True)
    found = axe.Axe().run(page)
    assert [
        (item["id"], [node["html"] for node in item["nodes"]]) for item in found.response["violations"]
    ] == []


def test_a_script_in_it_would_not_run(browser: Any, pages: dict[str, str]) -> None:
    page, heard = opened(browser, pages["failed"], width=1280, scheme="light")
    page.evaluate(
        """() => { const item = document.createElement("script"); item.textContent = "window.ran = true"; document.body.append(item); }"""
    )
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in text for text in heard)
