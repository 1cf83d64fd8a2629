"""A command as a page shows it: as long as a reader's line, and still to be pasted into a shell."""

from __future__ import annotations

import re
from collections.abc import Iterator

WIDTH = 88
_WORD = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")


def shown(command: str) -> str:
    """`command` after a prompt, broken before options and pipes where it is long."""
    lines = ["$"]
    for part in _parts(command):
        if len(lines[-1]) + 1 + len(part) + len(" \\") <= WIDTH or lines[-1] in ("$", "   "):
            lines[-1] += f" {part}"
        else:
            lines.append(f"    {part}")
    return " \\\n".join(lines)


def _parts(command: str) -> Iterator[str]:
    """What must not be torn apart: an option with its values, a pipe with its program."""
    now: list[str] = []
    is_piped = False
    for word in _WORD.findall(command):
        if now and (word == "|" or (word.startswith("-") and not is_piped)):
            yield " ".join(now)
            now = []
        is_piped = is_piped or word == "|"
        now.append(word)
    yield " ".join(now)
