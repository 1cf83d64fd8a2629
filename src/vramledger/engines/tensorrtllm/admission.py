"""Blocks that a request needs to its end, and how many requests the default policy holds for certain.

Source: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp (`getRemainingBlocksToCompletion`), capacityScheduler.cpp.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.units import ceil_div


class Request(Struct, frozen=True, kw_only=True):
    """A request as the scheduler counts it: `new_tokens` is the requested maximum, not what will come."""

    prompt: int
    new_tokens: int
    beams: int = 1


def blocks_to_completion(request: Request, *, tokens_per_block: int, window: int = 0, held: int = 0) -> int:
    """Blocks still to be allocated in the pool of one window (0: none) when `held` are there already.

    The prompt's whole blocks are shared by all beams. A window that the request outgrows takes one block more, because
    it may lie across the edge of a block.
    """
    whole = request.prompt + request.new_tokens
    first = min(request.prompt, window) if window else request.prompt
    last = min(whole, window) if window else whole
    shared = first // tokens_per_block
    total = ceil_div(last, tokens_per_block)
    extra = 1 if window and whole > window else 0
    if held < shared:
        return shared - held + (total - shared + extra) * request.beams
    return max(total - held + extra, 0) * request.beams


def guaranteed_requests(pools: dict[int, int], request: Request, *, tokens_per_block: int, most: int) -> int:
    """Requests of one kind that GUARANTEED_NO_EVICT runs together: every one's whole need fits, in each pool.

    `pools` are blocks by window; `most` is the limit of a batch.
    """
    held = most
    for window, blocks in pools.items():
        need = blocks_to_completion(request, tokens_per_block=tokens_per_block, window=window)
        if need:
            held = min(held, blocks // need)
    return held
