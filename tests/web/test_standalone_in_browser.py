"""A view as one file: opened from a disk it shows what the command found, runs nothing of what a file was called, and asks no one."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from web_page import ROOT, SHOTS, Page

pytestmark = pytest.mark.timeout(600)
HOSTILE = "</script><img src=x onerror=document.title='taken'>${1}"


def written(folder: Path, *words: str) -> Path:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "vramledger", *words, "--html", "page.html", "--exit-zero"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "page.html"


def test_a_plan_as_a_file(browser: Any, tmp_path: Path) -> None:
    file = written(tmp_path, "plan", "builtin:Llama-3.1-8B-Instruct", "--device", "L40S", "--json")
    with Page.opened(browser, file.as_uri(), shots=SHOTS) as page:
        page.here.goto(file.as_uri())
        page.here.wait_for_selector(".verdict")
        assert page.command() == "vramledger plan builtin:Llama-3.1-8B-Instruct --device L40S --exit-zero"
        assert page.broken_rules() == []


def test_a_hostile_name_is_text(browser: Any, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    config = json.loads((ROOT / "examples" / "tiny-llama" / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "_name_or_path": HOSTILE}))
    # The name in the command line is shown as well.
    named = tmp_path / HOSTILE.replace("/", "\u2215")
    model.rename(named)
    file = written(tmp_path, "plan", str(named), "--device", "L40S")
    with Page.opened(browser, file.as_uri(), shots=SHOTS) as page:
        page.here.goto(file.as_uri())
        page.here.wait_for_selector(".verdict")
        assert page.here.title() != "taken"
        assert page.here.query_selector("img") is None
        assert "onerror" in page.command()


def test_who_has_no_script_reads_the_terminals_page(tmp_path: Path) -> None:
    file = written(tmp_path, "plan", "builtin:Llama-3.1-8B-Instruct", "--device", "L40S")
    without = file.read_text(encoding="utf-8").split("<noscript><pre>")[1].split("</pre></noscript>")[0]
    shown = subprocess.run(
        [sys.executable, "-m", "vramledger", "plan", "builtin:Llama-3.1-8B-Instruct", "--device", "L40S"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert html.unescape(without).strip() == shown.strip()


@pytest.mark.parametrize("more", [["--json"], ["--html", "page.html"], ["--json", "--html", "page.html"]])
def test_a_name_that_is_no_text_is_refused_where_a_document_would_hold_it(
    tmp_path: Path, more: list[str]
) -> None:
    """A name of bytes that are no UTF-8, as old disks have them."""
    named = tmp_path / os.fsdecode(b"model-\xff")
    named.mkdir()
    (named / "config.json").write_bytes((ROOT / "examples" / "tiny-llama" / "config.json").read_bytes())
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "vramledger", "plan", named.name, "--device", "L40S", *more],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no UTF-8 text" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "page.html").exists()
    if "--json" in more:
        assert json.loads(done.stdout)["error"]["code"] == "input"
