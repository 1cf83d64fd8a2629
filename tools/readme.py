"""Fill the README with true output: commands, and the summary of the accuracy page.

    python -m tools.readme [--check]

A block is fenced between `<!-- $ COMMAND -->` (or `<!-- accuracy -->`) and `<!-- end -->`; the command is one of
ours and runs in the repository. `--check` writes nothing and exits 1 where a block is out of date.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"(<!-- (\$ [^\n]+|accuracy) -->\n).*?(<!-- end -->)", re.DOTALL)


def output_of(command: str) -> str:
    """What one of our commands prints, run in this process from the repository's root."""
    from vramledger.cli import main

    words = shlex.split(command)
    if words[:1] != ["vramledger"]:
        raise SystemExit(f"not a command of ours: {command}")
    out = io.StringIO()
    here = Path.cwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main(words[1:])
    finally:
        os.chdir(here)
    return out.getvalue().rstrip("\n")


def accuracy_table() -> str:
    """The summary table of docs/accuracy.md."""
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    return "\n".join(line for line in text.partition("## Worst")[0].splitlines() if line.startswith("|"))


def filled(text: str) -> str:
    """`text` with every block made anew."""

    def block(match: re.Match[str]) -> str:
        what = match.group(2)
        if what == "accuracy":
            body = f"\n{accuracy_table()}\n\n"
        else:
            command = what.removeprefix("$ ")
            body = f"```\n$ {command}\n{output_of(command)}\n```\n"
        return match.group(1) + body + match.group(3)

    return _BLOCK.sub(block, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether the README is up to date")
    options = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    new = filled(text)
    if options.check:
        print(
            "README.md is up to date" if new == text else "README.md is out of date: python -m tools.readme"
        )
        return int(new != text)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
