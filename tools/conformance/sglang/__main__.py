"""Ask releases of SGLang what they pick and size, and compare.

    python -m tools.conformance.sglang --releases DIR [--record FILE]

DIR holds one folder a release, named by its version, with its wheel unpacked (`pip download --no-deps sglang==0.5.23`
and `unzip`); nothing of it is installed, and no torch or device is needed. With --record the answers are written,
compressed, for the tests.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.conformance.sglang import defaults, pools
from tools.conformance.sglang.compare import differences
from tools.conformance.sglang.release import Release

KINDS = {"defaults": defaults, "pools": pools}


def answers(folder: Path) -> Iterator[dict[str, Any]]:
    """Every question that a release has an answer to."""
    release = Release(folder)
    for kind, module in KINDS.items():
        for question in module.questions(folder.name):
            found = module.answer(release, question)
            yield {"version": folder.name, "kind": kind, "question": question, "answer": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--releases", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="versions, all folders without it")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    folders = sorted(path for path in options.releases.iterdir() if (path / "sglang").is_dir())
    lines, wrong = [], 0
    for folder in folders:
        if options.only and folder.name not in options.only:
            continue
        found = list(answers(folder))
        unequal = [(line, differences(line)) for line in found]
        bad = [(line, what) for line, what in unequal if what]
        print(f"{folder.name}: {len(found)} answers, {len(bad)} differ")
        for line, what in bad[:5]:
            print(f"  {line['question']}: {what}")
        wrong += len(bad)
        lines += found
    if options.record:
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        options.record.write_bytes(gzip.compress(text.encode(), mtime=0))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
