"""What vLLM's own Scheduler did on random workloads, recorded by tools/fidelity/vllm_scheduler, done again by ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.fidelity.vllm_scheduler.cases import FAMILIES, cases
from tools.fidelity.vllm_scheduler.compare import compact, counted, first_difference
from tools.fidelity.vllm_scheduler.ours import steps_of
from tools.fidelity.vllm_scheduler.recording import read

RECORDED = sorted((Path(__file__).parent / "recorded").glob("vllm-*-scheduler.jsonl.gz"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_step_is_vllms_own(path: Path) -> None:
    different = []
    for case, steps in read(path):
        ours = [compact(step) for step in steps_of(case)]
        if ours != steps:
            place = next(
                (n for n, pair in enumerate(zip(ours, steps, strict=False)) if pair[0] != pair[1]), -1
            )
            different.append(f"{case['name']} at step {place}")
    assert different == []


def test_the_record_has_what_matters_in_it() -> None:
    seen = {"preemptions": 0, "hits": 0, "tokens": 0}
    kinds = set()
    for path in RECORDED:
        for case, _ in read(path):
            if min(seen.values()) <= 100:
                found = counted(steps_of(case))
                seen = {name: seen[name] + found[name] for name in seen}
            kinds.add((case["name"].partition("-")[0], case["settings"]["async_scheduling"]))
    assert kinds == {(family, is_async) for family in FAMILIES for is_async in (False, True)}
    assert seen["preemptions"] > 100
    assert seen["hits"] > 100


def test_a_case_is_the_same_for_the_same_seed() -> None:
    assert cases(7, seed=3) == cases(7, seed=3)
    assert cases(7, seed=3) != cases(7, seed=4)


def test_a_difference_is_found_and_named() -> None:
    ours = steps_of(cases(1)[0])
    theirs = [dict(step) for step in ours]
    theirs[4]["free"] += 1
    assert first_difference(ours, ours) == ""
    assert first_difference(ours, theirs).startswith("step 4: free: ours")
    assert first_difference(ours[:-1], ours).endswith(f"{len(ours)} of theirs")
