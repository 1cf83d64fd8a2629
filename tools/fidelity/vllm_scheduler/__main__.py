"""Run random workloads through vLLM's own Scheduler and through ours, and compare them at every step.

    python -m tools.fidelity.vllm_scheduler --venv DIR [--cases N] [--seed S] [--only WORD] [--record FILE]
                                          [--sources DIR]

Compared are: who gets how many tokens, in which order; who is admitted, and with how many cached tokens; who is preempted; the order
of both queues; every block table, by block number; and the free blocks. --sources names a folder with the unpacked package of another
release (from 0.26), whose scheduler is then run on the installed one's libraries. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tools.fidelity.vllm_scheduler.cases import cases
from tools.fidelity.vllm_scheduler.compare import compact, counted, first_difference
from tools.fidelity.vllm_scheduler.engine import ask
from tools.fidelity.vllm_scheduler.ours import steps_of
from tools.fidelity.vllm_scheduler.recording import write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--record", type=Path, help="keep vLLM's steps here, for the tests")
    parser.add_argument("--sources", type=Path, help="a folder with another release's package vllm")
    options = parser.parse_args()
    line, failures, _ = compared(
        options.venv,
        options.cases,
        seed=options.seed,
        only=options.only,
        record=options.record,
        sources=options.sources,
    )
    print(line)
    return 1 if failures else 0


def compared(
    venv: Path,
    count: int,
    *,
    seed: int = 0,
    only: str = "",
    record: Path | None = None,
    sources: Path | None = None,
) -> tuple[str, int, Counter[str]]:
    """The summary line, how many cases differ, and what the cases had in them. Prints each difference."""
    asked = [case for case in cases(count, seed=seed) if only in case["name"]]
    answers = ask(venv, asked, sources=sources)
    version = next(answers)["ready"]
    total: Counter[str] = Counter()
    kept = []
    failures = skipped = 0
    for case, answer in zip(asked, answers, strict=True):
        if "lacks" in answer:
            skipped += 1
            continue
        if "error" in answer:
            words = f"vLLM failed: {answer['error']} ({answer['where']})"
        else:
            total.update(counted(answer["steps"]))
            kept.append((case, [compact(step) for step in answer["steps"]]))
            words = first_difference(steps_of(case, version), answer["steps"])
        if words:
            failures += 1
            print(f"DIFFERS  {case['name']}  {words[:1000]}")
    if record is not None:
        write(record, kept)
    line = (
        f"vLLM {version}'s scheduler: {len(asked) - skipped - failures} of {len(asked) - skipped} random workloads equal at every step "
        f"({total['steps']:,} steps, {total['tokens']:,} tokens, {total['admissions']:,} admissions, {total['hits']:,} with hits, "
        f"{total['preemptions']:,} preemptions)"
    )
    return line, failures, total


if __name__ == "__main__":
    sys.exit(main())
