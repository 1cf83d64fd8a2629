"""Blocks of code in the documentation, and what each asks for: to be run, to have been made by a command, or not to be run, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from markdown_it import MarkdownIt
from msgspec import Struct

from tools import extending

ROOT = Path(__file__).resolve().parents[2]
# Why a block of commands may be left alone. Its lines are still read: see `spelling`.
REASONS = (
    "needs a GPU",
    "needs a live engine",
    "needs a container engine",
    "needs the network",
    "takes minutes",
    "names files of yours",
    "serves until it is stopped",
)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
_RUN_BY = re.compile(r"<!-- run by (tests/\S+) -->\s*\Z")
_MADE = re.compile(r"<!-- \$ [^\n]+ -->\s*\Z")
_SHELL = ("sh", "bash", "shell", "zsh", "fish")
# A line of a block without a language that begins so is a command.
_COMMAND = re.compile(
    r"^\s*(\$ |(vramledger|pip|uv|make|python3?|curl|envoy|docker|podman|kubectl|vllm|llama-server|prometheus|source|export|eval) )"
)


class Kind(StrEnum):
    """What becomes of a block."""

    RUN = "run"
    MADE = "made by its command, compared by tests/test_documentation.py"
    ELSEWHERE = "run by a test of its own"
    NOT_RUN = "not run"
    DATA = "no command"


class Block(Struct, frozen=True, kw_only=True):
    """One block; `line` counts from 1, `why` is the reason or the test's path where `kind` has one."""

    page: Path
    line: int
    language: str
    text: str
    kind: Kind
    why: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class UnclearBlock(Exception):
    """A block that does not say what becomes of it; the sentence names its place and what to write."""


def pages() -> list[Path]:
    """The Markdown that people read: READMEs, docs/ and what is deployed."""
    return sorted(
        [*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    )


def blocks(page: Path, text: str | None = None) -> Iterator[Block]:
    """Blocks of one page, in order. Raises UnclearBlock for the first that does not say what becomes of it."""
    text = page.read_text(encoding="utf-8") if text is None else text
    lines = text.splitlines(keepends=True)
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in {"fence", "code_block"} and token.map is not None:
            start = token.map[0]
            before = "".join(lines[max(start - 3, 0) : start])
            yield _block(page, start + 1, token.info.strip(), token.content, before)


def _block(page: Path, line: int, language: str, text: str, before: str) -> Block:
    def made(kind: Kind, why: str = "") -> Block:
        return Block(page=page, line=line, language=language, text=text, kind=kind, why=why)

    if page in extending.PAGES:
        return made(Kind.ELSEWHERE, "tests/test_extending.py")
    where = f"{page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name}:{line}"
    if language == "console":
        if _MADE.search(before) is None:
            raise UnclearBlock(
                f"{where}: put `<!-- $ COMMAND -->` before what a command prints and `<!-- end -->` after it"
            )
        return made(Kind.MADE)
    if language not in (*_SHELL, "python"):
        if not language and any(map(_COMMAND.match, text.splitlines())):
            raise UnclearBlock(f"{where}: a block of commands is fenced and says `sh`")
        return made(Kind.DATA)
    if found := _NOT_RUN.search(before):
        if found[1] not in REASONS:
            raise UnclearBlock(f"{where}: {found[1]!r} is no reason; there are: {', '.join(REASONS)}")
        return made(Kind.NOT_RUN, found[1])
    if found := _RUN_BY.search(before):
        test = ROOT / found[1]
        read = test.read_text(encoding="utf-8") if test.is_file() else ""
        if page.name not in read and f'"{page.parent.name}"' not in read:
            raise UnclearBlock(f"{where}: {found[1]} is no test that reads {page.name} or all of its folder")
        return made(Kind.ELSEWHERE, found[1])
    return made(Kind.RUN)
