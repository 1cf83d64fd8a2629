"""What vLLM's own KVCacheManager did on random allocations, recorded by tools/fidelity/vllm_blocks, done again by our pool."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.fidelity.vllm_blocks.cases import SHAPES
from tools.fidelity.vllm_blocks.ours import lines_of
from tools.fidelity.vllm_scheduler.recording import read

RECORDED = sorted((Path(__file__).parent / "recorded").glob("vllm-*-blocks.jsonl.gz"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_block_is_vllms_own(path: Path) -> None:
    minor = int(path.name.split(".")[1])
    shapes: set[str] = set()
    kinds: set[int] = set()
    hits = 0
    for case, theirs in read(path):
        assert lines_of(case, minor) == theirs, case["name"]
        shapes.add(case["name"].rpartition(f"-{case['retention']}-")[0])
        kinds.update(line[0] for line in theirs)
        hits += sum(line[2] > 0 for line in theirs if line[0] == 3)
    assert shapes == set(SHAPES)
    assert kinds == {1, 2, 3, 4}, "a preemption, a growth, an admission and an end"
    assert hits > 100


def test_there_is_a_record() -> None:
    assert RECORDED
