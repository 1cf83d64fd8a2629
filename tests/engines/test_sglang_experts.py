"""Experts over ranks under SGLang: all-to-all buffers, loads of past steps, a layer on the move."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import DEEPSEEK_V3, LLAMA_3_1_8B, QWEN3_30B_A3B, checkpoint
from vramledger.answer import Plan
from vramledger.engines.deepep import low_latency_bytes, normal_bytes
from vramledger.engines.sglang.options import plan_with
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Entry

H200 = find_device("H200")


def planned(config: dict[str, Any], version: str = "0.5.23", **values: object) -> Plan:
    return plan_with(checkpoint(config), H200, version=version, values=values, concurrency=1, remedies=False)


def entries(plan: Plan) -> dict[str, Entry]:
    return {entry.name: entry for entry in plan.ranks[0].entries}


@pytest.mark.parametrize(
    ("ranks", "nvlink", "rdma"),
    [
        # 10 channels x 8 peers x (256 or 288 tokens x (14336 + 8 + 1536 + 512) B + heads and tails)
        (8, 335_709_824, 0),
        (16, 377_673_984, 92_936_320),
    ],
)
def test_high_throughput_buffers_are_the_recommended_configurations(
    ranks: int, nvlink: int, rdma: int
) -> None:
    found = normal_bytes(hidden_bytes=2 * 7168, ranks=ranks)
    assert found is not None
    assert (found.nvlink, found.rdma) == (nvlink, rdma)
    assert normal_bytes(hidden_bytes=2 * 7168, ranks=12) is None


@given(st.sampled_from([2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160]), st.integers(1, 64))
def test_high_throughput_buffers_grow_with_the_row(ranks: int, blocks: int) -> None:
    narrow = normal_bytes(hidden_bytes=256 * blocks, ranks=ranks)
    wide = normal_bytes(hidden_bytes=256 * (blocks + 1), ranks=ranks)
    assert narrow is not None and wide is not None
    assert narrow.nvlink < wide.nvlink
    assert narrow.rdma <= wide.rdma
    assert narrow.nvlink % 128 == narrow.rdma % 128 == 0


def test_deepep_holds_the_buffers_of_both_modes_beside_the_budget() -> None:
    plain = planned(DEEPSEEK_V3, tp_size=16, ep_size=16)
    plan = planned(DEEPSEEK_V3, tp_size=16, moe_a2a_backend="deepep", mem_fraction_static=0.8)
    found = entries(plan)
    low = low_latency_bytes(tokens=128, hidden=7168, experts=256)
    assert found["DeepEP symmetric buffer"].bytes.expected == low
    assert found["DeepEP NVLink buffer"].bytes.expected == 377_673_984
    assert not found["DeepEP symmetric buffer"].inside_budget
    assert not any("DeepEP" in name for name in entries(plain))
    wider = planned(
        DEEPSEEK_V3,
        tp_size=16,
        moe_a2a_backend="deepep",
        deepep_mode="normal",
        deepep_num_max_dispatch_tokens_per_rank=256,
    )
    assert entries(wider)["DeepEP symmetric buffer"].bytes.expected == 92_936_320


def test_an_all_to_all_spreads_the_experts_over_all_ranks() -> None:
    plan = planned(DEEPSEEK_V3, tp_size=16, moe_a2a_backend="deepep")
    assert plan.inputs.ep == 16
    assert any("sets --ep-size to 16" in note for note in plan.notes)
    assert any("16 of a layer's 256 lie on a rank" in note for note in plan.notes)
    spare = planned(DEEPSEEK_V3, tp_size=16, moe_a2a_backend="deepep", ep_num_redundant_experts=32)
    assert any("18 of a layer's 288 (32 of them copies)" in note for note in spare.notes)
    with pytest.raises(FlagError, match="needs --ep-size"):
        planned(DEEPSEEK_V3, tp_size=16, ep_num_redundant_experts=32)


def test_loads_of_past_steps_are_taken_from_the_pool_and_a_layer_moves_at_once() -> None:
    values: dict[str, Any] = {"tp_size": 16, "moe_a2a_backend": "deepep", "ep_num_redundant_experts": 32}
    still = planned(DEEPSEEK_V3, **values)
    moving = planned(DEEPSEEK_V3, **values, enable_eplb=True)
    window = entries(moving)["expert load window"]
    assert window.bytes.expected == 1000 * 61 * 288 * 4
    assert window.inside_budget
    assert still.kv_pool is not None and moving.kv_pool is not None
    assert moving.kv_pool.tokens.expected < still.kv_pool.tokens.expected
    moved = entries(moving)["experts being moved"].bytes.expected
    assert moved == entries(moving)["experts"].bytes.expected // 58
    half = planned(DEEPSEEK_V3, **values, enable_eplb=True, eplb_rebalance_num_iterations=500)
    assert entries(half)["expert load window"].bytes.expected * 2 == window.bytes.expected


def test_other_libraries_are_assumed_or_named() -> None:
    plan = planned(QWEN3_30B_A3B, tp_size=4, moe_a2a_backend="mooncake")
    size = entries(plan)["mooncake buffers"].bytes
    assert size.low == 0 < size.expected == low_latency_bytes(tokens=128, hidden=2048, experts=128)
    named = planned(QWEN3_30B_A3B, tp_size=4, moe_a2a_backend="mori")
    assert any("mori are not counted" in note for note in named.notes)


def test_ranks_that_deepep_does_not_know_are_refused() -> None:
    config = QWEN3_30B_A3B | {
        "num_experts": 120,
        "num_attention_heads": 24,
        "num_key_value_heads": 12,
        "vocab_size": 153_600,
    }
    with pytest.raises(FlagError, match="no configuration for 12 ranks"):
        planned(config, tp_size=12, moe_a2a_backend="deepep")
    plan = planned(config, tp_size=12, moe_a2a_backend="deepep", deepep_mode="low_latency")
    assert "DeepEP NVLink buffer" not in entries(plan)
    with pytest.raises(FlagError, match="deepep-mode"):
        planned(config, tp_size=4, deepep_mode="fast")


def test_dense_models_have_none_of_it() -> None:
    plan = planned(LLAMA_3_1_8B, tp_size=2, enable_eplb=True)
    assert not {"expert load window", "experts being moved"} & set(entries(plan))
    assert not any(note.startswith("experts:") for note in plan.notes)


def test_roles_say_what_waits_in_the_pool() -> None:
    roles = {
        role: planned(LLAMA_3_1_8B, disaggregation_mode=role).verdict.conditions
        for role in ("null", "prefill", "decode")
    }
    assert any("until a decode instance has taken it" in text for text in roles["prefill"])
    assert any("512 more tokens" in text for text in roles["decode"])
    assert not any("decode instance" in text or "512 more" in text for text in roles["null"])
