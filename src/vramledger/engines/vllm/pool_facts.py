"""Arithmetic of the KV pool that what vLLM prints allows."""

from __future__ import annotations

from vramledger.ledger import ByteRange


def budgeted_pool_bytes(budget: ByteRange, num_blocks: int) -> ByteRange:
    """What `num_blocks` whole blocks take of `budget`, from which they were cut.

    num_blocks = budget // bytes_per_block, so the pool is more than budget x n / (n + 1) and at most the budget.
    Source: v1/core/kv_cache_utils.py (`get_num_blocks`).
    """
    low = budget.low * num_blocks // (num_blocks + 1)
    return ByteRange(low, max(low, budget.expected), budget.high)
