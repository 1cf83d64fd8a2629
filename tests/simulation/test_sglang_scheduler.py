"""SGLang's scheduler step by step beside the engine's own, on random requests that share beginnings in a short pool.

Recorded by tools/fidelity/sglang_scheduler.py. The engine's cache evicts whole leaves of its tree where this pool evicts blocks, so
that after the first eviction another hit may be found: up to there everything is the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.protocol import StepPlan
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.schedulers.sglang import SglangScheduler
from vramledger.simulation.settings import SchedulerSettings, Scheduling

RECORD = json.loads((Path(__file__).parent / "data" / "sglang_steps.json").read_text(encoding="utf-8"))
CASES = RECORD["cases"]


def requests_of(case: dict[str, Any]) -> list[Sequence]:
    page, names = case["page"], dict[tuple[int, ...], int]()
    sequences = []
    for number, (prompt, output, most) in enumerate(case["requests"]):
        text = (*prompt, *range(-5000 * (number + 1), -5000 * (number + 1) + output))
        sequences.append(
            Sequence(
                identity=number,
                number=number,
                prompt_tokens=len(prompt),
                output_tokens=output,
                max_output_tokens=most,
                keys=[
                    names.setdefault(text[:end], len(names))
                    for end in range(page, len(prompt) + output, page)
                ],
            )
        )
    return sequences


def steps_of(case: dict[str, Any]) -> tuple[list[list[int]], list[Sequence]]:
    page, (initial, least) = case["page"], case["ratio"]
    pool = BlockPool(PoolLayout(num_blocks=case["size"] // page, groups=(BlockGroup(block_tokens=page),)))
    engine = SglangScheduler(
        SchedulerSettings(
            scheduling=Scheduling.SGLANG,
            max_num_seqs=case["max_running"],
            max_num_batched_tokens=case["chunk"] or 1,
            chunked_prefill=case["chunk"] is not None,
            max_model_len=4096,
            max_prefill_tokens=case["max_prefill"],
            prefix_caching=case["radix"],
            initial_new_token_ratio=initial,
            min_new_token_ratio=least,
            async_scheduling=case["overlap"],
        ),
        pool,
    )
    sequences = requests_of(case)
    steps: list[list[int]] = []
    running: list[StepPlan] = []
    sent = 0
    while not all(sequence.is_done for sequence in sequences):
        while sent < len(sequences) and len(steps) >= case["gap"] * sent:
            engine.submit(sequences[sent])
            sent += 1
        plan = engine.step(len(steps))
        steps.append([n for share in plan.scheduled for n in (share.sequence.number, share.tokens)])
        if plan.scheduled:
            running.append(plan)
        if running and (not plan.scheduled or len(running) > engine.lag_steps):
            engine.after_step(running.pop(0))
    return steps, sequences


def test_every_step_is_the_engines_own_until_something_is_evicted() -> None:
    for case in CASES:
        steps, sequences = steps_of(case)
        alike = case["evicted_at"]
        assert steps[:alike] == case["steps"][:alike], case["seed"]
        if alike is None:
            assert [sequence.preemptions for sequence in sequences] == case["retractions"]


def test_most_cases_are_the_same_to_the_end_whatever_was_evicted() -> None:
    same = [case["seed"] for case in CASES if steps_of(case)[0] == case["steps"]]
    assert len(same) >= 0.85 * len(CASES)


def test_the_record_has_retractions_chunks_and_pages() -> None:
    assert sum(sum(case["retractions"]) for case in CASES) > 3
    assert sum(case["evicted_at"] is None for case in CASES) > 20
    assert {case["page"] for case in CASES} == {1, 16}
    assert {case["overlap"] for case in CASES} == {True, False}
    assert {case["chunk"] is None for case in CASES} == {True, False}
