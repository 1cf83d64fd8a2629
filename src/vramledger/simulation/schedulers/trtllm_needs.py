"""How many blocks a request of TensorRT-LLM needs: to its end, and for its next step.

Rules of `cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp` (getRemainingBlocksToCompletion, getNeededBlocksOneStep). The output is the
*requested* maximum, so blocks to completion are a true worst case. Beams share the context's full blocks.
"""

from __future__ import annotations


def blocks_to_completion(
    *,
    prompt_tokens: int,
    max_output_tokens: int,
    held_blocks: int,
    block_tokens: int,
    beams: int = 1,
    window_tokens: int | None = None,
    extra_window_tokens: int = 0,
    current_tokens: int | None = None,
) -> int:
    """Blocks that a request will still take. `held_blocks` are those of its first beam.

    `window_tokens` is the attention window of the pool's layers (None keeps all), `extra_window_tokens` what chunked context
    keeps beyond it, `current_tokens` the length so far (None: the prompt). A window that slides over a block's edge needs one block more.
    """
    whole = prompt_tokens + max_output_tokens
    cap = whole if window_tokens is None else window_tokens + extra_window_tokens
    context = min(prompt_tokens, cap) // block_tokens
    total = _blocks(min(whole, cap), block_tokens)
    extra = 0
    if window_tokens is not None and whole > window_tokens:
        last = _blocks(whole, block_tokens)
        now = _blocks(prompt_tokens if current_tokens is None else current_tokens, block_tokens)
        extra = int(last > now and last > total)
    if held_blocks < context:
        return context - held_blocks + (total - context + extra) * beams
    return (total - held_blocks + extra) * beams


def blocks_of_first_step(
    *, prompt_tokens: int, block_tokens: int, beams: int = 1, cap_tokens: int | None = None
) -> int:
    """Blocks of a request's first context chunk: its whole prompt's, however little of it is computed then."""
    kept = prompt_tokens if cap_tokens is None else min(prompt_tokens, cap_tokens)
    return kept // block_tokens + _blocks(kept % block_tokens, block_tokens) * beams


def blocks_of_next_step(
    *, current_tokens: int, output_tokens_left: int, block_tokens: int, beams: int = 1, steps: int = 1
) -> int:
    """Blocks a generating request takes for its next step; `steps` is 2 where a step is planned before the last one ended."""
    then = current_tokens + min(steps, output_tokens_left)
    return (_blocks(then, block_tokens) - _blocks(current_tokens, block_tokens)) * beams


def _blocks(tokens: int, block_tokens: int) -> int:
    return -(-tokens // block_tokens)
