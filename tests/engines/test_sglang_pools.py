"""Pools: bytes of a token, budgets, windowed layers, recurrent states, requests; worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sglang_support import cells, planned, settings, terms
from support import (
    DEEPSEEK_V3,
    DEEPSEEK_V3_2,
    GEMMA_3_27B,
    GEMMA_4_26B_A4B,
    GPT_OSS_120B,
    H100,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    QWEN3_5_27B,
)
from vramledger.engines.sglang.budget import largest_slot
from vramledger.engines.sglang.pools import (
    Pools,
    max_requests,
    request_cap,
    request_table_bytes,
    slots_per_request,
    solve,
)
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.states import slot_bytes
from vramledger.hardware.catalogue import find_device
from vramledger.units import GIB

QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "architectures": ["Qwen3NextForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "head_dim": 256,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "max_position_embeddings": 262144,
    "partial_rotary_factor": 0.25,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}


def left(config: dict[str, Any], rest_gib: float, version: str = "0.5.23", **values: Any) -> Pools:
    """Pools for a rest of so many GiB, as if nothing were reserved."""
    found, ranks = terms(config, H100, version, **values)
    found = replace(found, mem_fraction_static=1.0)
    return solve(rest_gib, 100.0, [item.cells for item in ranks], largest_slot(ranks), found)


@pytest.mark.parametrize(
    ("config", "values", "cell"),
    [
        (LLAMA_3_1_8B, {}, 131072),
        (LLAMA_3_1_70B, {"tp_size": 8}, 40960),
        (LLAMA_3_1_70B, {"tp_size": 16}, 40960),
        (LLAMA_3_1_70B, {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 327680),
        (DEEPSEEK_V3, {"tp_size": 8}, 70272),
        (DEEPSEEK_V3, {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 70272),
        (DEEPSEEK_V3, {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"}, 35136),
        (DEEPSEEK_V3_2, {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"}, 48068),
        (DEEPSEEK_V3_2, {"tp_size": 8, "kv_cache_dtype": "bf16"}, 61 * (1152 + 132)),
        (LLAMA_3_1_8B, {"speculative_algorithm": "EAGLE"}, 135168),
        (LLAMA_3_1_8B, {"kv_cache_dtype": "nvfp4"}, 8 * 64 * 32 * 2 + 8 * 8 * 32 * 2),
        (LLAMA_3_1_8B, {"kv_cache_dtype": "mxfp8"}, 65536 + 2048),
        (LLAMA_3_1_70B, {"tp_size": 8, "dcp_size": 4}, 4 * 40960),
    ],
)
def test_a_token_takes_its_cell(config: dict[str, Any], values: dict[str, Any], cell: int) -> None:
    assert cells(config, **values).plain_cell == cell


@pytest.mark.parametrize(
    ("fraction", "page", "tokens"),
    [
        (0.830, 1, 411631),
        (0.830, 64, 411584),
        (0.88, 1, 443826),
        (0.88, 64, 443776),
        (0.90, 1, 456704),
        (0.90, 64, 456704),
    ],
)
def test_the_budget_is_free_memory_less_a_share_of_what_was_free(
    fraction: float, page: int, tokens: int
) -> None:
    found, ranks = terms(LLAMA_3_1_8B, mem_fraction_static=fraction, page_size=page)
    assert solve(63.61, 78.60, [ranks[0].cells], None, found).tokens == tokens


def test_a_windowed_pool_is_sized_by_its_ratio_not_by_its_window() -> None:
    pools = left(GPT_OSS_120B, 40.0)
    assert (pools.tokens, pools.swa_tokens) == (647269, 517815)
    paged = left(GPT_OSS_120B, 40.0, page_size=64)
    assert (paged.tokens, paged.swa_tokens) == (647232, 517760)
    assert left(GPT_OSS_120B, 40.0, disable_hybrid_swa_memory=True).tokens == 582542
    assert left(GPT_OSS_120B, 40.0, "0.5.6").tokens == 582542


def test_releases_before_0_5_12_truncate_twice() -> None:
    old = left(GPT_OSS_120B, 40.0, "0.5.9")
    plain = int(40 * GIB) // (36 * 2048)
    assert old.tokens == int(plain * 36 * 2048 / (18 * 2048 + 0.8 * 18 * 2048))


def test_windows_of_gemma_3_save_nothing_and_those_of_gemma_4_do() -> None:
    assert not cells(GEMMA_3_27B).is_hybrid_swa
    assert cells(GEMMA_3_27B).full_layers == 62
    found = cells(GEMMA_4_26B_A4B)
    assert found.is_hybrid_swa
    assert (found.full_layers, found.swa_layers) == (5, 25)
    assert (found.full_bytes, found.swa_bytes) == (2 * 512 * 2 * 2, 8 * 256 * 2 * 2)


def test_the_windowed_pool_of_a_capped_server_holds_its_requests_and_chunks() -> None:
    values: dict[str, Any] = {"max_running_requests": 16, "disable_radix_cache": True}
    found, ranks = terms(GPT_OSS_120B, **values)
    # window 128, 128 tokens between evictions, a page of padding and one for the next token; two chunks in flight
    assert request_cap(ranks[0].cells, found) == 16 * (128 + 128 + 1 + 1) + 2 * 8192 + 1
    pools = left(GPT_OSS_120B, 40.0, **values)
    assert pools.swa_tokens == request_cap(ranks[0].cells, found)
    assert pools.tokens == (int(40 * GIB) - pools.swa_tokens * 18 * 2048) // (18 * 2048)


def test_recurrent_states_take_their_share_before_tokens() -> None:
    found, ranks = terms(QWEN3_NEXT)
    slot = slot_bytes_of(ranks)
    assert (slot.conv_bytes // 36, slot.state_bytes // 36) == (49152, 2097152)
    assert slot.total == 77266944
    pools = left(QWEN3_NEXT, 40.0)
    assert (pools.slots, pools.tokens) == (262, 920754)
    assert (pools.max_running_requests, pools.slots_per_request) == (52, 5)
    assert "recurrent states" in pools.capped_by
    assert left(QWEN3_NEXT, 40.0, "0.5.9").slots == 263
    assert left(QWEN3_NEXT, 40.0, disable_radix_cache=True).max_running_requests == 262
    assert found.architecture == "Qwen3NextForCausalLM"


def slot_bytes_of(ranks: list[Any]) -> Any:
    slot = largest_slot(ranks)
    assert slot is not None
    return slot


def test_a_given_number_of_states_or_requests_replaces_the_ratio() -> None:
    assert left(QWEN3_NEXT, 40.0, max_mamba_cache_size=100).slots == 100
    asked = left(QWEN3_NEXT, 40.0, disable_radix_cache=True, max_running_requests=64)
    assert (asked.slots, asked.max_running_requests) == (64, 64)
    assert left(QWEN3_NEXT, 40.0, "0.5.2").slots == 512


@pytest.mark.parametrize(
    ("version", "values", "count"),
    [
        ("0.5.23", {}, 5),
        ("0.5.23", {"disable_overlap_schedule": True}, 3),
        ("0.5.23", {"mamba_radix_cache_strategy": "no_buffer"}, 3),
        ("0.5.23", {"mamba_radix_cache_strategy": "extra_buffer_lazy"}, 4),
        ("0.5.23", {"disable_radix_cache": True}, 1),
        ("0.5.12", {}, 3),
    ],
)
def test_a_radix_cache_multiplies_the_states_of_a_request(
    version: str, values: dict[str, Any], count: int
) -> None:
    assert slots_per_request(settings(QWEN3_NEXT, version=version, **values)) == count


def test_states_in_half_precision_are_half() -> None:
    _, ranks = terms(QWEN3_NEXT)
    _, halved = terms(QWEN3_NEXT, mamba_ssm_dtype="bfloat16")
    assert slot_bytes_of(halved).state_bytes * 2 == slot_bytes_of(ranks).state_bytes
    found, cut = terms(QWEN3_NEXT, tp_size=4)
    assert slot_bytes_of(cut).total * 4 == slot_bytes_of(ranks).total
    assert slot_bytes(_model(QWEN3_NEXT), found, range(3)).total == slot_bytes_of(cut).total // 12


def _model(config: dict[str, Any]) -> Any:
    from support import checkpoint

    return checkpoint(config).model


@pytest.mark.parametrize(
    ("version", "tokens", "asked", "count"),
    [
        ("0.5.23", 411631, None, 2048),
        ("0.5.23", 2_000_000, None, 4096),
        ("0.5.23", 3000, None, 1500),
        ("0.5.23", 411631, 128, 128),
        ("0.5.23", 100, 128, 50),
        ("0.5.9", 100, 128, 128),
        ("0.4.6.post5", 411631, None, 2049),
        ("0.2.13", 4_000_000, None, 5119),
        ("0.2.5", 4_000_000, None, 15624),
    ],
)
def test_requests_are_capped_by_release(version: str, tokens: int, asked: int | None, count: int) -> None:
    found = settings(LLAMA_3_1_8B, version=version, max_running_requests=asked)
    assert max_requests(tokens, None, 0, found)[0] == count


@pytest.mark.parametrize(
    ("requests", "length", "gib"), [(2048, 131072, 1.0), (4096, 131072, 2.0), (2048, 32768, 0.25)]
)
def test_the_request_table_is_outside_the_budget_and_large(requests: int, length: int, gib: float) -> None:
    found = settings(LLAMA_3_1_8B, context_length=length)
    assert request_table_bytes(requests, found) == pytest.approx(gib * GIB, rel=0.001)


def test_a_decode_server_keeps_rows_for_requests_on_their_way() -> None:
    plain = settings(LLAMA_3_1_8B, max_running_requests=32)
    decode = settings(LLAMA_3_1_8B, max_running_requests=32, disaggregation_mode="decode")
    assert request_table_bytes(32, decode) == request_table_bytes(96, plain)


def test_the_smallest_stage_bounds_the_tokens_of_all() -> None:
    found, ranks = terms(LLAMA_3_1_70B, pp_size=3)
    assert [len(item.kind.layers) for item in ranks] == [26, 27, 27]
    widest = max(item.cells.plain_cell for item in ranks)
    pools = solve(30.0, 78.0, [item.cells for item in ranks], None, replace(found, mem_fraction_static=1.0))
    assert pools.tokens == int(30 * GIB) // widest
    before = terms(LLAMA_3_1_70B, H100, "0.5.4", pp_size=3)[1]
    assert [len(item.kind.layers) for item in before] == [26, 26, 28]


def test_ascend_charged_index_keys_as_fp8_before_0_5_20() -> None:
    npu = find_device("Ascend 910")
    old = cells(DEEPSEEK_V3_2, npu, "0.5.6", tp_size=16)
    new = cells(DEEPSEEK_V3_2, npu, "0.5.20", tp_size=16)
    assert old.plain_cell == 61 * (1152 + 132)
    assert old.overdraft_bytes == 61 * (256 - 132)
    assert (new.plain_cell, new.overdraft_bytes) == (61 * (1152 + 256), 0)


@pytest.mark.parametrize(
    ("device", "version", "cell", "beyond"),
    [
        ("B200", "0.5.23", 61 * (576 + 132), 0),
        ("B200", "0.5.9", 61 * (576 + 132), 61 * (656 - 576)),
        ("H100-80GB", "0.5.23", 61 * (1152 + 132), 0),
    ],
)
def test_sparse_latents_are_fp8_on_blackwell_and_were_charged_less_than_they_take(
    device: str, version: str, cell: int, beyond: int
) -> None:
    found = cells(DEEPSEEK_V3_2, find_device(device), version, tp_size=8)
    assert (found.plain_cell, found.overdraft_bytes) == (cell, beyond)


def test_a_limit_on_tokens_is_kept_to_whole_pages() -> None:
    pool = planned(LLAMA_3_1_8B, max_total_tokens=100_000, page_size=64).kv_pool
    assert pool is not None
    assert pool.tokens.expected == 99_968


def test_images_keep_a_reserve_out_of_the_pool() -> None:
    def tokens(version: str) -> int:
        found, ranks = terms(QWEN3_5_27B, H100, version)
        given: Settings = replace(found, mem_fraction_static=0.9)
        return solve(40.0, 78.0, [item.cells for item in ranks], None, given).tokens

    assert tokens("0.5.15") - tokens("0.5.18") == pytest.approx(0.0977 * GIB / 65536, rel=0.02)
