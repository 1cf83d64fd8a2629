"""The tab Capacity: a load simulated, the largest load found, policies side by side, each as its command prints it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from web_page import ROOT, SHOTS, Page, Ui, printed, wait_until

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
    page.here.goto(page.address_of("capacity", state))
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
    page.waits_for(
        "() => document.querySelector('.shown section.command, .shown .problem') && !document.querySelector('.shown progress')"
    )
    assert page.here.locator(".shown .problem").all_inner_texts() == []


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
    # What is drawn speaks the language that is chosen.
    assert "cached, held by none" in page.says("figure.chart >> nth=0")
    page.here.get_by_label("Language").select_option("ko")
    page.waits_for("() => document.querySelector('figure.chart').textContent.includes('보유자 없음')")


def test_the_largest_load_is_what_the_command_prints(page: Page) -> None:
    shared(page, what="capacity", requests=300, headroom=False, sensitivity=False)
    page.here.click(".shown button:text-is('Run')")
    ran(page)
    found = printed(page.command())
    assert page.says(".verdict .said") == found["summary"]
    near = next(each for each in found["loads"] if each["load"] == found["load"])
    assert fact(page, "Goodput") == share(near["goodput"]["expected"])
    told = page.says("dl.facts >> nth=0")
    assert f"{found['low_requests_per_s']:.3g} to {found['high_requests_per_s']:.3g}" in told
    assert page.here.locator("figure.chart svg").count() >= 5


def test_policies_stand_beside_each_other_as_their_commands_print_them(page: Page) -> None:
    names = ["round-robin", "prefix-aware"]
    shared(page, what="policies", workload="short-qa", requests=200, by="router", policies=names, replicas=2)
    page.here.click(".shown button:text-is('Run')")
    ran(page)
    commands = page.command().splitlines()
    rows = page.here.locator("section[aria-label='Policies side by side'] table >> nth=0").locator("tbody tr")
    assert rows.count() == len(commands) == 2
    for row, name, command in zip(rows.all(), names, commands, strict=True):
        assert f"--router {name}" in command
        cells = [cell.removesuffix("best").strip() for cell in row.locator("th,td").all_inner_texts()]
        found = printed(command)
        hits = found["requests"]["hit_tokens"] / found["requests"]["prompt_tokens"]
        assert cells[0] == name
        assert cells[1] == share(found["requests"]["goodput"])
        assert cells[9] == share(hits)


def test_what_is_dropped_is_simulated_and_a_slider_changes_the_load(page: Page, tmp_path: Path) -> None:
    trace = tmp_path / "own.csv"
    rows = [f"{second},{100 + second},{20 + second % 7}" for second in range(60)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    shared(page, workload="", requests=50)
    page.here.wait_for_selector("text=Drop a workload to begin.")
    page.here.set_input_files("input[accept*='.csv']", str(trace))
    ran(page)
    assert "--workload ./own.csv" in page.command()
    assert page.says("dl.conditions").count("own.csv: 50 requests") == 1
    found = printed(page.command(), folder=tmp_path)
    assert page.says(".verdict .said") == found["verdict"]["summary"]
    speed = page.here.get_by_label("Sent times as fast", exact=True)
    speed.focus()
    speed.press("ArrowRight")
    page.waits_for(
        "() => document.querySelector('section.command code').innerText.includes('--scale-time 0.8')"
    )
    ran(page)
    found = printed(page.command(), folder=tmp_path)
    assert found["conditions"]["workload"]["arrival_scale"] == 1.25
    assert fact(page, "Latency p99") == f"{found['requests']['latency_ms']['p99']:.3g} ms"
    assert page.says("dl.conditions").count("sent 1.25 times as fast") == 1


def test_a_plan_is_taken_over_from_its_tab(page: Page) -> None:
    page.tab("plan").here.get_by_label("Device", exact=True).fill("A100 SXM 80GB")
    page.here.wait_for_selector("section.command code:text('A100 SXM 80GB')")
    page.here.click("a:text-is('What load it serves')")
    page.here.wait_for_selector("input[name=what]")
    ran(page)
    assert "--device 'A100 SXM 80GB' --max-model-len 32768" in page.command()
    assert "A100 SXM 80GB" in page.says("dl.conditions")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells of a process's children")
def test_a_cancelled_run_leaves_no_process(page: Page, ui: Ui) -> None:
    shared(page, requests=3000, admission="risk")
    page.waits_for(
        "() => /requests simulated/.test(document.querySelector('.shown .progress span')?.innerText)"
    )
    assert len(ui.worker_pids()) >= 2
    page.here.click(".shown button:text-is('Cancel')")
    page.here.wait_for_selector("text=Cancelled.")
    # The one that is kept for quick commands stays.
    wait_until(lambda: len(ui.worker_pids()) == 1, "a command that was cancelled still runs")
    assert page.here.locator(".shown button:text-is('Run')").is_enabled()


def test_what_the_command_refuses_is_said_as_it_says_it(page: Page) -> None:
    shared(page, requests=100, prefill=1, replicas=2, ttft="soon")
    problem = page.here.locator(".problem").first
    problem.wait_for()
    assert "--slo-ttft-ms" in problem.inner_text()
    assert "soon" in problem.inner_text()


def test_a_file_of_one_view_shows_hostile_names_as_text(browser: Any, tmp_path: Path) -> None:
    (tmp_path / f"{HOSTILE}.toml").write_text(COHORTS)
    for command, more in (
        ("simulate", ()),
        (
            "capacity",
            (
                "--slo-ttft-ms",
                "2000",
                "--no-headroom",
                "--no-sensitivity",
                "--resolution",
                "0.2",
                "--replications",
                "1",
            ),
        ),
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
                if width == 390:
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
        page.rests()
        page.shot(f"capacity-{what}-390-dark")
        assert page.overflow_px() <= 0
        assert page.broken_rules() == []
