"""What holds for every engine's scheduler on any workload, and short stories of SGLang's and TensorRT-LLM's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.choice import scheduler_for
from vramledger.simulation.schedulers.protocol import Scheduler, StepPlan
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.schedulers.trtllm_needs import blocks_to_completion
from vramledger.simulation.settings import SchedulerSettings, Scheduling

BLOCK = 8
OTHERS = (
    Scheduling.SGLANG,
    Scheduling.TRTLLM_NO_EVICT,
    Scheduling.TRTLLM_MAX_UTILIZATION,
    Scheduling.STATIC_BATCH,
)
NEVER_PREEMPT = (Scheduling.TRTLLM_NO_EVICT, Scheduling.STATIC_BATCH)


def scheduler(scheduling: Scheduling, *, blocks: int = 40, **limits: Any) -> Scheduler:
    values = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 10_000} | limits
    layout = PoolLayout(num_blocks=blocks, groups=(BlockGroup(block_tokens=BLOCK),))
    return scheduler_for(SchedulerSettings(scheduling=scheduling, **values), BlockPool(layout))


def sequences(*lengths: tuple[int, int, int], shared_blocks: int = 0) -> list[Sequence]:
    """Sequences of (prompt, output, most output) tokens; the first `shared_blocks` blocks are everyone's."""
    return [
        Sequence(
            identity=number,
            number=number,
            prompt_tokens=prompt,
            output_tokens=output,
            max_output_tokens=most,
            keys=[
                place if place < min(shared_blocks, prompt // BLOCK) else -1000 * (number + 1) - place
                for place in range((prompt + output - 1) // BLOCK)
            ],
        )
        for number, (prompt, output, most) in enumerate(lengths)
    ]


def serve(
    engine: Scheduler,
    waiting: list[Sequence],
    seen: Callable[[StepPlan], None] | None = None,
    *,
    gap: int = 1,
) -> list[tuple[int, ...]]:
    """Sends a sequence every `gap` steps and runs all to their end; what each step was, as numbers."""
    log: list[tuple[int, ...]] = []
    plans: list[StepPlan] = []
    to_send, open_ones = list(waiting), len(waiting)
    while open_ones:
        assert len(log) < 20_000, "no end"
        while to_send and len(log) >= gap * (len(waiting) - len(to_send)):
            engine.submit(to_send.pop(0))
        plan = engine.step(len(log))
        log.append(tuple(n for share in plan.scheduled for n in (share.sequence.number, share.tokens)))
        if seen is not None:
            seen(plan)
        if plan.scheduled:
            plans.append(plan)
        if plans and (not plan.scheduled or len(plans) > engine.lag_steps):
            open_ones -= len(engine.after_step(plans.pop(0)))
    return log


tokens = st.integers(1, 80)
workloads = st.lists(
    st.tuples(tokens, tokens, st.integers(0, 100)).map(lambda row: (row[0], row[1], row[1] + row[2])),
    min_size=1,
    max_size=10,
)
limits = st.fixed_dictionaries(
    {
        "max_num_seqs": st.sampled_from([1, 3, 8]),
        "max_num_batched_tokens": st.sampled_from([16, 64, 256]),
        "async_scheduling": st.booleans(),
        "prefix_caching": st.booleans(),
        "initial_new_token_ratio": st.sampled_from([0.7, 0.05]),
        "min_new_token_ratio": st.just(0.02),
        "clip_max_new_tokens": st.sampled_from([4, 4096]),
    }
)


@pytest.mark.parametrize("scheduling", OTHERS)
@given(lengths=workloads, limit=limits, gap=st.integers(0, 3), shared=st.integers(0, 6))
@settings(max_examples=40, deadline=None)
def test_every_request_ends_once_with_all_its_tokens_and_gives_its_blocks_back(
    scheduling: Scheduling, lengths: list[tuple[int, int, int]], limit: dict[str, Any], gap: int, shared: int
) -> None:
    engine = scheduler(scheduling, **limit)
    asked = sequences(*lengths, shared_blocks=shared)
    computed = [0] * len(asked)
    again = [0] * len(asked)
    furthest = [0] * len(asked)
    preempted = [0] * len(asked)

    def seen(plan: StepPlan) -> None:
        for sequence, tokens, before, _ in plan.scheduled:
            number = sequence.number
            computed[number] += tokens
            again[number] += max(0, min(before + tokens, furthest[number]) - before)
            furthest[number] = max(furthest[number], before + tokens)
        for sequence in plan.preempted:
            preempted[sequence.number] += 1
        assert engine.running_count <= limit["max_num_seqs"]
        if scheduling is not Scheduling.SGLANG:
            assert sum(share.tokens for share in plan.scheduled) <= max(
                limit["max_num_batched_tokens"], limit["max_num_seqs"]
            )

    serve(engine, asked, seen, gap=gap)
    pool = engine.pool
    assert (pool.used_blocks, engine.running_count, engine.waiting_count) == (0, 0, 0)
    for sequence in asked:
        assert sequence.is_done
        assert sequence.generated_tokens == sequence.output_tokens
        assert sequence.preemptions == preempted[sequence.number]
        if scheduling in NEVER_PREEMPT:
            assert sequence.preemptions == 0
        if not limit["async_scheduling"] and not (shared and limit["prefix_caching"]):
            # Tokens are computed once, and those that were lost once more: none are made up, none are left out.
            assert (
                computed[sequence.number]
                == sequence.all_tokens - sequence.hit_tokens + again[sequence.number]
            )


@pytest.mark.parametrize("scheduling", OTHERS)
@given(lengths=workloads, limit=limits)
@settings(max_examples=10, deadline=None)
def test_the_same_input_gives_the_same_steps(
    scheduling: Scheduling, lengths: list[tuple[int, int, int]], limit: dict[str, Any]
) -> None:
    first, second = (
        serve(scheduler(scheduling, **limit), sequences(*lengths, shared_blocks=3)) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("scheduling", NEVER_PREEMPT)
@given(lengths=workloads, limit=limits)
@settings(max_examples=25, deadline=None)
def test_without_eviction_all_that_runs_can_be_completed_in_what_is_free(
    scheduling: Scheduling, lengths: list[tuple[int, int, int]], limit: dict[str, Any]
) -> None:
    engine = scheduler(scheduling, **limit)

    def seen(_: StepPlan) -> None:
        promised = sum(
            blocks_to_completion(
                prompt_tokens=sequence.prompt_tokens,
                max_output_tokens=sequence.max_output_tokens,
                held_blocks=len(engine.pool.block_tables(sequence.identity)[0]),
                block_tokens=BLOCK,
            )
            for sequence in engine.running
        )
        assert promised <= engine.pool.free_blocks

    serve(engine, sequences(*lengths), seen)


def test_sglang_computes_prompts_before_it_decodes_and_cuts_the_last_one() -> None:
    log = serve(
        scheduler(Scheduling.SGLANG, max_num_batched_tokens=48), sequences((40, 3, 3), (40, 3, 3)), gap=0
    )
    # 40 + 8 of the second prompt, its rest, then both decode.
    assert log == [(0, 40, 1, 8), (1, 32), (0, 1, 1, 1), (0, 1, 1, 1)]


def test_sglang_lets_the_shortest_output_give_way_to_the_end_of_the_queue() -> None:
    # Ten pages. Each holds 3 for its prompt and the first tokens; the fourth pages do not fit all.
    engine = scheduler(
        Scheduling.SGLANG,
        blocks=10,
        initial_new_token_ratio=0.01,
        min_new_token_ratio=0.01,
        clip_max_new_tokens=1,
    )
    asked = sequences((20, 16, 16), (20, 16, 16), (20, 16, 16), (8, 2, 2))
    gone: list[int] = []
    log = serve(engine, asked, lambda plan: gone.extend(one.number for one in plan.preempted), gap=2)
    assert gone[0] == 2  # The last to come has generated least.
    assert [one.preemptions for one in asked][:2] == [0, 0]
    again = [step for step, work in enumerate(log) if work[:1] == (2,) and work[1] > 1]
    assert len(again) == 2
    assert asked[3].is_done


def test_sglang_looks_at_the_queue_again_only_when_somebody_left() -> None:
    # The second needs 40 + 40 + a page: not before the first one has ended, however much is free then.
    log = serve(scheduler(Scheduling.SGLANG, blocks=16), sequences((40, 10, 10), (40, 40, 40)), gap=0)
    assert log[:11] == [(0, 40), *[(0, 1)] * 9, (1, 40)]


def test_without_eviction_the_first_that_does_not_fit_holds_up_those_behind_it() -> None:
    # 15 blocks: the first needs 8 to its end, the second 10, the third 1.
    log = serve(
        scheduler(Scheduling.TRTLLM_NO_EVICT, blocks=15),
        sequences((40, 8, 24), (60, 4, 20), (4, 1, 4)),
        gap=0,
    )
    assert log[0] == (0, 40)
    assert log[8] == (1, 60, 2, 4)


def test_a_bound_larger_than_the_output_is_reserved_but_never_used() -> None:
    def together(most: int) -> int:
        engine = scheduler(Scheduling.TRTLLM_NO_EVICT, blocks=20)
        peak = [0]

        def seen(_: StepPlan) -> None:
            peak[0] = max(peak[0], engine.running_count)

        serve(engine, sequences(*[(16, 4, most)] * 6), seen, gap=0)
        return peak[0]

    assert together(4) == 6  # 3 blocks each.
    assert together(64) == 2  # 10 blocks each.


def test_most_utilisation_pauses_the_last_one_that_started_and_computes_it_anew() -> None:
    engine = scheduler(Scheduling.TRTLLM_MAX_UTILIZATION, blocks=6, prefix_caching=False)
    asked = sequences((16, 12, 12), (16, 12, 12))
    paused: list[int] = []
    serve(engine, asked, lambda plan: paused.extend(one.number for one in plan.preempted), gap=0)
    assert paused == [1]
    assert asked[0].preemptions == 0


def test_a_static_batch_takes_nobody_until_its_last_one_ended() -> None:
    log = serve(
        scheduler(Scheduling.STATIC_BATCH, max_num_batched_tokens=256),
        sequences((8, 2, 2), (8, 6, 6), (8, 1, 1)),
        gap=2,
    )
    started = [step for step, work in enumerate(log) if 8 in work[1::2]]
    assert started == [0, 2, 8]


def test_a_request_waits_a_step_for_a_block_that_another_computes() -> None:
    log = serve(
        scheduler(Scheduling.TRTLLM_NO_EVICT), sequences((40, 3, 3), (40, 3, 3), shared_blocks=4), gap=0
    )
    # The second starts a step later and finds 32 tokens there.
    assert log[:2] == [(0, 40), (0, 1, 1, 8)]


def test_sglang_holds_once_what_was_computed_side_by_side() -> None:
    engine = scheduler(Scheduling.SGLANG, max_num_batched_tokens=256)
    held: list[int] = []
    serve(
        engine,
        sequences((40, 3, 3), (40, 3, 3), shared_blocks=4),
        lambda _: held.append(engine.pool.used_blocks),
        gap=0,
    )
    # Both prompts are computed in the first step; then four of their five blocks are the same ones.
    assert held[:2] == [10, 8]
