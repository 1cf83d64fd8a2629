"""The pools of all ranks at both ends of what is left, and the pool as the answer shows it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.engines.tensorrtllm.admission import Request, blocks_to_completion, guaranteed_requests
from vramledger.engines.tensorrtllm.budget import RankTerms, share
from vramledger.engines.tensorrtllm.pools import RankPools, WindowPool, agreed, fill
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.ledger import ByteRange
from vramledger.pool import FloatRange, IntRange, KvGroup, KvPart, KvPool


class Capacity(Struct, frozen=True, kw_only=True):
    """For each end, the pools of every kind of rank, in the order of the terms."""

    low: tuple[RankPools, ...]
    expected: tuple[RankPools, ...]
    high: tuple[RankPools, ...]

    def ends(self, index: int) -> tuple[RankPools, RankPools, RankPools]:
        """One kind of rank at the three ends."""
        return self.low[index], self.expected[index], self.high[index]

    @property
    def widest(self) -> int:
        """The kind of rank whose pools take most bytes."""
        return max(range(len(self.expected)), key=lambda index: self.expected[index].kv_bytes)


def capacity(terms: Sequence[RankTerms], settings: Settings) -> Capacity:
    """Pools of the share of what each rank leaves."""
    budgets = [share(item.available, settings) for item in terms]

    def at(end: str) -> tuple[RankPools, ...]:
        found = [
            fill(item.layers, settings, getattr(budget, end))
            for item, budget in zip(terms, budgets, strict=True)
        ]
        return agreed(found, settings)

    return Capacity(low=at("low"), expected=at("expected"), high=at("high"))


def full_request(pools: RankPools, settings: Settings) -> Request:
    """A request of the longest length that is allowed, all of it answer: nothing is shared by its beams."""
    return Request(prompt=1, new_tokens=max(pools.reached_len - 1, 0), beams=settings.flags.max_beam_width)


def need(pool: WindowPool, pools: RankPools, settings: Settings) -> int:
    """Blocks that a full-length request may come to hold in one pool."""
    window = pool.window if pool.window < pools.reached_len else 0
    return blocks_to_completion(
        full_request(pools, settings), tokens_per_block=pools.tokens_per_block, window=window
    )


def guaranteed(pools: RankPools, settings: Settings) -> int:
    """Full-length requests that run together for certain under the default policy."""
    if not pools.pools:
        return settings.max_batch
    by_window = {pool.window if pool.window < pools.reached_len else 0: pool.blocks for pool in pools.pools}
    return guaranteed_requests(
        by_window,
        full_request(pools, settings),
        tokens_per_block=pools.tokens_per_block,
        most=settings.max_batch,
    )


def kv_pool(found: Capacity, settings: Settings) -> KvPool | None:
    """The pool of one instance, for the rank whose pools are largest; None for a model that keeps no KV."""
    index = found.widest
    low, middle, high = found.ends(index)
    if not middle.pools:
        return None
    size = settings.tokens_per_block
    ends = (low, middle, high)
    binding = middle.binding
    blocks = _range(sorted(item.binding.blocks for item in ends))
    per_request = sum(need(pool, middle, settings) * pool.block_bytes(size) for pool in middle.pools)
    ratios = FloatRange(*sorted(_ratio(item, settings) for item in ends))
    how = "begun blocks count" if settings.rounds_up else "whole blocks"
    return KvPool(
        bytes=_range(sorted(item.kv_bytes for item in ends)),
        groups=tuple(
            KvGroup(
                kind=pool.kind,
                num_layers=pool.num_layers,
                block_size=size,
                page_bytes=pool.block_bytes(size) // max(pool.num_layers, 1),
                blocks_per_request=need(pool, middle, settings),
                parts=(
                    KvPart(
                        kind=pool.kind,
                        num_layers=pool.num_layers,
                        page_bytes=pool.block_bytes(size) // max(pool.num_layers, 1),
                    ),
                ),
                pool_blocks=_pool_blocks(ends, position) if len(middle.pools) > 1 else None,
                window_tokens=pool.window if pool.kind == "sliding_window" else None,
            )
            for position, pool in enumerate(middle.pools)
        ),
        bytes_per_block=binding.block_bytes(size),
        bytes_per_token=sum(pool.token_bytes for pool in middle.pools),
        state_bytes_per_sequence=middle.state_bytes,
        block_size=size,
        num_blocks=blocks,
        tokens=IntRange(blocks.low * size, blocks.expected * size, blocks.high * size),
        max_concurrency=ratios,
        context_len=middle.reached_len,
        longest_context=_range(sorted(min(item.reached_len, settings.asked_len) for item in ends)),
        tokens_rule=f"printed: blocks x {size}, {how}; blocks from tokens within the share, the fewest of all ranks",
        admission_bytes_per_request=per_request,
        steady_bytes_per_request=per_request,
        steady_concurrency=ratios,
        dtype=settings.cache,
    )


def _ratio(pools: RankPools, settings: Settings) -> float:
    ratios = [
        pool.blocks / need(pool, pools, settings) for pool in pools.pools if need(pool, pools, settings)
    ]
    return min(ratios, default=0.0)


def _pool_blocks(ends: Sequence[RankPools], position: int) -> IntRange:
    counts = [item.pools[position].blocks if position < len(item.pools) else 0 for item in ends]
    return _range(sorted(counts))


def _range(counts: Sequence[int]) -> IntRange:
    low, middle, high = counts
    return IntRange(low, middle, high)


def held_bytes(ends: Sequence[RankPools]) -> ByteRange:
    """Pool bytes of one rank at the three ends."""
    return ByteRange(*sorted(item.kv_bytes for item in ends))
