"""The tab Plan: what it shows is what its command prints, whatever is moved, dropped, shared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gguf_builder import llama

from checkpoint_files import tensors_of, write_folder
from vramledger.engines import engine_names, find_engine
from vramledger.models.builtin import read
from vramledger.models.loading import checkpoint_from_source
from vramledger.web.catalogue import catalogue
from web_page import ROOT, SHOTS, Page, Ui, printed, wait_until

pytestmark = pytest.mark.timeout(600)
_KV_TOKENS = ".facts div:first-child .value"


def _ready(page: Page, part: str) -> None:
    """Wait until the shown command has `part`."""
    page.waits_for("part => document.querySelector('section.command code')?.innerText.includes(part)", part)


def _shown(page: Page, part: str, *, folder: Path = ROOT) -> dict[str, Any]:
    """The document of the shown command once it has `part`, after the page was found to say the same."""
    _ready(page, part)
    plan = printed(page.command(), folder=folder)
    assert page.says(".verdict .said") == plan["verdict"]["summary"]
    assert page.says(".starts code") == plan["start"]["command"]
    if plan["kv_pool"] is not None:
        assert page.says(_KV_TOKENS) == f"{plan['kv_pool']['tokens']['expected']:,}"
    return plan


def _press(page: Page, slider: str, key: str = "ArrowRight") -> None:
    page.here.get_by_role("slider", name=slider).press(key)


def _field(page: Page, label: str) -> Any:
    return page.here.locator(".controls").get_by_label(label, exact=True)


def test_each_move_of_a_slider_ends_in_the_numbers_of_its_command(page: Page) -> None:
    page.tab("plan")
    first = _shown(page, "--max-model-len 32768")
    _press(page, "Context")
    longer = _shown(page, "--max-model-len 49152")
    assert longer["kv_pool"]["max_concurrency"] != first["kv_pool"]["max_concurrency"]
    _press(page, "Share of the device", "ArrowLeft")
    smaller = _shown(page, "--gpu-memory-utilization 0.91")
    assert smaller["budget_bytes"] < longer["budget_bytes"]
    _field(page, "Context, exactly").fill("50000")
    _field(page, "Context, exactly").press("Enter")
    assert _shown(page, "--max-model-len 50000")["kv_pool"]["context_len"] == 50000
    _press(page, "Concurrency", "End")
    many = _shown(page, "--concurrency 1024")
    assert many["verdict"]["holds"] is False
    assert page.here.is_visible(".verdict.bad")
    page.shot("plan-fails")
    back = page.here.get_by_role("button", name="Back to the engine's default")
    while back.count():
        back.first.click()
    page.waits_for(
        "() => !document.querySelector('section.command code').innerText.includes('--max-model-len')"
    )


def test_stages_of_a_mixture_each_have_a_chart_and_a_ledger(page: Page) -> None:
    page.tab("plan")
    _field(page, "Model").select_option("builtin:DeepSeek-V3")
    _field(page, "Device").fill("H200 141GB")
    _field(page, "tp").fill("8")
    _field(page, "pp").fill("2")
    _field(page, "ep").check()
    plan = _shown(page, "--enable-expert-parallel")
    assert len(plan["ranks"]) == 2
    page.waits_for(
        "() => document.querySelectorAll('.memory').length === 2 && document.querySelectorAll('table.ledger').length === 2"
    )
    for memory, rank in zip(page.here.locator(".memory").all(), plan["ranks"], strict=True):
        peak = next(each for each in rank["peaks"] if each["phase"] == rank["binding_phase"])["occupied"]
        assert memory.locator(".legend .sum .n").inner_text() == f"{peak['expected'] / 2**30:.2f} GiB"
        assert f"device {rank['device_total_bytes'] / 2**30:.2f}" in memory.locator(
            ".legend"
        ).inner_text().replace("\t", " ")
    assert "--tensor-parallel-size 8 --pipeline-parallel-size 2 --enable-expert-parallel" in page.says(
        ".starts code"
    )
    page.shot("plan-two-stages")


def test_the_ledger_shows_each_entry_and_how_it_is_known(page: Page) -> None:
    page.tab("plan")
    rank = _shown(page, "--max-model-len")["ranks"][0]
    ledger = page.here.locator("table.ledger").first
    rows = ledger.locator("tr:not(.owner)").all()[1:]
    shown = {row.locator("th").inner_text().split("\n")[0]: row for row in rows}
    assert len(shown) == len(rank["entries"])
    for entry in rank["entries"]:
        row = next(row for text, row in shown.items() if text.startswith(entry["name"]))
        assert row.locator(".evidence summary").inner_text() == entry["evidence"]["kind"]
        if entry["bytes"]["expected"] >= 2**30:
            assert row.locator("td").nth(1).inner_text() == f"{entry['bytes']['expected'] / 2**30:.2f} GiB"
    first = rank["entries"][0]
    badge = shown[first["name"]].locator(".evidence")
    badge.locator("summary").press("Enter")
    wait_until(lambda: first["evidence"]["formula"] in badge.inner_text(), "the badge does not open")
    _press(page, "Context", "ArrowLeft")
    _shown(page, "--max-model-len 24576")
    assert first["evidence"]["formula"] in badge.inner_text(), "what was opened closes when a slider moves"
    assert f"{first['bytes']['expected']:,}" in badge.inner_text()
    page.here.locator("figure.chart summary").first.click()
    assert page.here.locator("figure.chart table").first.is_visible()
    assert page.broken_rules() == []


def test_flags_behind_more_are_in_both_commands(page: Page) -> None:
    page.tab("plan")
    _ready(page, "--max-model-len")
    page.here.get_by_text("More", exact=False).first.click()
    page.here.locator("details details summary", has_text="Execution").click()
    _field(page, "--enforce-eager").select_option("on")
    _ready(page, "--enforce-eager")
    _field(page, "--async-scheduling").select_option("off")
    assert _shown(page, "--no-async-scheduling")["inputs"]["settings"]["async_scheduling"] is False
    page.here.locator("details details summary", has_text="Speculation").click()
    _field(page, "--speculative-config").fill('{"method": "ngram", "num_speculative_tokens": 3}')
    _field(page, "--speculative-config").press("Enter")
    plan = _shown(page, "ngram")
    page.waits_for("() => document.querySelector('.starts code').innerText.includes('ngram')")
    started = page.says(".starts code")
    assert started == plan["start"]["command"]
    assert "--enforce-eager" in started
    assert "--no-async-scheduling" in started
    page.shot("plan-more")
    assert page.broken_rules() == []


def test_another_engine_is_asked_the_same(page: Page) -> None:
    page.tab("plan")
    _ready(page, "--max-model-len 32768")
    for engine, flag in (
        ("sglang", "--context-length"),
        ("tensorrt-llm", "--max-seq-len"),
        ("llamacpp", "--ctx-size"),
    ):
        _field(page, "Engine").select_option(engine)
        assert _shown(page, f"{flag} 32768")["inputs"]["engine"] == engine
    _field(page, "KV format").select_option("q8_0")
    assert _shown(page, "--cache-type-v q8_0")["kv_pool"]["dtype"].count("q8_0")
    _field(page, "Engine").select_option("vllm")
    _field(page, "Version").fill("0.9.0")
    _field(page, "Version").press("Enter")
    assert _shown(page, "vllm==0.9.0")["inputs"]["engine_version"] == "0.9.0"


def test_what_is_wrong_is_said_as_the_command_says_it(page: Page) -> None:
    page.tab("plan")
    _ready(page, "--max-model-len")
    before = page.says(_KV_TOKENS)
    _field(page, "tp").fill("3")
    page.here.wait_for_selector(".problem")
    ask = [
        sys.executable,
        "-m",
        "vramledger",
        "plan",
        "builtin:Llama-3.1-8B-Instruct",
        "--device",
        "H100",
        "--tp",
        "3",
    ]
    said = subprocess.run(ask, cwd=ROOT / "src", capture_output=True, text=True, check=False).stderr
    assert page.says(".problem") == said.removeprefix("vramledger: ").strip()
    assert page.says(_KV_TOKENS) == before
    _field(page, "tp").fill("2")
    _field(page, "Device").fill("custom:40GiB")
    _field(page, "Device").press("Enter")
    assert _shown(page, "custom:40GiB")["inputs"]["device_total_bytes"] == 40 * 2**30
    assert not page.here.is_visible(".problem")


def test_a_flag_that_is_what_is_wrong_is_left_to_the_engine_by_one_press(page: Page) -> None:
    page.tab("plan")
    _ready(page, "--max-model-len 32768")
    page.here.get_by_label("Context, exactly", exact=True).fill("500000")
    page.here.get_by_label("Context, exactly", exact=True).press("Enter")
    page.here.get_by_role("button", name="Leave --max-model-len to the engine").click()
    page.waits_for(
        "() => !document.querySelector('section.command code').innerText.includes('--max-model-len')"
    )
    assert _shown(page, "--concurrency 8")["inputs"]["settings"]["max_model_len"] == 131_072
    assert not page.here.is_visible(".problem")


@pytest.mark.parametrize(
    ("engine", "share"),
    [
        ("vllm", "--gpu-memory-utilization 1"),
        ("sglang", "--mem-fraction-static 0.99"),
        ("llamacpp", None),
        ("tensorrt-llm", "--free-gpu-memory-fraction 0.99"),
        ("transformers", "--max-memory-percent 1"),
    ],
)
def test_the_far_end_of_each_slider_is_taken_by_its_engine(
    page: Page, engine: str, share: str | None
) -> None:
    page.tab("plan")
    _press(page, "Sequences at once", "Home")
    _ready(page, "--max-num-seqs 1")
    _press(page, "Sequences at once", "End")
    _ready(page, "--max-num-seqs 1024")
    _field(page, "Engine").select_option(engine)
    _shown(page, f"--engine {engine}")
    if share is not None:
        _press(page, "Share of the device", "End")
        _shown(page, share)
    assert not page.here.is_visible(".problem")


def test_a_number_that_counts_nothing_is_not_taken(page: Page) -> None:
    page.tab("plan")
    _ready(page, "--concurrency 8")
    for name, text in (("Concurrency, exactly", "1e30"), ("Concurrency, exactly", "-5"), ("tp", "0")):
        field = page.here.locator(".controls").get_by_label(name, exact=True)
        before = field.input_value()
        field.fill(text)
        field.press("Tab")
        assert field.input_value() == before
    assert not page.here.is_visible(".problem")


def test_a_dropped_checkpoint_is_the_model(page: Page, tmp_path: Path) -> None:
    source = read("Llama-3.2-1B-Instruct")
    folder = write_folder(
        tmp_path / "m", source.config, tensors_of(checkpoint_from_source(source).stored), files=2
    )
    page.tab("plan")
    _ready(page, "--max-model-len")
    page.here.set_input_files("input[type=file]", sorted(folder.iterdir()))
    page.waits_for(
        "() => document.querySelector('section.command code')?.innerText.startsWith('vramledger plan . ')"
    )
    plan = _shown(page, "plan .", folder=folder)
    sizes = sum(each.stat().st_size for each in folder.glob("*.safetensors"))
    assert 0 < sizes - plan["ranks"][0]["weights"]["disk_bytes"] < 2**20
    assert "config.json" in page.says(".drop")
    page.shot("plan-dropped")
    page.here.get_by_role("button", name="Remove").click()
    _shown(page, "builtin:")


def test_a_dropped_gguf_file_is_the_model(page: Page, tmp_path: Path) -> None:
    file = llama(layers=3).write(tmp_path / "small.gguf")
    page.tab("plan")
    _shown(page, "--max-model-len 32768")
    page.here.set_input_files("input[type=file]", file)
    plan = _shown(page, "./small.gguf", folder=tmp_path)
    assert page.command().startswith("vramledger plan ./small.gguf ")
    assert "--engine llamacpp" in page.command()
    assert "32768" not in page.command()
    assert plan["start"]["command"].startswith("llama-server -m ./small.gguf")


def test_a_plan_is_shared_by_its_address(page: Page, browser: Any) -> None:
    page.tab("plan")
    _field(page, "KV format").select_option("fp8")
    _press(page, "Context", "ArrowLeft")
    _shown(page, "--max-model-len 24576")
    wait_until(
        lambda: page.told_by_address().get("flags", {}).get("max_model_len") == 24576,
        "the address is left behind",
    )
    address, line = page.here.url, page.command()
    with Page.opened(browser, page.address, shots=SHOTS) as other:
        other.here.goto(address)
        _shown(other, "--max-model-len 24576")
        assert other.command() == line
    # Another tab and back: what was asked is still there.
    page.here.get_by_role("link", name="Fit").click()
    page.here.get_by_role("link", name="Plan").click()
    _shown(page, "--max-model-len 24576")
    assert page.command() == line


def test_a_plan_is_shared_as_a_file_with_its_model(page: Page, browser: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(read("Qwen3-0.6B").config))
    page.tab("plan")
    page.here.set_input_files("input[type=file]", config)
    page.waits_for(
        "() => document.querySelector('section.command code')?.innerText.includes('./config.json')"
    )
    _press(page, "Concurrency")
    _shown(page, "--concurrency 12", folder=config.parent)
    with page.here.expect_download() as started:
        page.here.get_by_role("button", name="Save as a file").click()
    file = tmp_path / "question.json"
    started.value.save_as(file)
    assert json.loads(json.loads(file.read_text())["files"]["config.json"]) == json.loads(config.read_text())
    with Page.opened(browser, page.address, shots=SHOTS) as other:
        other.tab("plan")
        _ready(other, "--concurrency 8")
        other.here.set_input_files("input[type=file]", file)
        _shown(other, "./config.json", folder=config.parent)
        assert other.command() == page.command()


MADE_UP: tuple[object, ...] = (
    None, 1, [], {}, {"source": 3}, {"source": "/etc/passwd"}, {"source": "builtin:../x", "flags": {"adapter": "/etc/passwd"}},
    {"source": "builtin:Qwen3-8B", "engine": "none", "flags": {"max_model_len": {"a": 1}, "__proto__": 1}, "concurrency": "8", "device": ["x"]},
    {"source": "upload:gone", "names": "x"},
)  # fmt: skip


def test_an_address_that_someone_made_up_breaks_nothing(page: Page) -> None:
    for state in MADE_UP:
        page.here.goto("about:blank")
        page.here.goto(page.address_of("plan", state))
        page.here.wait_for_selector(".verdict, .problem")
        # The browser itself says that an ask was refused.
        assert [said for said in page.complaints if "400" not in said] == [], state
        page.complaints.clear()


def test_a_plan_is_taken_along_to_capacity(page: Page) -> None:
    page.tab("plan")
    _field(page, "KV format").select_option("fp8")
    _ready(page, "--kv-cache-dtype fp8")
    page.here.get_by_role("link", name="What load it serves").click()
    page.waits_for("() => location.hash.startsWith('#capacity')")
    page.here.wait_for_selector(".controls")
    assert _field(page, "KV format").input_value() == "fp8"


def test_a_plan_is_kept_for_compare(page: Page) -> None:
    page.tab("plan")
    _ready(page, "--max-model-len")
    page.here.get_by_role("button", name="Keep for Compare").click()
    page.waits_for(
        "() => document.querySelector('.tools > [role=status]').innerText.includes('Llama-3.1-8B-Instruct')"
    )


@pytest.mark.parametrize("engine", engine_names())
def test_formats_that_are_offered_are_taken(ui: Ui, engine: str) -> None:
    terms = next(each for each in json.loads(catalogue())["engines"] if each["name"] == engine)["terms"]
    names = {each.name for each in find_engine(engine)[0].OPTIONS}
    assert {terms[each] for each in ("tp", "pp", "ep", "context", "sequences") if terms[each]} <= names
    for form in terms["kv_formats"]:
        options = {"device": "B200", "engine": engine, **dict.fromkeys(terms["kv"], form)}
        found = ui.run({"command": "plan", "sources": ["builtin:Llama-3.1-8B-Instruct"], "options": options})
        assert found["document"]["kind"] == "plan", (form, found["message"])
