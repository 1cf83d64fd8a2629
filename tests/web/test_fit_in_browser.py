"""What a model holds on: the heat map, the front and the lists are what `sweep` and `fit` print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from web_page import ROOT, SHOTS, Page, Ui, printed, wait_until

pytestmark = pytest.mark.timeout(600)
HOSTILE = "</script><img src=x onerror=document.title='taken'>"
SMALL = {"devices": ["L4", "H100 SXM 80GB"], "contexts": ["8K", "32K", "256K"], "context": 8192, "most": 2}


def asked(page: Page, state: dict[str, Any]) -> Page:
    """The tab with a question in its address, answered."""
    page.here.goto(page.address_of("fit", state))
    page.here.wait_for_selector("section.command >> nth=1")
    return page


def command(page: Page, name: str) -> str:
    lines: list[str] = page.here.evaluate(
        "[...document.querySelectorAll('section.command code')].map(each => each.innerText.trim())"
    )
    return next(line for line in lines if line.startswith(f"vramledger {name} "))


def heat(page: Page, place: int) -> list[list[str]]:
    """The numbers of a heat map, its head first."""
    found: list[list[str]] = page.here.evaluate(
        "place => [...[...document.querySelectorAll('figure.chart:has([aria-label^=\"Rows are devices\"])')][place]"
        ".querySelectorAll('details.numbers tr')].map(row => [...row.cells].map(cell => cell.textContent.trim()))",
        place,
    )
    return found


def best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row that stands for a cell."""
    order = ("holds", "untold", "fails", "refused")
    status = min((row["status"] for row in rows), key=order.index)
    same = [row for row in rows if row["status"] == status]
    if status == "fails":
        return min(same, key=lambda row: row["shortfall_bytes"] * row["devices"])
    return min(same, key=lambda row: (row["devices"], -(row["pool_tokens"] or 0)))


def digits(amount: float, count: int = 3) -> str:
    """So many digits that count."""
    return f"{float(f'{amount:.{count}g}'):g}"


def shown(row: dict[str, Any]) -> str:
    on = f"{row['devices']}×"
    if row["status"] == "holds":
        tokens = row["pool_tokens"]
        return f"{digits(tokens / 1e6)}M {on}" if tokens >= 1e6 else f"{digits(tokens / 1e3)}k {on}"
    if row["status"] == "fails":
        return f"✕ {digits(row['shortfall_bytes'] / 2**30, 2)} GiB"
    return f"? {on}" if row["status"] == "untold" else "–"


def test_the_heat_map_is_the_grid_that_sweep_prints(page: Page) -> None:
    asked(page, {**SMALL, "source": "builtin:Qwen3-8B", "concurrency": 4})
    rows = printed(command(page, "sweep"))["rows"]
    table = heat(page, 0)
    assert table[0][1:] == ["8K", "32K", "256K"]
    cells: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["device"], row["context_tokens"]), []).append(row)
    for name, *figures in table[1:]:
        for length, figure in zip((8192, 32768, 262144), figures, strict=True):
            assert figure.strip() == shown(best(cells[name, length])), (name, length)
    statuses = {best(each)["status"] for each in cells.values()}
    assert {"holds", "refused"} <= statuses

    # Another figure, other columns: the same rows.
    page.here.get_by_label("Columns").first.select_option("formats")
    assert heat(page, 0)[0][1:] == ["stored / auto", "stored / fp8", "fp8 / auto", "fp8 / fp8"]
    page.here.get_by_label("In a cell").first.select_option("devices")
    assert all(cell.split()[0].endswith("×") for row in heat(page, 0)[1:] for cell in row[1:])
    page.shot("fit-answered")
    page.here.locator("figure.chart summary").first.click()
    assert page.broken_rules() == []
    assert page.overflow_px() <= 0


def test_the_search_is_what_fit_prints(page: Page) -> None:
    asked(page, {**SMALL, "source": "builtin:Qwen3-32B-FP8", "concurrency": 16, "context": 16384})
    document = printed(command(page, "fit"))
    values = page.here.evaluate(
        "[...document.querySelectorAll('.facts.sides .value')].map(each => each.innerText)"
    )
    refused = sum(each["count"] for each in document["refused"])
    whole = [document["holding_count"], document["near_count"], document["untold_count"], refused]
    assert values == [f"{each:,}" for each in [*whole, document["planned"]]]
    first = document["holding"][0]["plan"]
    row = page.here.locator("[aria-label='Plans that hold'] tbody tr").first.inner_text()
    assert f"{first['devices']} × {first['device']}" in row
    assert f"{first['pool_tokens']:,}" in row
    stars = page.here.locator("[aria-label='Plans that hold'] [aria-label='on the front']").count()
    assert stars == sum(each["is_best"] for each in document["holding"][:20])
    miss = page.here.locator("[aria-label='Near misses'] tbody tr").first.inner_text()
    assert document["near"][0]["reason"] in miss
    front = page.here.get_attribute("[role=img][aria-label*='on the front:']", "aria-label")
    assert f"{document['holding'][0]['plan']['pool_tokens']:,}" in front


