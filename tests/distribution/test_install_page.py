"""docs/install.md says what pyproject.toml does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_table_has_every_extra_with_what_it_brings() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)
    shown = {extra: set(brings.replace("`", "").split(", ")) for extra, _, brings in rows}
    assert shown == {extra: set(brought(lines)) for extra, lines in PROJECT["optional-dependencies"].items()}


def test_what_every_install_brings_is_named() -> None:
    paragraph = re.search(r"That brings (.+)", PAGE)
    assert paragraph is not None
    for line in PROJECT["dependencies"]:
        assert Requirement(line).name in paragraph[1]
    assert f"Python {PROJECT['requires-python'].removeprefix('>=')} or later" in PAGE


def brought(lines: list[str]) -> list[str]:
    """Names as the page has them: distributions, and the extras that an extra consists of."""
    found: list[str] = []
    for requirement in map(Requirement, lines):
        found += sorted(requirement.extras) if requirement.name == "vramledger" else [requirement.name]
    return found
