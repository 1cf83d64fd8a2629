"""Contexts that stay in the pool between turns: the blocks they leave for other requests.

Blocks of a request that has ended stay findable until another takes them (cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp,
block reuse); one that must be there when its tool comes back is KV that no other request may use.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.engines.tensorrtllm.admission import Request, blocks_to_completion
from vramledger.engines.tensorrtllm.capacity import Capacity, guaranteed
from vramledger.engines.tensorrtllm.pools import RankPools, WindowPool
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.units import ceil_div, format_bytes


def _held_tokens(settings: Settings, pools: RankPools) -> int:
    """No context is longer than what the engine lowers requests to."""
    asked = settings.flags.requests.held_tokens
    longest = max(pools.reached_len, 1)
    return longest if asked is None else min(asked, longest)


def _contexts(settings: Settings) -> int:
    """Of one cache: requests are dealt to the ranks under attention DP."""
    flags = settings.flags
    return ceil_div(flags.requests.held_contexts, flags.tp_size if flags.enable_attention_dp else 1)


def held_blocks(pool: WindowPool, pools: RankPools, settings: Settings) -> int:
    """Blocks of one pool that contexts hold, whether it has them or not."""
    window = pool.window if pool.window < pools.reached_len else 0
    kept = Request(prompt=_held_tokens(settings, pools), new_tokens=0)
    each = blocks_to_completion(kept, tokens_per_block=pools.tokens_per_block, window=window)
    return _contexts(settings) * each


def beside_held(found: Capacity, settings: Settings) -> Capacity:
    """The pools as other requests find them; the same where nothing is held."""
    if not settings.flags.requests.held_contexts:
        return found
    low, expected, high = (
        tuple(_beside(pools, settings) for pools in end) for end in (found.low, found.expected, found.high)
    )
    return Capacity(low=low, expected=expected, high=high)


def _beside(pools: RankPools, settings: Settings) -> RankPools:
    left = (
        replace(pool, blocks=max(pool.blocks - held_blocks(pool, pools, settings), 0)) for pool in pools.pools
    )
    return replace(pools, pools=tuple(left))


def held_conditions(found: Capacity, beside: Capacity, settings: Settings) -> list[str]:
    """What a verdict with held contexts rests on; `beside` is what `beside_held` left of `found`."""
    asked = settings.flags.requests.held_contexts
    pools = found.expected[found.widest]
    if not asked or not pools.pools:
        return []
    size = sum(
        min(held_blocks(pool, pools, settings), pool.blocks) * pool.block_bytes(pools.tokens_per_block)
        for pool in pools.pools
    )
    count = guaranteed(beside.low[found.widest], settings)
    return [
        (
            f"{asked:,} contexts of {_held_tokens(settings, pools):,} tokens stay referenced for tools: {format_bytes(size)} "
            f"of the pool, beside which {count:,} full-length requests run"
        )
    ]
