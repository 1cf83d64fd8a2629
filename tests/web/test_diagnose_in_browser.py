"""Tab Diagnose: files are dropped, and what is shown is what the commands print."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from telemetry.caching_allocator import CachingAllocator
from vramledger.cli.app import run
from vramledger.units import MIB
from web_page import Page, printed

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "diagnosis" / "recorded"
HOSTILE = "</script><img src=x onerror=alert(1)>"
OOM = (
    f"(EngineCore pid=11) INFO 11-30 00:00:00 [core.py:9] {HOSTILE}\n"
    "(EngineCore pid=11) INFO 11-30 00:00:01 [gpu_worker.py:298] Available KV cache memory: 2.97 GiB\n"
    "(EngineCore pid=11) INFO 11-30 00:00:01 [kv_cache_utils.py:1087] GPU KV cache size: 150,745 tokens\n"
    "(EngineCore pid=11) ERROR 11-30 00:00:05 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. "
    "GPU 0 has a total capacity of 22.36 GiB of which 120.88 MiB is free. Process 5 has 22.20 GiB memory in use. Of the allocated "
    "memory 20.10 GiB is allocated by PyTorch, with 76.00 MiB allocated in private pools (e.g., CUDA Graphs), and 4.00 MiB is "
    "reserved by PyTorch but unallocated.\n"
)
pytestmark = pytest.mark.timeout(600)


def drop(page: Page, *files: Path, place: int = 0) -> None:
    page.here.set_input_files(f"form input[type=file] >> nth={place}", [str(each) for each in files])


def shown(page: Page, *, within: str) -> str:
    """Wait until the newest question is answered; the command that answered it."""
    page.here.wait_for_selector(f".answered[data-shown=now] {within}")
    return page.command()


def press(page: Page, name: str) -> None:
    page.here.get_by_role("button", name=name, exact=True).click()


def snapshot_file(path: Path) -> Path:
    """A default pool in pieces, a private pool, a request that failed."""
    allocator = CachingAllocator()
    held = [allocator.malloc(30 * MIB, frame=f"{HOSTILE}.py") for _ in range(6)]
    allocator.malloc(8 * MIB, pool=(0, 1), frame="graphs.py")
    for address in held[::2]:
        allocator.free(address)
    for _ in range(3):
        allocator.malloc(2 * MIB, frame="cache.py")
    allocator.fail(512 * MIB, device_free=7 * MIB)
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    return path


def test_a_dropped_log_is_diagnosed_with_its_lines_in_place(page: Page) -> None:
    log = RECORDED / "llamacpp-unified-kv.log"
    page.tab("diagnose")
    drop(page, log)
    command = shown(page, within=".diagnosis")
    (failure,) = printed(command, folder=RECORDED)["failures"]
    assert page.says(".verdict .word").startswith(failure["failure_class"])
    assert failure["meaning"] in page.says(".verdict")
    text = log.read_text(encoding="utf-8").splitlines()
    (cause,) = (each for each in failure["evidence"] if each["what"] == "first cause")
    # The view begins at the cause, and has the file's own lines around it.
    page.here.wait_for_selector(f".logrow.cause.current[data-line='{cause['line']}']")
    for number in (cause["line"], cause["line"] - 2):
        assert (
            page.here.text_content(f".logrow[data-line='{number}'] .text").strip() == text[number - 1].strip()
        )
    page.shot("diagnose-log")
    later = min(each["line"] for each in failure["evidence"] if each["line"] > cause["line"])
    press(page, "Next")
    page.here.wait_for_selector(f".logrow.mark.current[data-line='{later}']")
    for remedy in failure["remedies"]:
        assert remedy["change"] in page.says(".diagnosis")
    assert page.broken_rules() == []
    assert page.overflow_px() <= 0


def test_remedies_are_sized_by_the_model_that_was_served(page: Page, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(OOM, encoding="utf-8")
    page.tab("diagnose")
    drop(page, log)
    shown(page, within=".diagnosis")
    page.here.get_by_label("Model that was served").select_option("Llama-3.1-8B-Instruct")
    page.here.get_by_label("Settings that the log does not print").fill("gpu_memory_utilization=0.98")
    page.waits_for("() => document.querySelector('section.command code')?.innerText.includes('0.98')")
    command = shown(page, within=".diagnosis")
    (failure,) = printed(command, folder=tmp_path)["failures"]
    sized = [each for each in failure["remedies"] if each["basis"] == "ledger"]
    assert sized
    said = page.says(".diagnosis")
    for remedy in sized:
        assert remedy["effect"] in said
    rows = page.here.eval_on_selector_all(
        "figure.chart td.n", "cells => cells.map(each => each.textContent.replaceAll(',', ''))"
    )
    assert {str(each["frees_bytes"]) for each in failure["remedies"] if each["frees_bytes"]} <= set(rows)
    assert {str(each["bytes"]["expected"]) for each in failure["arithmetic"]["holders"]} <= set(rows)
    page.shot("diagnose-remedies")
    assert page.broken_rules() == []


def test_reported_failures_have_the_class_that_the_command_gives(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of each class, as people reported them; the page goes from one to the next."""
    reports = (ROOT / "data" / "groundtruth" / "oom-reports.jsonl").read_text(encoding="utf-8").splitlines()
    chosen: dict[str, dict[str, Any]] = {}
    for report in map(json.loads, reports):
        if report["confidence"] == "high" and report["messages"]:
            chosen.setdefault(report["class"], report)
    assert len(chosen) >= 6
    page.tab("diagnose")
    found = {}
    for name, report in chosen.items():
        file = tmp_path / f"{name}.txt"
        file.write_text("\n".join(report["messages"]) + "\n", encoding="utf-8")
        drop(page, file)
        page.here.wait_for_selector(
            f".answered[data-shown=now] section.command code:has-text('./{name}.txt')"
        )
        found[name] = page.here.eval_on_selector_all(
            ".diagnosis article > .verdict .word",
            "words => words.map(each => each.textContent.split(' · ')[0])",
        )
        page.here.click("ul.held button")
    monkeypatch.chdir(tmp_path)
    words = {None: "the class cannot be told", "none": "none of the six classes"}
    for name, report in chosen.items():
        run(["diagnose", f"./{name}.txt", "--json"])
        told = [each["failure_class"] for each in json.loads(capsys.readouterr().out)["failures"]]
        assert found[name] == [words.get(each, each) for each in told], name
        assert {name, *report.get("class_also_accepted", ())} & set(told), name


