"""Write docs/reference: commands, flags, errors, Python names and documents, from the code itself.

    python -m tools.reference [--check]

`--check` writes nothing and names what is out of date; a page that nothing makes any more is removed.
"""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path

from tools.reference import commands, documents, python_names

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def pages() -> dict[Path, str]:
    """Every page by its path."""
    return {
        FOLDER / name: text for name, text in chain(commands.pages(), python_names.pages(), documents.pages())
    }


def stale(made: dict[Path, str]) -> list[Path]:
    """Pages that differ from what is made, are not there, or that nothing makes."""
    there = {path: path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.md")}
    return sorted(path for path in made.keys() | there.keys() if made.get(path) != there.get(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say what is out of date")
    options = parser.parse_args()
    made = pages()
    found = stale(made)
    for path in found:
        print(f"{path.relative_to(FOLDER.parents[1])} {'is out of date' if options.check else 'written'}")
        if options.check:
            continue
        if path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
    return int(options.check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
