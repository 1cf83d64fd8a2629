"""Plans beside each other: what the page shows is what `compare` and `diff` print, for engines, for files, and as a file of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from web_page import ROOT, SHOTS, Page, Ui, printed

pytestmark = pytest.mark.timeout(600)
MODEL = "builtin:Llama-3.1-8B-Instruct"
HOSTILE = "</script><img src=x onerror=document.title='taken'>"


def ran(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "vramledger", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with before.json and after.json."""
    folder = tmp_path_factory.mktemp("plans")
    for name, words in (
        ("before", ["--device", "H100-80GB", "--max-model-len", "16K"]),
        ("after", ["--device", "H200", "--max-model-len", "16K", "--kv-cache-dtype", "fp8"]),
    ):
        text = ran(folder, "plan", MODEL, *words, "--json")
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def numbers(page: Page, region: str) -> list[list[str]]:
    """Cells of a table by its label, its head first."""
    found: list[list[str]] = page.here.evaluate(
        "label => [...[...document.querySelectorAll('[role=region]')].find(each => each.ariaLabel === label)"
        ".querySelectorAll('tr')].map(row => [...row.cells].map(cell => (cell.innerText || cell.textContent).trim()))",
        region,
    )
    return found


def facts(page: Page) -> dict[str, str]:
    found: dict[str, str] = page.here.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.facts.sides > div')]"
        ".map(each => [each.querySelector('dt').innerText, each.querySelector('.value').innerText]))"
    )
    return found


def pools(document: dict[str, Any]) -> dict[str, str]:
    """Tokens of each column's pool by its name; an engine that refuses has none."""
    return {
        column["name"]: f"{column['plan']['kv_pool']['tokens']['expected']:,}" if column["plan"] else "—"
        for column in document["columns"]
    }


def gib(size: int) -> str:
    """As the page writes what is large."""
    return f"{size / 2**30:.2f} GiB"


def test_engines_side_by_side_are_what_the_command_prints(page: Page) -> None:
    page.tab("compare").here.wait_for_selector("section.command")
    document = printed(page.command())
    assert len(document["columns"]) == 5
    assert facts(page) == pools(document)
    table = numbers(page, "Side by side")
    assert table[0][1:] == [column["name"] for column in document["columns"]]
    held = next(row for row in table if row[0] == "held")
    peaks = [column["held"]["peak_bytes"] for column in document["columns"]]
    assert [cell.splitlines()[0] for cell in held[1:]] == [gib(size) for size in peaks]
    page.shot("compare-engines")

    # Another column, a longer context: the page follows, the command with it.
    page.here.get_by_label("Add an engine or a version").press_sequentially("vllm==0.11.0")
    page.here.keyboard.press("Enter")
    page.here.get_by_label("Remove transformers").click()
    slider = page.here.get_by_role("slider", name="Context")
    slider.focus()
    for _ in range(2):
        page.here.keyboard.press("ArrowRight")
    page.waits_for("() => document.querySelector('section.command code')?.innerText.includes('32768')")
    page.waits_for("() => document.querySelector('.facts.sides').innerText.includes('vllm 0.11.0')")
    document = printed(page.command())
    assert "transformers" not in page.command()
    assert facts(page) == pools(document)
    assert page.broken_rules() == []
    assert page.overflow_px() <= 0


def test_the_waterfall_goes_from_one_to_another(page: Page) -> None:
    page.tab("compare").here.wait_for_selector("section.command")
    document = printed(page.command())
    by_name = {column["name"]: column for column in document["columns"]}
    chosen = next(name for name in by_name if name.startswith("sglang"))
    first = document["columns"][0]
    page.here.get_by_label("To (B)").select_option(label=chosen)
    says = page.here.get_attribute(f"[role=img][aria-label*='{chosen} holds ']", "aria-label")
    before, after = first["held"], by_name[chosen]["held"]
    assert f"{first['name']} holds {gib(before['peak_bytes'])}" in says
    assert f"{chosen} holds {gib(after['peak_bytes'])}" in says
    rows = {row[0]: row for row in numbers(page, says)[1:]}
    delta = after["by_owner"]["kv_cache"] - before["by_owner"]["kv_cache"]
    low = after["ranges"]["kv_cache"]["low"] - before["ranges"]["kv_cache"]["high"]
    assert rows["kv_cache"][1] == f"−{gib(-delta)}"
    assert rows["kv_cache"][2].startswith(f"−{gib(-low)}")
    total = after["peak_bytes"] - before["peak_bytes"]
    assert rows["in all"][1] == f"{'+' if total > 0 else '−'}{gib(abs(total))}"
    # Why the pools differ comes from the document, where it has this pair.
    why = next(
        item for item in document["differences"] if document["columns"][item["column"]]["name"] == chosen
    )
    assert f"{abs(why['tokens']):,} tokens" in page.says("main")