def test_the_address_shows_the_example_again(page: Page) -> None:
    page.tab("diagnose")
    page.here.click("form >> text=Show an example")
    command = shown(page, within=".diagnosis")
    page.waits_for("() => location.hash.includes('/')")
    address = page.here.evaluate("location.href")
    page.here.goto("about:blank")
    page.here.goto(address)
    assert shown(page, within=".diagnosis") == command
    assert page.says(".verdict .word").startswith("decode-growth")
    press(page, "Plan against measured")
    page.here.click(".shown >> text=Show an example")
    assert "--model ./config.json" in shown(page, within=".reconciliation")
    assert page.says(".reconciliation .verdict .word") == "outside"


def test_two_logs_of_one_name_and_a_packed_one_are_told_apart(page: Page, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "server.log").write_text("INFO 11-30 00:00:01 [core.py:1] hello\n", encoding="utf-8")
    (tmp_path / "two" / "server.log").write_text(OOM, encoding="utf-8")
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(OOM.encode()))
    page.tab("diagnose")
    drop(page, tmp_path / "one" / "server.log")
    shown(page, within=".verdict.good")
    drop(page, tmp_path / "two" / "server.log")
    page.here.wait_for_selector(".logrow.cause[data-line='4']")
    assert page.command() == "vramledger diagnose ./server.log ./2-server.log"
    assert HOSTILE in page.says(".logrow[data-line='1']")
    for _ in range(2):
        page.here.click("ul.held button >> nth=0")
    drop(page, packed)
    page.here.wait_for_selector(".logrow.cause[data-line='4']")
    assert "CUDA out of memory" in page.says(".logrow[data-line='4']")
    assert page.command() == "vramledger diagnose ./server.log.gz"


def test_a_large_log_is_held_by_the_line(page: Page, tmp_path: Path) -> None:
    """Half a million lines: the window moves to the cause, and to the end."""
    log = tmp_path / "long.log"
    filler = "INFO 11-30 00:00:01 [core.py:1] step {:06d}\n"
    with log.open("w", encoding="utf-8") as file:
        file.writelines(filler.format(number) for number in range(1, 450_001))
        file.write(OOM)
        file.writelines(filler.format(number) for number in range(450_005, 500_001))
    page.tab("diagnose")
    drop(page, log)
    page.here.wait_for_selector(".logrow.cause[data-line='450004']")
    assert "step 450000" in page.says(".logrow[data-line='450000']")
    assert page.here.locator(".logrow").count() < 200
    page.here.fill(".logbar input[type=number]", "500000")
    page.here.press(".logbar input[type=number]", "Enter")
    page.here.wait_for_selector(".logrow.current[data-line='500000']")
    assert "step 500000" in page.says(".logrow[data-line='500000']")
    find = page.here.get_by_label("Find")
    for wanted, line in (
        ("STEP 123456", 123456),
        ("step 000001", 1),
        ("fraction of nothing", None),
        ("tried to allocate", 450004),
    ):
        find.fill(wanted)
        find.press("Enter")
        page.here.wait_for_selector(
            f".logrow.current[data-line='{line}']" if line else ".logbar :text('not found')"
        )


