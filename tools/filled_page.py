"""A page that a tool fills: written anew, or only held against what it should be."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]


def keep(page: Path, new: str, *, is_check: bool) -> bool:
    """Whether the page was stale; says so, and writes it where it may."""
    if page.read_text(encoding="utf-8") == new:
        return False
    print(f"{page.relative_to(ROOT)} {'is out of date: make docs' if is_check else 'filled'}")
    if not is_check:
        page.write_text(new, encoding="utf-8")
    return True
