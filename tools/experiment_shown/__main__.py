"""Whole capacity experiments on real engines, and the page that shows them.

    python -m tools.experiment_shown run --engine llamacpp|vllm [--way straight|gateway] [--venv VENV] [--work DIR] [OPTION ...]
    python -m tools.experiment_shown page [--work DIR] [--page FILE]

`run` leaves DIR/ENGINE/WAY, the folder of `vramledger experiment`, which gets the options behind `--` as well (`-- --quick`, `-- --steady 300`); one that
was ended in the middle goes on. VENV holds a vLLM (its CPU build will do). `page` writes what is in DIR as Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tools.experiment_shown.page import page
from tools.experiment_shown.running import WAYS, experiment_files

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"


def main() -> int:
    """Ends with the worst code of what it ran."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--engine", choices=("llamacpp", "vllm"), default="llamacpp")
    parser.add_argument("--way", choices=tuple(WAYS))
    parser.add_argument("--venv", type=Path)
    parser.add_argument("--work", type=Path, default=Path("build/experiments"))
    parser.add_argument("--page", type=Path, default=PAGE)
    words = sys.argv[1:]
    until = words.index("--") if "--" in words else len(words)
    options, more = parser.parse_args(words[:until]), words[until + 1 :]
    if options.what == "page":
        options.page.write_text(page(experiment_files(options.work)), encoding="utf-8")
        return 0
    codes = []
    for way in [options.way] if options.way else list(WAYS):
        out = options.work.absolute() / options.engine / way
        out.parent.mkdir(parents=True, exist_ok=True)
        print(f"{options.engine}, {way}: {out}", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            codes.append(WAYS[way](options.engine, Path(temporary), options.venv, out, more))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