def test_an_allocator_snapshot_is_drawn_and_asked(page: Page, tmp_path: Path) -> None:
    file = snapshot_file(tmp_path / "oom.pickle")
    page.tab("diagnose")
    drop(page, file)
    command = shown(page, within=".snapshot")
    (device,) = printed(command, folder=tmp_path)["devices"]
    page.shot("diagnose-snapshot")
    numbers = page.here.eval_on_selector_all(
        ".snapshot table td.n", "cells => cells.map(each => each.textContent)"
    )
    open_pool = device["pools"][0]
    for name in ("reserved_bytes", "free_bytes", "pinned_bytes", "largest_free_run_bytes"):
        assert f"{open_pool[name] / MIB:.1f} MiB" in numbers
    assert str(open_pool["num_segments"]) in numbers
    segments = [each for each in device["map"]["segments"] if each["pool_id"] == [0, 0]]
    assert sum(each["size_bytes"] for each in segments) == open_pool["reserved_bytes"]
    listed = page.here.locator("figure.chart", has_text="Segment").first.locator("tbody tr").count()
    assert listed == len(segments)
    assert HOSTILE in page.here.text_content(".snapshot")
    page.here.get_by_label("Would a request of this size be served?").fill("20MiB")
    page.waits_for("() => document.querySelector('section.command code')?.innerText.includes('20MiB')")
    (device,) = printed(shown(page, within=".verdict.good"), folder=tmp_path)["devices"]
    assert device["request"]["how"] == "free block"
    assert page.broken_rules() == []
    assert page.overflow_px() <= 0


def test_a_start_up_is_compared_with_its_plan(page: Page, tmp_path: Path, tiny_model: Path) -> None:
    log = shutil.copy(ROOT / "tests/reconciliation/recorded/sglang-cpu.log", tmp_path / "sglang.log")
    # A model without a name is called as its folder is; the page's folder has this name.
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(tiny_model, folder / "config.json")
    shutil.copy(log, folder / "sglang.log")
    page.tab("diagnose")
    drop(page, Path(log))
    shown(page, within=".verdict.good")
    page.here.click("summary:has-text('Your own')")
    drop(page, tiny_model, place=1)
    page.here.get_by_label("Device").fill("cpu:24105MiB")
    press(page, "Plan against measured")
    page.waits_for("() => document.querySelector('section.command code')?.innerText.includes('24105')")
    found = printed(shown(page, within=".reconciliation"), folder=folder)
    page.shot("diagnose-reconciliation")
    said = page.says(".reconciliation")
    assert page.says(".reconciliation .verdict .word") == found["standing"]
    for line in found["lines"]:
        assert line["name"] in said
        for reason in line["reasons"]:
            assert reason["text"] in said
    summed = page.here.eval_on_selector_all(
        "figure.chart td.n", "cells => cells.map(each => each.textContent)"
    )
    ledger = [
        each for each in found["lines"] if each["section"] == "ledger" and each["difference"] is not None
    ]
    assert {f"{each['difference']:,}" for each in ledger} <= set(summed)
    assert f"{sum(each['difference'] for each in ledger):,}" in summed
    press(page, "What the log says")
    told = printed(shown(page, within=".logdocument"), folder=folder)
    assert page.here.locator(".logdocument > .scroll").first.locator("tbody tr").count() == len(
        told["observations"]
    )
    assert page.broken_rules() == []
    assert page.overflow_px() <= 0


def test_what_cannot_be_read_is_said_as_the_command_says_it(page: Page, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(pickle.dumps({"segments": 1}))
    page.tab("diagnose")
    drop(page, broken)
    page.here.wait_for_selector(".problem")
    assert (
        page.says(".problem")
        == printed("vramledger snapshot ./broken.pickle", folder=tmp_path)["error"]["message"]
    )
    assert "/model/" not in page.says("main")


@pytest.fixture
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from five_kinds import write_config
    from small_models import TINY_LLAMA

    return write_config(tmp_path_factory.mktemp("model"), TINY_LLAMA)
