"""What estimators are known to get wrong, one test a kind of fault."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    GEMMA_4_26B_A4B,
    GPT_OSS_20B,
    GPT_OSS_120B,
    H100,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    NEMOTRON_3_NANO_30B,
    QWEN3_5_27B,
    QWEN3_5_35B_A3B,
    QWEN3_30B_A3B,
    QWEN3_32B_AWQ,
    bytes_per_token,
    checkpoint,
    gib,
    planned,
    tensor_bytes,
    weights,
)
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Owner, Phase
from vramledger.pool import KvPool
from vramledger.units import GIB

H200 = find_device("H200")
FP8_WITH_FP8_CACHE = {
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
}
FP8_ALONE = {
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
}


def pool(config: dict[str, Any], device: Any = H100, **values: Any) -> KvPool:
    found = planned(checkpoint(config), device, **values).kv_pool
    assert found is not None
    return found


def test_latent_attention_is_neither_one_kv_pair_a_head_nor_cut_over_ranks() -> None:
    as_heads = 61 * 128 * (192 + 128) * 2
    for ranks in (1, 8, 16):
        found = bytes_per_token(checkpoint(DEEPSEEK_V3), tp=ranks)
        assert found == 70_272 < as_heads / 70


def test_kv_heads_are_not_cut_past_their_count() -> None:
    for config, heads in ((QWEN3_30B_A3B, 4), (LLAMA_3_1_8B, 8)):
        subject = checkpoint(config)
        smallest = bytes_per_token(subject, tp=heads)
        assert smallest * heads == bytes_per_token(subject)
        assert bytes_per_token(subject, tp=2 * heads) == smallest


@pytest.mark.parametrize(
    ("config", "windowed", "full"), [(GEMMA_3_27B, 52, 10), (GPT_OSS_120B, 18, 18), (GEMMA_4_26B_A4B, 25, 5)]
)
def test_a_window_holds_for_its_layers_and_no_others(
    config: dict[str, Any], windowed: int, full: int
) -> None:
    """Neither for all layers nor for none, and no layer is dropped."""
    found = pool(config, H200, max_model_len=8192)
    layers = {"sliding_window": 0, "full_attention": 0}
    for group in found.groups:
        layers[group.kind] += group.num_layers
    assert layers == {"sliding_window": windowed, "full_attention": full}
    whole = found.bytes_per_token * 8192
    only_windows = whole * 1024 // 8192
    assert 1.5 * only_windows < found.steady_bytes_per_request < 0.6 * whole


def test_full_layers_keep_their_own_head_shape() -> None:
    """gemma-4: 2 heads of 512 in full layers, 8 of 256 in windowed ones."""
    assert bytes_per_token(checkpoint(GEMMA_4_26B_A4B)) == 2 * 2 * (5 * 2 * 512 + 25 * 8 * 256)


@pytest.mark.parametrize(
    ("config", "attention", "token", "layers"),
    [
        (NEMOTRON_3_NANO_30B, 6, 2 * 2 * 128 * 2, 52),
        (QWEN3_5_35B_A3B, 10, 2 * 2 * 256 * 2, 40),
        (QWEN3_5_27B, 16, 2 * 4 * 256 * 2, 64),
    ],
)
def test_recurrent_layers_are_not_charged_by_the_token(
    config: dict[str, Any], attention: int, token: int, layers: int
) -> None:
    found = pool(config, H200)
    assert found.bytes_per_token == attention * token
    assert found.bytes_per_token < layers * token / 2


@pytest.mark.parametrize("config", [NEMOTRON_3_NANO_30B, QWEN3_5_35B_A3B, QWEN3_5_27B])
def test_recurrent_states_are_kept_and_cut_over_ranks(config: dict[str, Any]) -> None:
    one, two = (pool(config, H200, tp=ranks).state_bytes_per_sequence for ranks in (1, 2))
    assert one > 40 * 10**6
    assert two * 2 == one


def test_the_cache_type_is_not_the_weights() -> None:
    plain = bytes_per_token(checkpoint(LLAMA_3_1_70B))
    assert bytes_per_token(checkpoint(LLAMA_3_1_70B, hf_quant=FP8_ALONE)) == plain
    assert bytes_per_token(checkpoint(QWEN3_32B_AWQ)) == 262_144
    assert bytes_per_token(checkpoint(GPT_OSS_20B)) == 24 * 8 * 64 * 2 * 2
    assert bytes_per_token(checkpoint(DEEPSEEK_V3), tp=8) == 61 * 576 * 2


def test_a_cache_type_that_the_checkpoint_declares_is_honoured() -> None:
    subject = checkpoint(LLAMA_3_1_70B, hf_quant=FP8_WITH_FP8_CACHE)
    assert subject.declared_kv_dtype is not None
    assert bytes_per_token(subject) * 2 == bytes_per_token(checkpoint(LLAMA_3_1_70B))
    assert bytes_per_token(subject, kv_cache_dtype="bfloat16") == bytes_per_token(checkpoint(LLAMA_3_1_70B))


def test_packed_tensors_are_not_parameters() -> None:
    assert checkpoint(QWEN3_32B_AWQ).model.parameter_counts().total == 32_762_123_264
    assert checkpoint(GPT_OSS_120B).model.parameter_counts().total == 116_829_156_672
    subject = checkpoint(LLAMA_3_1_70B, hf_quant=FP8_WITH_FP8_CACHE)
    assert subject.model.parameter_counts().total == 70_553_706_496
    assert round(gib(tensor_bytes(weights(subject)[0])), 1) == 67.7


def test_class_defaults_fill_what_a_config_leaves_out() -> None:
    """gemma-3: every sixth layer full, a tied head, 131,072 positions, 262,208 rows."""
    model = checkpoint(GEMMA_3_27B).model
    assert model.tie_word_embeddings
    assert (model.max_position_embeddings, model.vocab_size) == (131_072, 262_208)
    assert model.parameter_counts().total == 27_432_406_640
    (held,) = weights(checkpoint(GEMMA_3_27B))
    assert "lm_head" not in held.groups


def test_a_ledger_is_of_one_device() -> None:
    found = planned(checkpoint(LLAMA_3_1_70B), H100, tp=8)
    (rank,) = found.ranks
    assert rank.device_total_bytes == H100.total_bytes
    assert found.budget_bytes < H100.total_bytes
    assert rank.owned(Owner.WEIGHTS).expected < H100.total_bytes / 4
    assert found.kv_pool is not None
    assert found.kv_pool.bytes.high < H100.total_bytes
    assert found.kv_pool.bytes_per_block * found.kv_pool.num_blocks.expected == found.kv_pool.bytes.expected
    tokens = found.kv_pool.bytes.expected / found.kv_pool.bytes_per_token
    assert found.kv_pool.tokens.expected == pytest.approx(tokens, rel=1e-6)


def test_eight_ranks_hold_no_more_than_eight_times_the_tokens_of_one() -> None:
    one = planned(checkpoint(LLAMA_3_1_8B), H200).kv_pool
    eight = planned(checkpoint(LLAMA_3_1_8B), H200, tp=8).kv_pool
    assert one is not None
    assert eight is not None
    room = H200.total_bytes // eight.bytes_per_token
    assert one.tokens.expected * 8 < eight.tokens.expected < room


def test_every_rank_of_a_group_has_its_own_activation() -> None:
    alone, shared = planned(checkpoint(LLAMA_3_1_8B)), planned(checkpoint(LLAMA_3_1_8B), tp=8)
    (one,), (each,) = alone.ranks, shared.ranks
    assert each.ranks == tuple(range(8))
    assert each.owned(Owner.ACTIVATION).expected >= one.owned(Owner.ACTIVATION).expected


def test_gigabytes_are_not_gibibytes() -> None:
    """The oldest lines call GiB "GB"; the figure is in GiB all the same."""
    for version, words in (("0.7.3", "Model loading took {} GB"), ("0.10.2", "Model loading took {} GiB")):
        plan = planned(checkpoint(LLAMA_3_1_8B), H100, version)
        size = plan.ranks[0].weights.device_bytes.expected
        assert plan.printed[0] == words.format(f"{size / GIB:.4f}")
        assert 14.98 < size / 2**30 < 15.0 < 16.0 < size / 10**9


def test_an_80_gb_card_is_neither_80_gib_nor_80_gb() -> None:
    assert 80 * 10**9 < 79 * GIB < H100.total_bytes < 79.7 * GIB
    assert H100.marketing_gb == 80


@pytest.mark.parametrize(("version", "share"), [("0.19.1", 0.9), ("0.20.0", 0.92)])
def test_the_share_of_the_device_is_the_versions_own(version: str, share: float) -> None:
    plan = planned(checkpoint(LLAMA_3_1_8B), H100, version)
    assert plan.budget_bytes == pytest.approx(H100.total_bytes * share, abs=1)


def test_draft_layers_that_nobody_asked_for_take_nothing() -> None:
    for config, wasted in ((DEEPSEEK_V3, 11.0), (QWEN3_5_35B_A3B, 1.4)):
        subject = checkpoint(config)
        (held,) = weights(subject)
        assert (subject.disk_bytes - tensor_bytes(held) + held.absorbed_bytes) / GIB > wasted


def test_an_even_split_forgets_what_is_replicated() -> None:
    for config, ranks in ((QWEN3_30B_A3B, 8), (DEEPSEEK_V3, 8)):
        subject = checkpoint(config)
        (alone,), (each,) = weights(subject), weights(subject, tp=ranks)
        even = (tensor_bytes(alone) - alone.absorbed_bytes) / ranks
        assert 1.003 * even < tensor_bytes(each) - each.absorbed_bytes < 1.02 * even


def test_a_model_whose_weights_alone_exceed_the_card_does_not_fit() -> None:
    found = planned(checkpoint(DEEPSEEK_V3), H100, tp=8).verdict
    assert found.holds is False
    assert found.shortfall_bytes > 0


def test_a_hybrid_is_not_infinitely_concurrent() -> None:
    found = pool(NEMOTRON_3_NANO_30B, max_model_len=8192)
    assert 0 < found.max_concurrency.low <= found.max_concurrency.high < 1000
    assert found.steady_concurrency.expected >= found.max_concurrency.expected


def test_the_peak_of_loading_is_not_the_peak_of_serving() -> None:
    (rank,) = planned(checkpoint(LLAMA_3_1_8B)).ranks
    assert rank.peak(Phase.LOAD).expected < rank.peak(Phase.DECODE).expected
    assert rank.binding_phase is not Phase.LOAD


def test_configs_that_crash_others_are_planned() -> None:
    """No intermediate_size at the top, heads that differ by layer, packed experts, packed words, latents."""
    for config in (QWEN3_5_35B_A3B, GEMMA_4_26B_A4B, GPT_OSS_120B, QWEN3_32B_AWQ, DEEPSEEK_V3):
        for dtype in ("auto", "fp8"):
            assert pool(config, H200, tp=2, kv_cache_dtype=dtype).bytes_per_token > 0
