"""Allocation schemes: figures of their own code, and what holds for all of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from support import (
    DEEPSEEK_V3,
    DEEPSEEK_V3_2,
    GEMMA_3_27B,
    LFM2_1_2B,
    LLAMA_3_8B,
    QWEN3_5_27B,
    checkpoint,
    planned,
)  # fmt: skip
from vramledger import plan
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import find_device
from vramledger.kvcache.lengths import Lengths, from_pairs, from_quantiles
from vramledger.kvcache.schemes import Allocation, allocations, contiguous, kvcached, paged, vattention
from vramledger.kvcache.shape import CacheGroup, CachePart, CacheShape, cache_shape
from vramledger.kvcache.units import Kept
from vramledger.units import KIB, MIB, ceil_div

H200 = find_device("H200-141GB")


def shape_of(config: dict[str, Any], **flags: Any) -> CacheShape:
    subject = checkpoint(config)
    pool = planned(subject, H200, **flags).kv_pool
    assert pool is not None
    return cache_shape(pool, subject.model)


def asked_of(engine: str, config: dict[str, Any], **flags: Any) -> CacheShape:
    subject = checkpoint(config)
    pool = plan(subject, H200, engine=engine, **flags).kv_pool
    assert pool is not None
    return cache_shape(pool, subject.model)


def one_group(
    block_size: int,
    token_bytes: int,
    layers: int,
    *,
    tensors: int = 2,
    max_len: int = 400,
    kept: Kept | None = None,
) -> CacheShape:
    part = CachePart(layers=layers, page_bytes=block_size * token_bytes * tensors, tensors=tensors)
    block = layers * part.page_bytes
    group = CacheGroup(
        kind="full_attention", block_size=block_size, parts=(part,), block_bytes=block, kept=kept or Kept()
    )
    return CacheShape(
        groups=(group,),
        pool_blocks=(10_000,),
        pool_bytes=10_000 * block,
        max_len=max_len,
        pool_parts=((part,),),
    )


LLAMA = shape_of(LLAMA_3_8B)
LENGTHS = from_quantiles((500, 2000, 4000), (100, 400, 1000))


@pytest.mark.parametrize(
    ("kv_heads", "tp", "page_kib", "tokens"),
    [
        (8, 1, 64, 32),
        (8, 2, 64, 64),
        (8, 1, 2048, 1024),
        (8, 2, 2048, 2048),
        (4, 1, 64, 64),
        (4, 1, 256, 256),
    ],
)
def test_tokens_that_vattention_puts_in_a_page(kv_heads: int, tp: int, page_kib: int, tokens: int) -> None:
    """tokens_per_page = page_size / (num_kv_heads * head_size * bytes_per_elem), 128 elements of 2 bytes."""
    shape = shape_of(LLAMA_3_8B | {"num_key_value_heads": kv_heads}, tp=tp)
    found = vattention(shape, LENGTHS, 1, page_kib * KIB)
    assert found.unit_tokens == tokens
    assert found.unit_bytes == 2 * 32 * page_kib * KIB


def test_vattention_reserves_whole_pages_of_the_longest_context_for_each_request() -> None:
    found = vattention(LLAMA, LENGTHS, 7, 2 * MIB)
    span = 8192 * 8 * 128 * 2
    assert span % (2 * MIB) == 0
    assert found.virtual_bytes == 7 * 2 * 32 * span
    assert found.table_bytes == 0
    assert found.idle_bytes == LLAMA.pool_bytes


def test_vattention_maps_a_page_nine_steps_early() -> None:
    shape = one_group(16, 4 * KIB, 3)  # 16 tokens of one tensor in 64 KiB
    for length, pages_now, pages_soon in (
        (1, 1, 1),
        (7, 1, 1),
        (8, 1, 2),
        (16, 1, 2),
        (17, 2, 2),
        (400, 25, 25),
    ):
        found = vattention(shape, from_pairs([(length, 1)]), 1, 64 * KIB)
        assert found.held_bytes.low == pages_now * 6 * 64 * KIB
        assert found.held_bytes.expected == pages_soon * 6 * 64 * KIB


def test_kvcached_leaves_out_blocks_that_straddle_pages() -> None:
    """Its own example: in a page of 16 with blocks of 6 there are two whole blocks."""
    shape = one_group(1, 6 * MIB, 1, tensors=1)
    found = kvcached(shape, from_pairs([(5, 1)]), 1, 16 * MIB)
    assert found.unit_tokens == 2
    assert found.held_bytes.expected == 3 * 16 * MIB


def test_kvcached_takes_a_page_that_holds_a_whole_block() -> None:
    found = kvcached(one_group(16, 128 * KIB + 1, 2), LENGTHS, 1)
    piece = 16 * (128 * KIB + 1)
    assert found.scheme == "kvcached 6 MiB"
    assert 2 * piece <= 6 * MIB
    assert "KVCACHED_PAGE_SIZE_MB=6" in " ".join(found.notes)


def test_kvcached_gives_back_all_but_its_reserve_and_the_page_of_zeros() -> None:
    found = kvcached(LLAMA, LENGTHS, 20)
    compound = 2 * MIB * 32 * 2
    assert found.unit_bytes == compound
    assert found.idle_bytes == found.fixed_bytes == 11 * compound
    assert paged(LLAMA, LENGTHS, 20).idle_bytes == LLAMA.pool_bytes


def test_block_tables_are_as_long_as_the_longest_context() -> None:
    assert paged(LLAMA, LENGTHS, 20).table_bytes == 20 * 8192 // 16 * 4


def test_whole_contexts_hold_as_many_requests_as_the_pool_has_contexts() -> None:
    found = contiguous(LLAMA, LENGTHS, 3)
    assert found.held_bytes.expected == 3 * 8192 * 131072
    assert found.fit_running == LLAMA.pool_bytes // (8192 * 131072)


def test_windows_stay_short_in_blocks_and_long_in_vattention() -> None:
    shape = shape_of(GEMMA_3_27B, max_model_len=32768)
    lengths = from_pairs([(20000, 100)])
    blocks, spans = paged(shape, lengths, 1), vattention(shape, lengths, 1, 64 * KIB)
    token = 2 * 16 * 128 * 2  # 10 layers keep all, 52 a window of 1024
    assert blocks.used_bytes == pytest.approx(token * (10 * 20049.5 + 52 * 1024), rel=1e-9)
    assert blocks.waste.stale_bytes == 0
    assert spans.waste.stale_bytes == pytest.approx(token * 52 * (20049.5 - 1024), rel=1e-9)


def test_a_latent_is_in_one_tensor() -> None:
    shape = shape_of(DEEPSEEK_V3, tp=8, gpu_memory_utilization=0.95)
    assert {part.tensors for group in shape.groups for part in group.parts} == {1}
    found = vattention(shape, LENGTHS, 1, 2 * MIB)
    assert found.unit_tokens == 2 * MIB // 1152
    assert "latent" in " ".join(found.notes)


def test_other_engines_words_for_windows_latents_and_states() -> None:
    windowed = asked_of("transformers", GEMMA_3_27B, max_memory_percent=0.9)
    assert {group.kept.window for group in windowed.groups} == {0, 1024}
    latent = asked_of("sglang", DEEPSEEK_V3_2, tp=8, mem_fraction_static=0.95)
    assert {part.tensors for group in latent.groups for part in group.parts} == {1}
    hybrid = asked_of("sglang", QWEN3_5_27B)
    assert len(hybrid.pool_blocks) == 2
    assert [group.constant_blocks > 0 for group in hybrid.groups] == [False, True]


@pytest.mark.parametrize(
    ("kind", "window"),
    [("kv_swa", 1024), ("sliding_attention", 1024), ("sliding_window", 1024), ("kv", 0), ("mla", 0)],
)
def test_words_for_a_window(kind: str, window: int) -> None:
    subject = checkpoint(GEMMA_3_27B)
    pool = planned(subject, H200).kv_pool
    assert pool is not None
    renamed = replace(pool, groups=tuple(replace(group, kind=kind) for group in pool.groups))
    assert {group.kept.window for group in cache_shape(renamed, subject.model).groups} == {window}


def test_constant_states_do_not_grow() -> None:
    shape = shape_of(LFM2_1_2B)
    assert shape.constant
    short, long = (paged(shape, from_pairs([(length, 1)]), 1) for length in (16, 32))
    grown = sum(group.block_bytes for group in shape.growing)
    assert long.held_bytes.expected - short.held_bytes.expected == grown


def test_a_token_that_no_page_holds() -> None:
    found = vattention(one_group(1, 128 * KIB, 1), LENGTHS, 1, 64 * KIB)
    assert "larger than a page" in found.refusal
    assert found.held_bytes.expected == 0


def test_page_sizes() -> None:
    names = [found.scheme for found in allocations(LLAMA, LENGTHS, 1, (4 * MIB, 128 * KIB, 2 * MIB))]
    assert names == ["paged", "vattention 128 KiB", "vattention 2 MiB", "kvcached 2 MiB", "kvcached 4 MiB", "contiguous"]  # fmt: skip
    for size in (0, 96 * KIB, 3 * MIB):
        with pytest.raises(FlagError, match="vmm-page"):
            allocations(LLAMA, LENGTHS, 1, (size,))


PAIRS = st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), min_size=1, max_size=5)
SHAPES = st.builds(
    one_group,
    st.sampled_from((1, 7, 16)),
    st.sampled_from((1000, 4096, 5000)),
    st.integers(1, 3),
    tensors=st.sampled_from((1, 2)),
    kept=st.sampled_from((Kept(), Kept(window=50), Kept(chunk=64))),
)


def steps_of(lengths: Lengths) -> list[int]:
    return [
        item.first_len + done
        for item in lengths.requests
        for _ in range(item.weight)
        for done in range(item.output_tokens)
    ]


@given(SHAPES, PAIRS)
def test_blocks_by_formula_are_blocks_by_counting(shape: CacheShape, pairs: list[tuple[int, int]]) -> None:
    lengths = from_pairs(pairs)
    (group,) = shape.groups
    steps = steps_of(lengths)
    held = Fraction(sum(group.kept.units(n, group.block_size) for n in steps) * group.block_bytes, len(steps))
    used = Fraction(
        sum(group.kept.tokens(n) for n in steps) * group.content_bytes, len(steps) * group.block_size
    )
    found = paged(shape, lengths, 1)
    assert abs(found.held_bytes.expected - held) <= Fraction(1, 2)
    assert abs(found.used_bytes - used) <= Fraction(1, 2)


@given(SHAPES, PAIRS)
def test_pages_by_formula_are_pages_by_counting(shape: CacheShape, pairs: list[tuple[int, int]]) -> None:
    lengths = from_pairs(pairs)
    (part,) = shape.groups[0].parts
    tokens = 64 * KIB * part.tensors * shape.groups[0].block_size // part.page_bytes
    most = ceil_div(shape.max_len, tokens)
    steps = steps_of(lengths)
    pages = Fraction(sum(min(ceil_div(n + 9, tokens), most) for n in steps), len(steps))
    found = vattention(shape, lengths, 1, 64 * KIB)
    assert abs(found.held_bytes.expected - pages * part.tensors * part.layers * 64 * KIB) <= Fraction(1, 2)


@settings(max_examples=40)
@given(SHAPES, PAIRS, st.integers(1, 50))
def test_what_holds_for_every_scheme(shape: CacheShape, pairs: list[tuple[int, int]], requests: int) -> None:
    lengths = from_pairs(pairs)
    for found in allocations(shape, lengths, requests):
        assert found.source
        adds_up(found)
        assert found.fit_final <= found.fit_running or shape.groups[0].kept != Kept()
    blocks = paged(shape, lengths, requests)
    (group,) = shape.groups
    # A last block is never wholly empty; a window may end within a block on either side.
    sides = 2 if group.kept.window else 1
    assert blocks.waste.rounding_bytes < requests * sides * group.block_bytes


def adds_up(found: Allocation) -> None:
    waste = found.waste
    parts = (waste.rounding_bytes, waste.ahead_bytes, waste.stale_bytes)
    assert found.used_bytes + sum(parts) == found.held_bytes.expected
    assert min(parts) >= -1  # sums of means are rounded once each
    assert found.held_bytes.expected >= found.used_bytes - 1


@given(SHAPES, PAIRS, st.integers(1, 40))
def test_longer_requests_take_more(shape: CacheShape, pairs: list[tuple[int, int]], more: int) -> None:
    if shape.groups[0].kept.chunk:
        return  # a request that enters its next chunk drops the last
    here, there = from_pairs(pairs), from_pairs([(prompt + more, output) for prompt, output in pairs])
    for one, other in zip(allocations(shape, here, 3), allocations(shape, there, 3), strict=True):
        if not shape.groups[0].kept.window:
            assert one.held_bytes.expected <= other.held_bytes.expected
        assert one.used_bytes <= other.used_bytes
