"""Follow a page of docs/extending step by step on a copy of the source, and fill in what its commands then print.

A step is a comment before a fenced block: `<!-- file: PATH -->` writes the block as a file of the repository, `<!-- into: PATH after: LINE -->`
puts it behind the one line that contains LINE. `<!-- $ COMMAND -->` to `<!-- end -->` shows one of our commands, run after the steps above it;
what follows a ` | ` in it is left to a shell. `tools.readme` fills such pages too.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tools.shown import shown

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(sorted((ROOT / "docs" / "extending").glob("*.md")))
TIMEOUT_S = 120
_STEP = re.compile(
    r"<!-- file: (?P<file>\S+) -->\n```\w*\n(?P<text>.*?)```\n"
    r"|<!-- into: (?P<into>\S+) after: (?P<line>[^\n]+) -->\n```\w*\n(?P<more>.*?)```\n"
    r"|<!-- \$ (?P<command>[^\n]+) -->\n.*?<!-- end -->",
    re.DOTALL,
)


def filled(text: str, copy: Path) -> str:
    """`text` with what its commands print after its steps, which are done in `copy`, a copy of the source.

    Raises SystemExit for a step that cannot be done and for a command that prints nothing.
    """

    def step(match: re.Match[str]) -> str:
        if match["file"]:
            target = _inside(copy, match["file"])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(match["text"], encoding="utf-8")
        elif match["into"]:
            _insert(_inside(copy, match["into"]), match["line"], match["more"])
        else:
            command = match["command"]
            block = f"```console\n{shown(command)}\n{_printed(command, copy)}\n```\n"
            return f"<!-- $ {command} -->\n{block}<!-- end -->"
        return match[0]

    return _STEP.sub(step, text)


def copied(folder: Path) -> Path:
    """A copy of the source and the examples in `folder`, to be changed."""
    copy = folder / "repository"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "examples", copy / "examples")
    return copy


def _inside(copy: Path, name: str) -> Path:
    target = (copy / name).resolve()
    if not target.is_relative_to(copy.resolve()):
        raise SystemExit(f"a step writes outside of the repository: {name}")
    return target


def _insert(target: Path, line: str, more: str) -> None:
    lines = target.read_text(encoding="utf-8").splitlines(keepends=True)
    at = [number for number, text in enumerate(lines, 1) if line in text]
    if len(at) != 1:
        raise SystemExit(f"{target.name}: {len(at)} lines contain {line!r}")
    target.write_text("".join([*lines[: at[0]], more, *lines[at[0] :]]), encoding="utf-8")


def _printed(command: str, copy: Path) -> str:
    ours, pipe, rest = command.partition(" | ")
    name, *words = shlex.split(ours)
    if name != "vramledger":
        raise SystemExit(f"not a command of ours: {command}")
    here = {**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
    done = _run([sys.executable, "-m", "vramledger", *words], copy, here, None)
    out = done.stdout
    if pipe:
        out = _run(["bash", "-o", "pipefail", "-c", rest], copy, here, out).stdout
    if not out.strip():
        raise SystemExit(f"it prints nothing: {command}\n{done.stderr}")
    return out.rstrip("\n")


def _run(
    words: list[str], copy: Path, here: dict[str, str], given: str | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=copy, env=here, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
