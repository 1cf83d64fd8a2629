"""Run random allocations through vLLM's own KVCacheManager and through our block pool, and compare every answer.

    python -m tools.fidelity.vllm_blocks --venv DIR [--seeds N] [--only WORD] [--record FILE]

Compared are the tokens of each hit, who gets room and who does not, every block table by block number, and the order of the free queue.
Ends with 1 where anything differs. VLLM_PATH in the environment puts the unpacked wheel of another release before the venv's own: its
block manager needs nothing compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.conformance.engine import python_of
from tools.fidelity.vllm_blocks.cases import Case, cases
from tools.fidelity.vllm_blocks.ours import lines_of
from tools.fidelity.vllm_scheduler.recording import write

PROBE = Path(__file__).resolve().parent / "probe.py"
ADMISSION = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--record", type=Path, help="keep vLLM's answers here, for the tests")
    options = parser.parse_args()
    asked = [case for case in cases(options.seeds, steps=options.steps) if options.only in case["name"]]
    line, failures = compared(options.venv, asked, record=options.record)
    print(line)
    return 1 if failures else 0


def compared(venv: Path, asked: list[Case], *, record: Path | None = None) -> tuple[str, int]:
    """The summary line, and how many cases differ. Prints each difference."""
    answers = answers_of(venv, asked)
    version = next(answers)["ready"]
    minor = int(version.split(".")[1])
    failures = admissions = hits = 0
    kept = []
    for case, answer in zip(asked, answers, strict=True):
        theirs = answer["lines"]
        if theirs is None:
            continue
        kept.append((case, theirs))
        admissions += sum(line[0] == ADMISSION and line[-2] for line in theirs)
        hits += sum(line[2] for line in theirs if line[0] == ADMISSION and line[-2])
        ours = lines_of(case, minor)
        if ours != theirs:
            failures += 1
            place = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(ours))
            print(
                f"DIFFERS  {case['name']}  line {place}: ours {ours[place : place + 1]}, theirs {theirs[place : place + 1]}"
            )
    if record is not None:
        write(record, kept)
    return (
        f"vLLM {version}'s block manager: {len(kept) - failures} of {len(kept)} random runs equal, block by block "
        f"({admissions:,} admissions, {hits:,} tokens hit)"
    ), failures


def answers_of(venv: Path, asked: list[Case]) -> Iterator[dict[str, Any]]:
    """First {"ready": version}, then one answer a case. Raises SystemExit where vLLM stops early."""
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch) / "cases.json"
        written.write_text(json.dumps(asked), encoding="utf-8")
        with subprocess.Popen(
            [str(python_of(venv)), str(PROBE), str(written)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.environ.get("VLLM_PATH", "")},
        ) as process:
            assert process.stdout is not None
            count = 0
            for line in process.stdout:
                if line.startswith("{"):
                    count += 1
                    yield json.loads(line)
        if count <= len(asked):
            raise SystemExit(
                f"vLLM answered {max(count - 1, 0)} of {len(asked)} cases (exit code {process.returncode})"
            )


if __name__ == "__main__":
    sys.exit(main())
