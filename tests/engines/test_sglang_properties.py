"""What holds for every model, device, version and set of SGLang's flags."""

from __future__ import annotations

from math import isfinite
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sglang_support import planned, terms
from support import (
    DEEPSEEK_V3,
    GPT_OSS_20B,
    LFM2_1_2B,
    MIXTRAL_8X7B,
    NEMOTRON_3_NANO_30B,
    QWEN3_5_27B,
    QWEN3_30B_A3B,
    TINY_LLAMA,
)
from vramledger.answer import Plan
from vramledger.engines.sglang.budget import largest_slot
from vramledger.engines.sglang.defaults import decode_sizes, prefill_sizes
from vramledger.engines.sglang.pools import solve
from vramledger.engines.sglang.version import NEWEST, READ
from vramledger.errors import VramledgerError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Phase
from vramledger.units import GIB

DEVICES = tuple(
    find_device(name)
    for name in ("H100-80GB", "RTX 4090", "B200", "T4", "MI300X", "Ascend 910", "custom:3GiB", "cpu:24GiB")
)
SMALL = (TINY_LLAMA, LFM2_1_2B, GPT_OSS_20B, QWEN3_30B_A3B, MIXTRAL_8X7B, QWEN3_5_27B, NEMOTRON_3_NANO_30B)
versions = st.sampled_from(READ)
devices = st.sampled_from(DEVICES)
POWERS = st.sampled_from((1, 1, 2, 4, 8))


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return draw(st.sampled_from(SMALL))
    kv_heads = draw(st.sampled_from((1, 2, 4, 8)))
    return TINY_LLAMA | {
        "head_dim": draw(st.sampled_from((32, 64, 128))),
        "hidden_size": draw(st.sampled_from((64, 128, 2048))),
        "intermediate_size": draw(st.sampled_from((96, 256, 8192))),
        "max_position_embeddings": draw(st.integers(1, 200_000)),
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * draw(st.sampled_from((1, 2, 8))),
        "num_hidden_layers": draw(st.integers(1, 12)),
        "tie_word_embeddings": draw(st.booleans()),
        "vocab_size": draw(st.integers(1, 150_000)),
    }


@st.composite
def flags(draw: st.DrawFn) -> dict[str, Any]:
    tp = draw(POWERS)
    values: dict[str, Any] = {
        "tp_size": tp,
        "pp_size": draw(st.sampled_from((1, 1, 2, 3))),
        "context_length": draw(st.sampled_from((None, 512, 8192))),
        "page_size": draw(st.sampled_from((None, 16, 64))),
        "kv_cache_dtype": draw(st.sampled_from(("auto", "fp8_e4m3", "mxfp8", "nvfp4"))),
        "mem_fraction_static": draw(st.sampled_from((None, 0.5, 0.9))),
        "max_total_tokens": draw(st.sampled_from((None, 10_000))),
        "max_running_requests": draw(st.sampled_from((None, 1, 64))),
        "chunked_prefill_size": draw(st.sampled_from((None, -1, 4096))),
        "disable_radix_cache": draw(st.booleans()),
        "disable_cuda_graph": draw(st.booleans()),
        "enable_hierarchical_cache": draw(st.booleans()),
        "speculative_algorithm": draw(st.sampled_from((None, None, "EAGLE", "NGRAM"))),
        "disaggregation_mode": draw(st.sampled_from(("null", "prefill", "decode"))),
    }
    if draw(st.booleans()):
        values |= {"dp_size": draw(st.sampled_from((1, tp))), "enable_dp_attention": True}
    if draw(st.booleans()):
        values |= {"enable_lora": True, "max_lora_rank": 8}
    return values


def attempt(*arguments: Any, **values: Any) -> Plan:
    """The plan, or nothing where a flag or a heads' number refuses it."""
    try:
        return planned(*arguments, **values)
    except VramledgerError:
        assume(False)
        raise


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(config=configs(), device=devices, version=versions, values=flags(), concurrency=st.integers(1, 40))
def test_every_plan_is_sound(
    config: dict[str, Any], device: Any, version: str, values: dict[str, Any], concurrency: int
) -> None:
    plan = attempt(config, device, version, concurrency, **values)
    world = sorted(rank for kind in plan.ranks for rank in kind.ranks)
    assert world == list(range(len(world)))
    for rank in plan.ranks:
        for phase in Phase:
            assert rank.occupied(phase).expected <= rank.peak(phase).expected
        assert all(entry.bytes.low >= 0 for entry in rank.entries)
    pool = plan.kv_pool
    if pool is None:
        return
    assert 0 <= pool.tokens.low <= pool.tokens.expected <= pool.tokens.high
    assert pool.tokens.expected % pool.block_size == 0
    assert pool.num_blocks.expected == pool.tokens.expected // pool.block_size
    assert isfinite(pool.max_concurrency.high)
    if values["max_total_tokens"] is not None:
        assert pool.tokens.high <= values["max_total_tokens"]
    if plan.verdict.holds:
        share = -(-concurrency // values.get("dp_size", 1))
        assert int(pool.max_concurrency.low) >= share
        assert plan.verdict.conditions
    else:
        assert plan.verdict.summary


@settings(max_examples=25, deadline=None)
@given(
    config=st.sampled_from(SMALL), version=versions, rest=st.floats(1, 60), more=st.floats(0, 30), page=st.sampled_from((1, 16))
)  # fmt: skip
def test_pools_never_take_more_than_is_left_and_grow_with_it(
    config: dict[str, Any], version: str, rest: float, more: float, page: int
) -> None:
    found, ranks = terms(config, DEVICES[0], version, mem_fraction_static=0.9, page_size=page)
    slot = largest_slot(ranks)
    cells = [item.cells for item in ranks]
    small, large = (solve(8 + size, 80.0, cells, slot, found) for size in (rest, rest + more))
    assert small.tokens <= large.tokens
    taken = small.tokens * (cells[0].full_cell if cells[0].is_hybrid_swa else cells[0].plain_cell)
    taken += (small.swa_tokens or 0) * cells[0].swa_cell
    if small.rest_bytes > 0 and cells[0].plain_cell:
        assert taken <= small.rest_bytes
        assert small.rest_bytes <= small.static_bytes <= rest * GIB + 1


@settings(max_examples=30, deadline=None)
@given(largest=st.integers(1, 1024), speculative=st.booleans())
def test_captured_sizes_rise_to_the_largest(largest: int, speculative: bool) -> None:
    sizes = decode_sizes(largest, speculative=speculative, version=NEWEST)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == largest
    tokens = prefill_sizes(largest)
    assert list(tokens) == sorted(set(tokens))
    assert all(size <= largest for size in tokens)


@settings(max_examples=10, deadline=None)
@given(groups=st.sampled_from((1, 2, 4, 8)), version=versions)
def test_experts_are_over_all_ranks_however_attention_is_grouped(groups: int, version: str) -> None:
    _, alone = terms(DEEPSEEK_V3, DEVICES[2], version, tp_size=8)
    _, grouped = terms(DEEPSEEK_V3, DEVICES[2], version, tp_size=8, dp_size=groups, enable_dp_attention=True)
    assert grouped[0].weights.groups["experts"].total == alone[0].weights.groups["experts"].total
    assert grouped[0].weights.groups["attention"].total >= alone[0].weights.groups["attention"].total
    assert grouped[0].cells.plain_cell == alone[0].cells.plain_cell