def test_plans_that_are_dropped_stand_side_by_side(page: Page, plans: Path) -> None:
    page.tab("compare")
    page.here.get_by_label("What to compare").select_option("plans")
    page.here.wait_for_selector("text=Two plans or more are compared. There is 0.")
    page.here.set_input_files("input[type=file]", [plans / "before.json", plans / "after.json"])
    page.here.wait_for_selector("section.command")
    assert page.command() == "vramledger compare ./before.json ./after.json --exit-zero"
    document = printed(page.command(), folder=plans)
    assert facts(page) == pools(document)
    assert [row[1:] for row in numbers(page, "Side by side") if row[0] == "device"] == [
        [column["plan"]["inputs"]["device"] for column in document["columns"]]
    ]
    page.shot("compare-plans")
    page.here.get_by_label("Remove after.json").click()
    page.here.wait_for_selector("text=There is 1.")


def test_plans_that_were_kept_stand_side_by_side(page: Page, tmp_path: Path) -> None:
    page.tab("plan").here.wait_for_selector("section.command")
    for length in ("32768", "49152"):
        page.waits_for(
            "length => document.querySelector('section.command code').innerText.includes(`--max-model-len ${length}`)",
            length,
        )
        page.here.get_by_role("button", name="Keep for Compare").click()
        page.here.get_by_role("slider", name="Context").press("ArrowRight")
    page.here.get_by_role("link", name="Compare").click()
    page.waits_for("() => document.querySelectorAll('section.command').length === 2")
    # The commands that made the plans are shown beside the one that compares them, and give the same.
    made = page.says("section.command >> nth=1 >> code").splitlines()
    for line in made:
        command, _, file = line.partition(" --json > ")
        (tmp_path / file).write_text(json.dumps(printed(command)), encoding="utf-8")
    assert page.command().split()[2:4] == ["./max-model-len-32768.json", "./max-model-len-49152.json"]
    assert facts(page) == pools(printed(page.command(), folder=tmp_path))
    page.shot("compare-kept")


def test_what_is_no_plan_is_told_as_the_command_tells_it(page: Page, plans: Path, tmp_path: Path) -> None:
    page.tab("compare")
    page.here.get_by_label("What to compare").select_option("plans")
    (tmp_path / "other.json").write_text('{"kind": "manifest"}', encoding="utf-8")
    page.here.set_input_files("input[type=file]", plans / "before.json")
    page.here.wait_for_selector(".chosen li:has-text('before.json')")
    page.here.set_input_files("input[type=file]", tmp_path / "other.json")
    page.here.wait_for_selector(".problem")
    assert "kind" in page.says(".problem")
    assert page.broken_rules() == []


def test_two_releases(page: Page, plans: Path) -> None:
    page.tab("compare")
    page.here.get_by_label("What to compare").select_option("releases")
    both = [plans / "after.json", plans / "before.json"]
    page.here.get_by_label("A: a manifest, or a plan").set_input_files(both)
    page.here.wait_for_selector("section.command")
    assert page.command() == "vramledger diff ./after.json ./before.json"
    page.here.get_by_label("A: a manifest, or a plan").set_input_files(both[1])
    page.here.wait_for_selector(".drop >> nth=0 >> text=before.json")
    page.here.get_by_label("B: a manifest, or a plan").set_input_files(both[0])
    page.waits_for(
        "() => document.querySelector('section.command code')?.innerText === 'vramledger diff ./before.json ./after.json'"
    )
    document = printed(page.command(), folder=plans)
    shown = {
        row[0].splitlines()[0]: row for group in ("inputs", "pool", "owners") for row in numbers(page, group)
    }
    pool = next(change for change in document["changes"] if change["name"] == "kv_tokens")
    assert shown["kv_tokens"][1:4] == [
        f"{pool['before']:,}",
        f"{pool['after']:,}",
        f"+{pool['delta']:,}",
    ]
    assert shown["device"][1:3] == ["H100 SXM 80GB", "H200 141GB"]
    assert f"{len(document['changes'])} quantities changed" in page.says("main")
    page.shot("compare-releases")
    assert page.broken_rules() == []


