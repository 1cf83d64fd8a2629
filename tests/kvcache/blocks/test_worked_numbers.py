"""Pools whose numbers anybody can work out on paper."""

from __future__ import annotations

from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool

K = 1000
KI = 1024


def plain_pool(blocks: int, block_tokens: int, block_bytes: int = 0) -> BlockPool:
    groups = (BlockGroup(block_tokens=block_tokens),)
    return BlockPool(PoolLayout(num_blocks=blocks, groups=groups, block_bytes=block_bytes))


def opened(pool: BlockPool, sequence: int, tokens: int, keys: tuple[int, ...] = ()) -> bool:
    hit = pool.hit_tokens(keys, boundary=0, limit_tokens=tokens - 1)
    is_open = pool.open(sequence, keys=keys, boundary=0, hit_tokens=hit, tokens=tokens)
    if is_open:
        pool.commit(sequence, tokens)
    return is_open


def test_three_requests_hold_their_prompts_and_outputs() -> None:
    pool = plain_pool(3_000, 10)
    for number, (prompt, output) in enumerate([(1 * K, 100), (16 * K, 20), (4 * K, 2 * K)]):
        assert opened(pool, number, prompt)
        assert pool.grow(number, prompt + output, computed_tokens=prompt)
    assert [pool.tokens_of(number) for number in range(3)] == [1_100, 16_020, 6_000]
    assert pool.logical_tokens == pool.physical_tokens == 1_100 + 16_020 + 6_000
    assert pool.waste_tokens == 0


def test_a_shared_prefix_is_logical_twice_and_physical_once() -> None:
    pool = plain_pool(1_000, 100)
    prefix = tuple(range(30))
    assert opened(pool, 1, 3 * K + 1 * K, prefix)
    assert opened(pool, 2, 3 * K + 2 * K, prefix)
    assert pool.logical_tokens == 9 * K
    assert pool.physical_tokens == 6 * K
    assert pool.counters.hit_tokens == 3 * K


def test_24_gib_at_128_kib_a_token_are_32_sequences_of_6k() -> None:
    tokens = 24 * KI**3 // (128 * KI)
    assert tokens == 196_608
    pool = plain_pool(tokens // 16, 16, block_bytes=16 * 128 * KI)
    opens = [opened(pool, number, 6 * KI) for number in range(33)]
    assert opens == [True] * 32 + [False]
    assert pool.free_blocks == 0
    assert pool.physical_tokens == 196_608
    assert pool.layout.num_blocks * pool.layout.block_bytes == 24 * KI**3


def test_the_last_block_of_each_sequence_is_what_is_wasted() -> None:
    pool = plain_pool(100, 16)
    assert opened(pool, 1, 17)
    assert opened(pool, 2, 32)
    assert (pool.used_blocks, pool.waste_tokens) == (4, 15)
    assert pool.block_table_bytes == 4 * 4
