"""Figures of public traces as their READMEs state them, beside what our readers and statistics find.

    python -m tools.trace_figures [--data FOLDER]

FOLDER has a folder for each trace, as data/traces has; what is not there is left out. Exit 1 where a figure differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columnar.statistics import describe
from vramledger.workload.facts import WorkloadFacts


class Stated(NamedTuple):
    """What is stated of a trace: a field of the facts (a path), the number, and how many digits it was rounded to."""

    file: str
    figures: tuple[tuple[str, float, int], ...]
    options: Mapping[str, Any] = MappingProxyType({})


PLAIN = {"link_turns": False}
STATED = (
    Stated(
        "azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz",
        (
            ("requests", 19_366, 0),
            ("rate_per_s", 5.530, 3),
            ("arrival_cv", 1.094, 3),
            ("prompt_tokens.total", 22_361_870, 0),
            ("prompt_tokens.mean", 1_154.7, 1),
            ("prompt_tokens.p95", 4_083, 0),
            ("prompt_tokens.p99", 4_142, 0),
            ("output_tokens.total", 4_088_665, 0),
            ("output_tokens.p99", 601, 0),
        ),
    ),
    Stated(
        "mooncake-fast25/conversation_trace.first-1768500ms.jsonl.gz",
        (
            ("requests", 5_606, 0),
            ("arrival_cv", 2.92, 2),
            ("prompt_tokens.total", 72_511_056, 0),
            ("output_tokens.total", 1_937_157, 0),
            ("reuse.prompt_blocks", 144_280, 0),
            ("reuse.reusable_blocks", 49_091, 0),
        ),
    ),
    Stated(
        "mooncake-fast25/synthetic_trace.jsonl.gz",
        (
            ("requests", 3_993, 0),
            ("arrival_cv", 1.01, 2),
            ("prompt_tokens.total", 61_194_628, 0),
            ("reuse.prompt_blocks", 121_877, 0),
            ("reuse.reusable_blocks", 77_953, 0),
        ),
    ),
    Stated(
        "agentic-coding-claude-code/sessions.jsonl.gz",
        (
            ("requests", 22_892, 0),
            ("conversations", 346, 0),
            ("prompt_tokens.mean", 122_034, 0),
            ("prompt_tokens.max", 880_502, 0),
            ("output_tokens.mean", 444, 0),
            ("output_tokens.max", 18_195, 0),
            ("reuse.share", 0.9627, 4),
        ),
        PLAIN,
    ),
    Stated(
        "agent-runs-lmcache/requests.jsonl.gz",
        (("conversations", 69, 0), ("num_tenants", 3, 0)),
        PLAIN | {"on_bad_row": "skip"},
    ),
    Stated(
        "arxiv-summarization-lengths/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz",
        (
            ("requests", 28_257, 0),
            ("prompt_tokens.mean", 2_588, 0),
            ("prompt_tokens.p50", 2_730, 0),
            ("output_tokens.mean", 291, 0),
            ("output_tokens.max", 4_056, 0),
        ),
    ),
    Stated(
        "vllm-measured-runs/RTX4090_Llama-3.1-8B/workload.jsonl.gz",
        (
            ("requests", 300, 0),
            ("arrival_cv", 0.94, 2),
            ("prompt_tokens.total", 257_239, 0),
            ("output_tokens.total", 195_753, 0),
            ("reuse.prompt_blocks", 15_942, 0),
            ("reuse.reusable_blocks", 1_220, 0),
        ),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("data/traces"))
    data: Path = parser.parse_args().data
    differing = 0
    for stated in STATED:
        path = data / stated.file
        if not path.exists():
            continue
        start = time.perf_counter()
        facts = describe(read_workload(path, **stated.options))
        print(f"{stated.file} ({time.perf_counter() - start:.1f} s)")
        for name, wanted, digits in stated.figures:
            found = _at(facts, name)
            is_same = round(found, digits) == wanted
            differing += not is_same
            print(
                f"  {name:24} stated {wanted:>14,}  found {found:>16,.{digits}f}{'' if is_same else '  DIFFERS'}"
            )
    return 1 if differing else 0


def _at(facts: WorkloadFacts, name: str) -> float:
    value: Any = facts
    for part in name.split("."):
        value = getattr(value, part)
    return float(value)


if __name__ == "__main__":
    sys.exit(main())
