"""Markdown of the reference: text from elsewhere that must mean what it says, tables, headings and their anchors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MEANS_SOMETHING = re.compile(r"([\\<>*|\[\]])")
_CODE = re.compile(r"(`[^`]*`)")


def plain(text: str) -> str:
    """`text` in one line, so that nothing in it is markup but what stands in backticks."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(
        part.replace("|", "\\|") if part.startswith("`") else _MEANS_SOMETHING.sub(r"\\\1", part)
        for part in parts
    )


def code(text: str) -> str:
    """`text` as code in a cell of a table."""
    return f"`{text}`".replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table's lines; cells are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def anchor(heading: str) -> str:
    """Where a heading of words, digits and hyphens is found on its page."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def generated(title: str) -> list[str]:
    """The first lines of a page."""
    return [
        f"# {title}",
        "",
        "<!-- Written by `python -m tools.reference`; change the code that it is made from. -->",
        "",
    ]
