"""Blocks of tokens out of a pool that is allocated at start."""

from __future__ import annotations

from fractions import Fraction

from vramledger.kvcache.lengths import Lengths
from vramledger.kvcache.schemes.allocation import (
    Allocation,
    Waste,
    blocks_of,
    tables_bytes,
    used_bytes,
    whole,
)
from vramledger.kvcache.shape import CacheShape
from vramledger.ledger import ByteRange


def paged(shape: CacheShape, lengths: Lengths, requests: int) -> Allocation:
    """The engine's own blocks. One block of each pool is nobody's, as in vLLM."""
    pairs = [blocks_of(group, lengths) for group in shape.groups]
    running, final = (
        sum(
            (pair[end] * group.block_bytes for pair, group in zip(pairs, shape.groups, strict=True)),
            Fraction(0),
        )
        for end in (0, 1)
    )
    held, used = whole(running * requests), whole(used_bytes(shape, lengths) * requests)
    return Allocation(
        scheme="paged",
        source="vllm v1/core/block_pool.py, v1/worker/block_table.py",
        requests=requests,
        unit_bytes=max(group.block_bytes for group in shape.groups),
        unit_tokens=min(group.block_size for group in shape.growing or shape.groups),
        used_bytes=used,
        held_bytes=ByteRange.exact(held),
        final_bytes=whole(final * requests),
        waste=Waste(rounding_bytes=held - used),
        fixed_bytes=sum({group.pool: group.block_bytes for group in shape.groups}.values()),
        table_bytes=tables_bytes(shape, requests),
        idle_bytes=shape.pool_bytes,
        fit_running=_fits(shape, [pair[0] for pair in pairs]),
        fit_final=_fits(shape, [pair[1] for pair in pairs]),
        notes=("the pool is the engine's from start to end",),
    )


def _fits(shape: CacheShape, by_group: list[Fraction]) -> int:
    """Requests that the pools hold at so many blocks of each group a request."""
    wanted = [Fraction(0)] * len(shape.pool_blocks)
    for group, blocks in zip(shape.groups, by_group, strict=True):
        wanted[group.pool] += blocks
    return min(
        max(int((total - 1) / each), 0) for total, each in zip(shape.pool_blocks, wanted, strict=True) if each
    )
