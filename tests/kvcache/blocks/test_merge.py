"""Equal content that was computed side by side, held once."""

from __future__ import annotations

from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool


def pool() -> BlockPool:
    return BlockPool(PoolLayout(num_blocks=20, groups=(BlockGroup(block_tokens=16),)))


def opened(blocks: BlockPool, sequence: int, keys: list[int], tokens: int) -> None:
    assert blocks.open(sequence, keys=keys, boundary=0, hit_tokens=0, tokens=tokens)
    blocks.commit(sequence, tokens)


def test_later_copies_are_given_up_for_the_first_one() -> None:
    blocks = pool()
    opened(blocks, 1, [1, 2, 3], 50)
    opened(blocks, 2, [1, 2, 9], 50)
    assert blocks.used_blocks == 8
    blocks.merge(2)
    assert blocks.used_blocks == 6
    assert blocks.block_tables(2)[0][:2] == blocks.block_tables(1)[0][:2]
    assert blocks.block_tables(2)[0][2] != blocks.block_tables(1)[0][2]
    assert (blocks.logical_tokens, blocks.physical_tokens) == (100, 68)
    # What was given up is empty, not cached.
    assert (blocks.free_blocks, blocks.cached_blocks) == (14, 0)


def test_what_is_merged_comes_back_whole() -> None:
    blocks = pool()
    opened(blocks, 1, [1, 2], 32)
    opened(blocks, 2, [1, 2], 32)
    blocks.merge(2)
    blocks.free(1)
    assert (blocks.used_blocks, blocks.cached_blocks) == (2, 0)
    blocks.free(2)
    assert (blocks.used_blocks, blocks.cached_blocks) == (0, 2)
    assert blocks.hit_tokens([1, 2], boundary=0, limit_tokens=100) == 32


def test_only_what_comes_after_is_looked_at_and_the_first_one_keeps_its_own() -> None:
    blocks = pool()
    opened(blocks, 1, [1, 2], 32)
    opened(blocks, 2, [1, 2], 32)
    blocks.merge(1)
    assert blocks.used_blocks == 4
    blocks.merge(2, from_tokens=16)
    assert blocks.used_blocks == 3