def test_manifests_with_a_limit_that_trips(page: Page, plans: Path, tmp_path: Path) -> None:
    for name in ("before", "after"):
        words = [
            "--plan",
            str(plans / f"{name}.json"),
            "--engine-revision",
            "a" * 40,
            "--allow-unpinned",
            "-o",
            f"{name}.json",
        ]
        ran(tmp_path, "manifest", *words)
    page.tab("compare")
    page.here.get_by_label("What to compare").select_option("releases")
    page.here.get_by_label("A: a manifest, or a plan").set_input_files(tmp_path / "after.json")
    page.here.wait_for_selector(".drop:has-text('after.json')")
    page.here.get_by_label("B: a manifest, or a plan").set_input_files(tmp_path / "before.json")
    for limit in ("kv_tokens < -2%", "weights > +1GiB", "no_such > 1"):
        page.here.get_by_label("Add a threshold").fill(limit)
        page.here.keyboard.press("Enter")
    page.here.wait_for_selector(".problem:has-text('no_such')")
    page.here.get_by_label("Remove no_such > 1").click()
    page.here.wait_for_selector(".verdict.bad")
    page.waits_for("() => !document.querySelector('.problem')")
    document = printed(page.command(), folder=tmp_path)
    assert document["before"]["kind"] == document["after"]["kind"] == "manifest"
    shown = page.here.locator(".verdict").all_inner_texts()
    assert [text.splitlines()[0] for text in shown] == [
        "tripped: kv_tokens < -2%",
        "within its limit: weights > +1GiB",
    ]
    assert [text.splitlines()[-1] for text in shown] == [each["why"] for each in document["thresholds"]]
    page.shot("compare-limits")
    assert page.broken_rules() == []


def test_an_address_brings_the_question_back(browser: Any, ui: Ui, page: Page) -> None:
    page.tab("compare").here.wait_for_selector("section.command")
    page.here.get_by_text("More", exact=True).click()
    page.here.get_by_label("Add a flag").fill("vllm:gpu_memory_utilization=0.8")
    page.here.keyboard.press("Enter")
    page.here.get_by_label("KV cache format").select_option("fp8")
    page.waits_for("() => document.querySelector('section.command code').innerText.includes('--kv fp8')")
    page.waits_for("() => location.hash.startsWith('#compare/')")
    command, address = page.command(), page.here.url
    assert "--flags vllm:gpu_memory_utilization=0.8" in command
    assert facts(page) == pools(printed(command))
    with Page.opened(browser, ui.address, shots=SHOTS, width=390, scheme="dark") as other:
        other.here.goto(address)
        other.here.wait_for_selector("section.command")
        assert other.command() == command
        other.shot("compare-390-dark-answered")
        assert other.broken_rules() == []
        assert other.overflow_px() <= 0


def test_a_comparison_as_a_file(browser: Any, plans: Path, tmp_path: Path) -> None:
    named = tmp_path / f"{HOSTILE.replace('/', chr(0x2215))}.json"
    plan = json.loads((plans / "after.json").read_text(encoding="utf-8"))
    plan["inputs"]["model"] = HOSTILE
    named.write_text(json.dumps(plan), encoding="utf-8")
    words = ["compare", str(plans / "before.json"), str(named), "--html", "page.html", "--json"]
    document = json.loads(ran(tmp_path, *words))
    file = tmp_path / "page.html"
    with Page.opened(browser, file.as_uri(), shots=SHOTS) as page:
        page.here.goto(file.as_uri())
        page.here.wait_for_selector(".facts.sides")
        assert list(facts(page).values()) == list(pools(document).values())
        assert HOSTILE in page.says("main")
        page.here.hover(".chart .drawn >> nth=0")
        assert page.here.title() != "taken"
        assert page.here.query_selector("img") is None
        assert page.broken_rules() == []
        page.shot("compare-file")
