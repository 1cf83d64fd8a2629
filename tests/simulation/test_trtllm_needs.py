"""Blocks that TensorRT-LLM's requests need, and how prompts are cut: by hand, and beside an independent reading of the rule."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from vramledger.simulation.schedulers.trtllm_chunks import Context, context_chunks
from vramledger.simulation.schedulers.trtllm_needs import (
    blocks_of_first_step,
    blocks_of_next_step,
    blocks_to_completion,
)

lengths = st.integers(1, 5_000)
sizes = st.sampled_from([16, 32, 64, 128])


def test_a_new_request_of_1000_and_500_needs_47_blocks_of_32_and_7_with_40_held() -> None:
    def need(held: int) -> int:
        return blocks_to_completion(
            prompt_tokens=1000, max_output_tokens=500, held_blocks=held, block_tokens=32
        )

    assert (need(0), need(40)) == (47, 7)


def test_beams_share_the_contexts_full_blocks() -> None:
    # 31 full blocks are shared; the 16 that hold the prompt's rest and the output are each beam's own.
    assert (
        blocks_to_completion(
            prompt_tokens=1000, max_output_tokens=500, held_blocks=0, block_tokens=32, beams=4
        )
        == 31 + 16 * 4
    )


def test_a_window_that_slides_needs_a_block_more() -> None:
    def need(window: int) -> int:
        return blocks_to_completion(
            prompt_tokens=1000, max_output_tokens=500, held_blocks=0, block_tokens=32, window_tokens=window
        )

    assert (need(1024), need(2000)) == (33, 47)


@given(lengths, lengths, sizes)
def test_what_is_needed_falls_by_what_is_held_to_nothing(prompt: int, output: int, size: int) -> None:
    whole = math.ceil((prompt + output) / size)
    for held in range(whole + 1):
        assert (
            blocks_to_completion(
                prompt_tokens=prompt, max_output_tokens=output, held_blocks=held, block_tokens=size
            )
            == whole - held
        )


@given(lengths, lengths, sizes)
def test_steps_to_the_end_take_what_completion_needs(prompt: int, output: int, size: int) -> None:
    taken = blocks_of_first_step(prompt_tokens=prompt, block_tokens=size)
    for done in range(output):
        taken += blocks_of_next_step(
            current_tokens=prompt + done, output_tokens_left=output - done, block_tokens=size
        )
    assert taken == blocks_to_completion(
        prompt_tokens=prompt, max_output_tokens=output, held_blocks=0, block_tokens=size
    )


def test_a_planned_ahead_step_looks_two_tokens_ahead_but_not_past_the_end() -> None:
    assert blocks_of_next_step(current_tokens=63, output_tokens_left=9, block_tokens=32, steps=2) == 1
    assert blocks_of_next_step(current_tokens=64, output_tokens_left=9, block_tokens=32, steps=1) == 1
    assert blocks_of_next_step(current_tokens=63, output_tokens_left=1, block_tokens=32, steps=2) == 0


def test_prompts_take_what_is_left_in_order_and_a_cut_one_whole_blocks() -> None:
    assert context_chunks([Context(300, 0), Context(900, 0), Context(50, 0)], 1000, 1000, 64) == [
        300,
        640,
        50,
    ]


def test_a_cached_prefix_costs_nothing_but_a_cut_chunk_is_no_longer_for_it() -> None:
    assert context_chunks([Context(1000, 960), Context(500, 0)], 512, 512, 32) == [40, 448]
    # 2000 tokens of which 600 are cached: the chunk of 512 is computed behind the prefix.
    assert context_chunks([Context(2000, 600)], 512, 512, 32) == [512]


@given(
    st.lists(
        st.tuples(lengths, st.integers(0, 5_000)).map(
            lambda pair: Context(pair[0], min(pair[1], pair[0] - 1))
        ),
        max_size=8,
    ),
    st.integers(0, 4_000),
    sizes,
)
def test_chunks_never_exceed_the_steps_tokens_or_the_prompt(
    contexts: list[Context], capacity: int, size: int
) -> None:
    chunks = context_chunks(contexts, capacity, 4_000, size)
    assert sum(chunks) <= capacity
    for context, chunk in zip(contexts, chunks, strict=True):
        left = context.tokens - context.ready_tokens
        assert 0 <= chunk <= left
        assert chunk == left or chunk % size == 0
