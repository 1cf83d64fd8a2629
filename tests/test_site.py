"""The site of docs/ is whole: it builds without a warning, every link leads somewhere, it needs no network, and its search finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from tools.reference.markdown import anchor
from tools.site.links import broken

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WAIT_MS = 120_000
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="gone.html">x</a>', "leads to no file"),
        ('<a href="other.html#gone">x</a>', "leads to no place"),
        ('<a href="../outside.html">x</a>', "leads to no file"),
        ('<script src="https://cdn.example/a.js"></script>', "not in the site"),
        ('<link rel="stylesheet" href="//cdn.example/a.css">', "not in the site"),
        ('<a href="javascript:alert(1)">x</a>', "not in the site"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, body: str, said: str) -> None:
    (tmp_path / "outside.html").write_text("<p>")
    root = tmp_path / "site"
    root.mkdir()
    (root / "other.html").write_text('<h1 id="here">x</h1>')
    (root / "index.html").write_text(f'<a href="other.html#here">good</a>\n{body}')
    found = list(broken(root))
    assert len(found) == 1
    assert found[0].startswith("index.html:2: ")
    assert said in found[0]


@pytest.mark.timeout(900)
def test_every_page_is_in_the_site_is_reached_and_is_found_from_files_alone(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "tools.site", "--output", str(site)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr

    front = (site / "index.html").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert [path for path in pages if not (site / path).is_file()] == []
    taken = {Path(name) for name in ("search.html", "genindex.html", "modindex.html")}
    assert pages & taken == set(), "the generator writes a page of that name itself"
    top = {path for path in pages if len(path.parts) == 1} - {Path("index.html")}
    assert [path for path in sorted(top) if f'href="{path}"' not in front] == []

    if BROWSER is None:
        pytest.skip("no browser is installed to search with (Debian: apt-get install chromium)")
    _search(site)


def test_links_of_pages_beside_the_site_lead_somewhere() -> None:
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "data").rglob("*.md"),
    ]
    lost = []
    for page in pages:
        for target in _links(page):
            path, _, place = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            if not found.exists():
                lost.append(f"{page.relative_to(ROOT)}: {target}")
            elif place and found.suffix == ".md" and place not in _places(found):
                lost.append(f"{page.relative_to(ROOT)}: {target}, no such heading")
    assert lost == []


def _links(page: Path) -> Iterator[str]:
    for block in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        for token in block.children or ():
            target = str(token.attrGet("href") or token.attrGet("src") or "")
            if target and "://" not in target and not target.startswith("mailto:"):
                yield unquote(target)


def _places(page: Path) -> set[str]:
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    return {anchor(after.content) for token, after in pairwise(tokens) if token.type == "heading_open"}


def _search(site: Path) -> None:
    playwright: Any = pytest.importorskip("playwright.sync_api")
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright")
    said: list[str] = []
    barriers: list[str] = []
    asked: list[str] = []
    with playwright.sync_playwright() as run:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = run.chromium.launch(executable_path=BROWSER, args=arguments, timeout=WAIT_MS)
        page = browser.new_page()
        page.on("pageerror", lambda problem: said.append(str(problem)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{(site / 'search.html').as_uri()}?q=admission", timeout=WAIT_MS)
        hit = page.locator("ul.search a[href*='admission.html']").first
        hit.wait_for(timeout=WAIT_MS)
        hit.click(timeout=WAIT_MS)
        page.locator("h1").first.wait_for(timeout=WAIT_MS)
        title = page.locator("h1").first.inner_text()
        for name in ("index", "reference/commands/plan", "how-to/will-it-fit"):
            page.goto((site / f"{name}.html").as_uri(), timeout=WAIT_MS)
            barriers += [
                f"{name}: {item['id']}"
                for item in axe.Axe().run(page).response["violations"]
                if item["id"] != "landmark-unique"
            ]
        browser.close()
    assert title.startswith("Admission")
    assert said == []
    # The theme's sidebar has two landmarks without names of their own; everything else of axe's rules holds.
    assert barriers == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
