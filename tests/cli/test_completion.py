"""Completion, asked by real shells: bash and zsh on a terminal with the Tab key, fish by its own question."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vramledger.cli import main
from vramledger.cli.app import cli
from vramledger.cli.completion import VARIABLE, LineBashComplete
from vramledger.hardware.catalogue import devices, find_device
from vramledger.models import builtin

PATIENCE_S = 60
PROMPT = "ready$ "
ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with one file, and with `vramledger` in its bin/ as a command."""
    command = tmp_path / "bin" / "vramledger"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="{SOURCES}" exec "{sys.executable}" -m vramledger "$@"\n', encoding="utf-8"
    )
    command.chmod(0o755)
    (tmp_path / "my-model.gguf").touch()
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    return {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "HOME": str(place),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "PS1": PROMPT,
    }


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """What bash's script is told of a line, without bash."""

    def ask(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        return LineBashComplete(cli, {}, "vramledger", VARIABLE).complete().splitlines()

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vramledger comp", {"plain,compare", "plain,completion"}),
        ("vramledger plan x --max-num-s", {"plain,--max-num-seqs"}),
        ("vramledger plan x --engine sglang --mem-fr", {"plain,--mem-fraction-static"}),
        ("vramledger plan x --engine s", {"plain,sglang"}),
        (
            "vramledger plan x --device h100",
            {"plain,H100-SXM-80GB", "plain,H100-PCIe-80GB", "plain,H100-NVL-94GB"},
        ),
        ("vramledger plan x --device=h200", {"plain,H200-141GB"}),
        ("vramledger fit x --devices L4,h200", {"plain,L4,H200-141GB"}),
        ("vramledger plan builtin:gpt", {"plain,builtin:gpt-oss-20b", "plain,builtin:gpt-oss-120b"}),
        ("vramledger simulate x --workload builtin:az", {"plain,builtin:azure-chat"}),
        ("vramledger rollout builtin:gpt-oss-1", {"plain,builtin:gpt-oss-120b"}),
        ("vramledger plan my", {"file,my"}),
        ("vramledger simulate x --workload tr", {"file,tr"}),
        ("vramledger release x --out tr", {"dir,tr"}),
        ("vramledger plan x --tp ", set()),
        ("vramledger plan x --engine nothing --tp ", set()),
        ("vramledger plan 'unfinished", {"file,unfinished"}),
    ],
)
def test_what_a_line_can_go_on_with(words: Callable[[str], list[str]], line: str, expected: set[str]) -> None:
    assert {item for item in words(line) if item} == expected


def test_after_a_wrong_command_the_right_ones_are_offered(words: Callable[[str], list[str]]) -> None:
    assert {"plain,plan", "plain,diagnose"} <= set(words("vramledger plam "))


def test_every_device_and_every_built_in_model_is_offered_by_a_name_that_is_read_back(
    words: Callable[[str], list[str]],
) -> None:
    offered = [item.partition(",")[2] for item in words("vramledger plan x --device ")]
    assert [find_device(name).name for name in offered] == [device.name for device in devices()]
    assert not any(" " in name for name in offered)
    named = [item.partition(",")[2] for item in words("vramledger plan builtin:")]
    assert named == [f"builtin:{name}" for name in builtin.names()]


def test_a_shell_without_completion_here_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


class Terminal:
    """A shell on a terminal: what is typed into it, and what it has shown since."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def until(self, pattern: str) -> str:
        """What is shown up to a match. Fails with all that was shown when none comes."""
        shown, end = "", time.monotonic() + PATIENCE_S
        while not re.search(pattern, shown):
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no {pattern!r} in {shown!r}"
            shown += os.read(self._descriptor, 65536).decode(errors="replace")
        return shown


@contextmanager
def terminal(command: list[str], place: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(place),
        cwd=place,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(ours)


INTERACTIVE = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; unsetopt zle_bracketed_paste; "),
}


def line_of_the_page(shell: str) -> str:
    """What docs/install.md tells to write into the shell's own file."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^eval .*completion {shell}.*$", page, flags=re.MULTILINE)
    return str(line)


@pytest.mark.parametrize("shell", INTERACTIVE)
def test_tab_completes_on_a_terminal(place: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    command, before = INTERACTIVE[shell]
    setup = before + line_of_the_page(shell)
    with terminal(command, place) as shown:
        shown.until(re.escape(PROMPT.strip()))
        shown.type(f"{setup}; echo se''t\n")
        shown.until("\nset")
        shown.type("vramledger roll\t")
        shown.until("rollout ")
        shown.type("builtin:gpt-oss-1\t")
        shown.until("builtin:gpt-oss-120b ")
        shown.type("--device h200\t")
        shown.until("H200-141GB ")
        shown.type("my-mo\t")
        shown.until(r"my-model\.gguf ")
        # The line that was put together is one that runs.
        shown.type("\x15vramledger model builtin:Qwen3-0\t--json | grep '\"id\"'\n")
        assert '"Qwen/Qwen3-0.6B"' in shown.until('Qwen/Qwen3-0.6B"')


def test_fish_is_given_the_same(place: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("no fish here")
    script = subprocess.run(
        ["vramledger", "completion", "fish"],
        env=environment(place),
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    ).stdout
    (place / "vramledger.fish").write_text(script, encoding="utf-8")
    asked = (
        "source vramledger.fish; complete -C 'vramledger rollo'; "
        "complete -C 'vramledger plan builtin:gpt-oss-1'; complete -C 'vramledger plan x --device h200'"
    )
    done = subprocess.run(
        ["fish", "--no-config", "-c", asked],
        env=environment(place),
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    found = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["rollout", "builtin:gpt-oss-120b", "H200-141GB"], done.stderr
