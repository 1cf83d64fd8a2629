"""What the documentation shows is what the tools make of the present code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tools.shown import shown

from tools import extending, readme

ROOT = Path(__file__).parents[1]


BLOCK = re.compile(r"(<!-- )(\$ [^\n]+) -->")
# Pages with steps are followed by tests/test_extending.py.
FILLED = [page for page in readme.pages() if page not in extending.PAGES]


@pytest.mark.parametrize("page", FILLED, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_is_what_the_commands_print(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert readme.filled(text, page) == text, "run `make docs`"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_a_question_has_its_answer_how_to_read_it_and_what_it_assumes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    title, *parts = (line for line in text.splitlines() if line.startswith("#"))
    assert title.endswith("?")
    assert parts == ["## How to read it", "## What changes it", "## What is assumed"]
    # A release is made of an engine that runs.
    answer = "```sh\nvramledger release " if page.stem == "release" else "```console\n$ vramledger "
    assert answer in text.partition(parts[0])[0]


def test_a_long_command_is_broken_where_a_shell_goes_on() -> None:
    commands = [
        match[2].removeprefix("$ ") for page in readme.pages() for match in BLOCK.finditer(page.read_text())
    ]
    assert any("\n" in shown(command) for command in commands)
    for command in commands:
        prompt, text = shown(command)[:2], shown(command)[2:]
        assert prompt == "$ "
        assert shlex.split(text.replace("\\\n", "")) == shlex.split(command)


def test_a_block_that_nothing_makes_is_refused() -> None:
    with pytest.raises(SystemExit, match="'guesses'"):
        readme.filled("<!-- guesses -->\n<!-- end -->")


def test_the_accuracy_page_is_that_of_a_fresh_run(tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    command = [sys.executable, "-m", "tools.accuracy", "--data", str(ROOT / "data"), "--table", str(page)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    committed = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == committed, "run `make docs`"
    assert "  -1  " not in done.stdout


def test_the_makefile_refuses_an_old_python(tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.10.12\nexit 1\n')
    old.chmod(0o755)
    (tmp_path / "requirements").mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements/run.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    command = ["make", "--no-print-directory", "demo", f"PYTHON={old}"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert "Python 3.10.12" in done.stderr
    assert not (tmp_path / ".venv").exists()
