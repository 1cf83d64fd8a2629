"""How TensorRT-LLM cuts prompts into chunks, first come first served.

Rules of `microBatchScheduler.cpp` (setCtxRequestsChunkSize, kFIRST_COME_FIRST_SERVED) and of its reuse-adjusted cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Context(NamedTuple):
    """A prompt to be computed: `tokens` are left of it, of which `ready_tokens` at the front come from the cache."""

    tokens: int
    ready_tokens: int


def context_chunks(
    contexts: Iterable[Context], capacity_tokens: int, max_chunk_tokens: int, unit_tokens: int
) -> list[int]:
    """Tokens to compute of each prompt, in order; 0 is not now.

    Each takes what it needs of what is left; one that is cut is cut to whole blocks. A cached prefix costs nothing, but a cut chunk is
    not longer for it: the engine moves the chunk behind the prefix.
    """
    chunks = []
    left = capacity_tokens
    for context in contexts:
        need = context.tokens - context.ready_tokens
        size = context.tokens if need <= left else left
        if _cost(size, context) > max_chunk_tokens:
            size = min(max_chunk_tokens, context.tokens)
        if size < context.tokens:
            size = size // unit_tokens * unit_tokens
        cost = _cost(size, context)
        left -= cost
        chunks.append(cost)
    return chunks


def _cost(size: int, context: Context) -> int:
    """Tokens that a chunk of `size` computes."""
    if size == 0 or context.ready_tokens <= 0 or context.ready_tokens + size < context.tokens:
        return size
    return max(0, context.tokens - context.ready_tokens)
