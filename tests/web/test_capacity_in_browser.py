"""The tab Capacity: a load simulated, the largest load found, policies side by side, each as its command prints it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from web_page import ROOT, SHOTS, Page, Ui, printed

pytestmark = pytest.mark.timeout(600)
HOSTILE = "<img src=x onerror=alert(1)>"
"""A name that would be an element where it is taken as one; a file can be called so."""
COHORTS = """
[[cohort]]
name = "questions"
prompt_tokens = { p50 = 512, p95 = 1024, p99 = 2048, max = 4096 }
output_tokens = { p50 = 40, p95 = 100, p99 = 200, max = 400 }
rate_per_s = 2.0
"""


def shared(page: Page, **state: Any) -> Page:
    """Open the tab as a shared address does."""
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(json.dumps(state).encode()) + packer.flush()
    page.here.goto(f"{page.address}/#capacity/{base64.urlsafe_b64encode(packed).decode().rstrip('=')}")
    return page


def fact(page: Page, name: str) -> str:
    """A figure of the view by its name."""
    return str(
        page.here.locator(f"dl.facts div:has(dt:text-is('{name}')) dd.value").first.inner_text()
    ).strip()


def share(value: float) -> str:
    return f"{value * 100:.2f}".rstrip("0").rstrip(".") + "%"


def ran(page: Page) -> None:
    """Until nothing runs and an answer is there."""
    page.here.wait_for_selector("section.command")
    page.waits_for("() => !document.querySelector('.shown progress')")


def test_a_simulated_load_is_what_the_command_prints(page: Page) -> None:
    shared(page, requests=300)
    ran(page)
    found = printed(page.command())
    assert page.says(".verdict .said") == found["verdict"]["summary"]
    assert fact(page, "Goodput") == share(found["requests"]["goodput"])
    assert fact(page, "Preemptions") == f"{found['requests']['preemptions']:,}"
    page.here.click("details.numbers >> nth=0 >> summary")
    rows = page.here.locator("details.numbers >> nth=0").locator("tbody tr")
    first = [cell.replace(",", "") for cell in rows.first.locator("th,td").all_inner_texts()]
    samples = found["samples"]
    names = ("used_blocks", "cached_blocks", "free_blocks", "running", "waiting")
    assert [int(cell) for cell in first[1:]] == [samples[name][0] for name in names]


def test_the_largest_load_is_what_the_command_prints(page: Page) -> None:
    shared(page, what="capacity", requests=300, headroom=False, sensitivity=False)
    page.here.click(".shown button:text-is('Run')")
    ran(page)
    found = printed(page.command())
    assert page.says(".verdict .said") == found["summary"]
    told = page.says("dl.facts >> nth=0")
    assert f"{found['low_requests_per_s']:.3g} to {found['high_requests_per_s']:.3g}" in told
    assert page.here.locator("figure.chart svg").count() >= 5


def test_a_file_of_one_view_shows_hostile_names_as_text(browser: Any, tmp_path: Path) -> None:
    (tmp_path / f"{HOSTILE}.toml").write_text(COHORTS)
    for command, more in (
        ("simulate", ()),
        ("capacity", ("--slo-ttft-ms", "2000", "--no-headroom", "--no-sensitivity")),
    ):
        subprocess.run(
            [sys.executable, "-m", "vramledger", command, "builtin:Qwen3-0.6B", "--device", "L4", "--max-model-len", "8K",
             "--workload", f"{HOSTILE}.toml", "--requests", "200", "--html", f"{command}.html", *more],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False, capture_output=True, timeout=300,
        )  # fmt: skip
        for width, scheme, language in ((1280, "light", "en-US"), (390, "dark", "ko-KR")):
            with Page.opened(
                browser, "file://", shots=SHOTS, width=width, scheme=scheme, language=language
            ) as page:
                page.here.goto((tmp_path / f"{command}.html").as_uri())
                page.here.wait_for_selector("figure.chart svg")
                page.shot(f"{command}-file-{width}-{scheme}")
                assert page.here.locator("img").count() == 0
                assert page.command().startswith(f"vramledger {command} builtin:Qwen3-0.6B --device L4")
                assert page.overflow_px() <= 0
                assert page.broken_rules() == []
                assert f"{HOSTILE}.toml: " in page.says("dl.conditions")


@pytest.mark.parametrize("what", ["simulate", "capacity", "policies"])
def test_what_is_found_is_readable_on_a_phone_in_the_dark(browser: Any, ui: Ui, what: str) -> None:
    with Page.opened(browser, ui.address, shots=SHOTS, width=390, scheme="dark", language="ko-KR") as page:
        shared(
            page, what=what, requests=200, by="tool_wait", policies=["release", "discard"], sensitivity=False
        )
        if what != "simulate":
            page.here.click(".shown button:text-is('실행')")
        ran(page)
        page.here.wait_for_load_state("networkidle")
        page.shot(f"capacity-{what}-390-dark")
        assert page.overflow_px() <= 0
        assert page.broken_rules() == []