def test_a_row_opens_as_a_plan(page: Page) -> None:
    asked(page, {**SMALL, "source": "builtin:Qwen3-8B", "weights": ["stored"], "concurrency": 4})
    plan = printed(command(page, "fit"))["holding"][0]["plan"]
    page.here.locator("[aria-label='Plans that hold'] tbody tr").first.get_by_role("button").click()
    page.waits_for("() => location.hash.startsWith('#plan/')")
    page.here.wait_for_selector(".verdict")
    page.waits_for("() => document.querySelector('section.command')")
    opened = printed(page.command())
    assert opened["inputs"]["device"] == plan["device"]
    assert opened["kv_pool"]["tokens"]["expected"] == plan["pool_tokens"]


def test_prices_order_and_what_lacks_one_is_told(page: Page) -> None:
    asked(page, {**SMALL, "source": "builtin:Qwen3-8B"})
    page.here.get_by_text("More", exact=True).click()
    page.here.get_by_label("What comes first").select_option("price")
    page.here.wait_for_selector(".problem")
    assert "--order price needs a price for L4, H100 SXM 80GB" in page.says(".problem")
    page.here.get_by_label("Prices of one device").fill("L4=0.7\nH100-80GB=2.5")
    page.waits_for("() => !document.querySelector('.problem')")
    page.waits_for(
        "() => [...document.querySelectorAll('section.command code')].some(each => each.innerText.includes('--order price'))"
    )
    document = printed(command(page, "fit"))
    prices = [each["plan"]["price"] for each in document["holding"]]
    assert prices == sorted(prices)
    assert (
        page.here.locator("[aria-label='Plans that hold'] tbody tr").first.inner_text().startswith("1 × L4")
    )


def test_a_large_search_waits_for_run_and_can_be_cancelled(page: Page, ui: Ui) -> None:
    everything = {"devices": ["all"], "weights": ["stored", "fp8", "fp8-block", "int8-w8a8", "awq-int4"]}
    page.here.goto(page.address_of("fit", {**everything, "source": "builtin:DeepSeek-V3", "most": 8}))
    page.here.wait_for_selector("text=plans are to be made. Press Run.")
    page.here.get_by_role("button", name="Run").click()
    page.waits_for("() => /of [\\d,]+ plans/.test(document.querySelector('.progress')?.innerText ?? '')")
    page.shot("fit-running")
    assert page.broken_rules() == []
    assert len(ui.worker_pids()) > 1
    page.here.get_by_role("button", name="Cancel").click()
    page.here.wait_for_selector("text=Cancelled.")
    assert page.here.query_selector(".progress") is None
    wait_until(lambda: len(ui.worker_pids()) == 1, "a command that was cancelled still runs")


def test_a_search_as_a_file(browser: Any, tmp_path: Path) -> None:
    model = tmp_path / HOSTILE.replace("/", chr(0x2215))
    model.mkdir()
    (model / "config.json").write_bytes((ROOT / "examples" / "tiny-llama" / "config.json").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "vramledger", "fit", str(model), "--devices", "L4,T4", "--kv", "auto,fp8", "--html", "page.html", "--json"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    file = tmp_path / "page.html"
    with Page.opened(browser, file.as_uri(), shots=SHOTS, width=390, scheme="dark") as page:
        page.here.goto(file.as_uri())
        page.here.wait_for_selector(".facts.sides")
        assert page.says(".facts.sides .value") == f"{document['holding_count']:,}"
        assert "onerror" in page.command()
        assert page.here.title() != "taken"
        assert page.here.query_selector("img, [aria-label='Plans that hold'] button") is None
        assert page.broken_rules() == []
        assert page.overflow_px() <= 0


@pytest.mark.parametrize("tab", ["fit", "compare"])
def test_an_address_of_anyones_making_is_a_question_or_none(page: Page, tab: str) -> None:
    made = {
        "devices": "all", "engines": {"length": 3}, "weights": [1, None], "context": "x", "source": ["a"], "kv": 7, "way": "nowhere",
        "contexts": None, "device": "<img src=x>", "prices": 1, "names": "n", "flags": {},
    }  # fmt: skip
    page.tab("live").here.goto(page.address_of(tab, made))
    page.here.wait_for_selector("section.command, .problem")
    assert page.here.query_selector("main img") is None


def test_what_was_asked_is_there_when_one_comes_back(page: Page) -> None:
    asked(page, {**SMALL, "source": "builtin:Qwen3-8B", "concurrency": 4})
    command_before = command(page, "fit")
    page.here.get_by_role("link", name="Capacity").click()
    page.here.get_by_role("link", name="Fit").click()
    page.here.wait_for_selector("section.command >> nth=1")
    assert command(page, "fit") == command_before


def test_a_format_that_the_checkpoint_does_not_have_opens_as_no_plan(page: Page) -> None:
    asked(page, {**SMALL, "source": "builtin:Qwen3-8B", "weights": ["stored", "fp8"], "concurrency": 4})
    rows = page.here.locator("[aria-label='Plans that hold'] tbody tr").all()
    assert rows
    formats = [(row.locator("td").nth(2).inner_text(), row.get_by_role("button").count()) for row in rows]
    assert {name.split(" / ")[0]: buttons for name, buttons in formats} == {"stored": 1, "fp8": 0}
