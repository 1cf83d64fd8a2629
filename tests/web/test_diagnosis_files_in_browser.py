"""`--html` of diagnose, reconcile and snapshot: opened from a disk, the file shows what the command found, and names are text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from five_kinds import write_config
from small_models import TINY_LLAMA
from web.test_diagnose_in_browser import HOSTILE, OOM, ROOT, snapshot_file
from web_page import SHOTS, Page, printed

pytestmark = pytest.mark.timeout(600)


def written(folder: Path, *words: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "vramledger", *words, "--html", "page.html"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 10, 11), done.stderr
    return folder / "page.html"


def opened(browser: Any, file: Path, **how: Any) -> Any:
    return Page.opened(browser, file.as_uri(), shots=SHOTS, **how)


LOOKS = ((1280, "light"), (390, "dark"))


def test_a_diagnosis_with_its_lines_and_its_snapshot(browser: Any, tmp_path: Path) -> None:
    name = f"{HOSTILE.replace('/', '')}.log"
    (tmp_path / name).write_text("before\n" * 40 + OOM + "after\n" * 40, encoding="utf-8")
    snapshot_file(tmp_path / "oom.pickle")
    file = written(tmp_path, "diagnose", name, "oom.pickle")
    for width, scheme in LOOKS:
        with opened(browser, file, width=width, scheme=scheme) as page:
            page.here.goto(file.as_uri())
            page.here.wait_for_selector(".diagnosis .verdict")
            page.shot(f"diagnose-file-{width}-{scheme}")
            assert page.here.query_selector("img") is None
            assert page.here.locator(".snapshot figure.chart svg").count() >= 2
            assert page.broken_rules() == []
            assert page.overflow_px() <= 0
            lines = "rows => rows.map(each => Number(each.dataset.line))"
            marked = page.here.eval_on_selector_all(".logrow.mark", lines)
            shown = page.here.eval_on_selector_all(".logrow", lines)
            command, said = page.command(), page.says(".verdict")
            assert page.says(f".logrow[data-line='{marked[0] - 1}'] .text").endswith(HOSTILE)
    (failure,) = printed(command, folder=tmp_path)["failures"]
    assert failure["meaning"] in said
    assert marked == sorted({each["line"] for each in failure["evidence"] if each["file"] == name})
    assert shown == list(range(marked[0] - 8, marked[-1] + 9))


def test_a_reconciliation(browser: Any, tmp_path: Path) -> None:
    folder = write_config(tmp_path / HOSTILE.replace("/", "\u2215"), TINY_LLAMA).parent
    log = ROOT / "tests" / "reconciliation" / "recorded" / "sglang-cpu.log"
    (tmp_path / "sglang.log").write_bytes(log.read_bytes())
    file = written(
        tmp_path, "reconcile", "--log", "sglang.log", "--model", folder.name, "--device", "cpu:24105MiB"
    )
    for width, scheme in LOOKS:
        with opened(browser, file, width=width, scheme=scheme) as page:
            page.here.goto(file.as_uri())
            page.here.wait_for_selector(".reconciliation .verdict")
            page.shot(f"reconcile-file-{width}-{scheme}")
            assert page.here.query_selector("img") is None
            assert page.broken_rules() == []
            assert page.overflow_px() <= 0
            word, said, command = page.says(".verdict .word"), page.says(".reconciliation"), page.command()
            rows = page.here.locator(".reconciliation > .scroll tbody tr").count()
    found = printed(command, folder=tmp_path)
    assert word == found["standing"]
    assert found["model"] in said
    assert rows == len(found["lines"]) + len(found["differences"])
    for line in found["lines"]:
        for reason in line["reasons"]:
            assert reason["text"] in said


def test_a_snapshot_of_many_blocks(browser: Any, tmp_path: Path) -> None:
    """More blocks than elements should be: drawn on a canvas, each segment told in the table up to 200."""
    import pickle

    blocks = [
        {"address": 2**40 + 512 * place, "size": 512, "requested_size": 512 * (place % 2), "state": ("inactive", "active_allocated")[place % 2]}
        for place in range(4000)
    ]  # fmt: skip
    segment = {
        "device": 0, "address": 2**40, "total_size": 512 * 4000, "stream": 0, "is_expandable": False, "segment_type": "large",
        "segment_pool_id": (0, 0), "blocks": blocks,
    }  # fmt: skip
    (tmp_path / "many.pickle").write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[]]}))
    file = written(tmp_path, "snapshot", "many.pickle")
    with opened(browser, file) as page:
        page.here.goto(file.as_uri())
        page.here.wait_for_selector(".snapshot canvas")
        (device,) = printed(page.command(), folder=tmp_path)["devices"]
        (pool,) = device["pools"]
        assert device["map"] is None
        told = page.here.get_attribute(".snapshot .chart .drawn >> nth=0", "aria-label")
        assert told.startswith(f"{pool['num_segments']} segments with {len(blocks):,} blocks")
        assert page.broken_rules() == []


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(OOM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "vramledger", "diagnose", "a.log", "--html", "nowhere/page.html"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 74
    assert "nowhere/page.html" in done.stderr
