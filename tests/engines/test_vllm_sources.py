"""Rules read in vLLM's own source, with numbers its users printed or its source gives."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    DEEPSEEK_V3,
    GEMMA_4_26B_A4B,
    GPT_OSS_120B,
    H100,
    NEMOTRON_3_NANO_30B,
    QWEN3_5_27B,
    bytes_per_token,
    checkpoint,
    gib,
    layout,
    lines,
    settings,
    weights,
)
from vramledger.engines.vllm.attention_backends import runs_mla
from vramledger.engines.vllm.kv_budget import request_blocks
from vramledger.engines.vllm.kv_packed import Packing
from vramledger.engines.vllm.kv_specs import KvKind
from vramledger.engines.vllm.states import recurrent_mode
from vramledger.hardware.catalogue import find_device
from vramledger.units import GIB

DEEPSEEK_V4_FLASH: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "expert_dtype": "fp4",
    "head_dim": 512,
    "hc_mult": 4,
    "hidden_size": 4096,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 512,
    "max_position_embeddings": 1048576,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_experts_per_tok": 6,
    "num_hash_layers": 3,
    "num_hidden_layers": 43,
    "num_key_value_heads": 1,
    "num_nextn_predict_layers": 1,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "q_lora_rank": 1024,
    "qk_rope_head_dim": 64,
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536},
    "sliding_window": 128,
    "torch_dtype": "bfloat16",
    "vocab_size": 129280,
}
MINICPM3: dict[str, Any] = {
    "model_type": "minicpm3",
    "hidden_size": 2560,
    "intermediate_size": 6400,
    "kv_lora_rank": 256,
    "max_position_embeddings": 32768,
    "num_attention_heads": 40,
    "num_hidden_layers": 62,
    "num_key_value_heads": 40,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "torch_dtype": "bfloat16",
    "vocab_size": 73448,
}
MINIMAX_M3: dict[str, Any] = {
    "model_type": "minimax_m3",
    "dense_intermediate_size": 12288,
    "head_dim": 128,
    "hidden_size": 6144,
    "intermediate_size": 3072,
    "max_position_embeddings": 1048576,
    "moe_layer_freq": [0, 0, *[1] * 6],
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 8,
    "num_key_value_heads": 4,
    "num_local_experts": 128,
    "rotary_dim": 64,
    "shared_intermediate_size": 3072,
    "sparse_attention_config": {
        "sparse_attention_freq": [0, 0, *[1] * 6],
        "sparse_block_size": 128,
        "sparse_index_dim": 128,
        "sparse_num_index_heads": 4,
        "sparse_topk_blocks": 16,
        "use_sparse_attention": True,
    },
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 200064,
}


def test_v4_groups_as_an_instrumented_engine_printed_them() -> None:
    """Layers, bytes a block and block size of each group of DeepSeek-V4-Flash on a 0.28 build (vllm issue
    54703)."""
    found = layout(checkpoint(DEEPSEEK_V4_FLASH), version="0.28.1", kv_cache_dtype="fp8")
    assert [(len(group.members), group.page_sum(), group.spec.block_size) for group in found.groups] == [
        (62, 1_002_240, 256),
        (22, 823_680, 64),
        (21, 786_240, 64),
        (42, 870_912, 4),
        (20, 656_640, 8),
    ]
    assert found.bytes_per_block() == 1_002_240


@pytest.mark.parametrize(
    ("version", "packing", "block"),
    [
        ("0.22.1", Packing.TUPLES, 22 * (37_440 + 1_728 + 8_640)),
        ("0.26.0", Packing.SLOTS, 22 * 37_440 + 20 * 1_728 + 21 * 8_640),
        ("0.26.1rc1.dev229", Packing.OVERLAY, 1_002_240),
        ("0.33.0", Packing.OVERLAY, 1_002_240),
    ],
)
def test_v4_block_by_version(version: str, packing: Packing, block: int) -> None:
    found = layout(checkpoint(DEEPSEEK_V4_FLASH), version=version)
    assert (found.packing, found.bytes_per_block()) == (packing, block)


def test_v4_token_line_of_a_pool_fixed_in_bytes() -> None:
    """MI300X, 20,000,000,000 bytes, 2,048 tokens a step: 1,927,444 tokens, 7.35x at 262,144."""
    printed = lines(
        checkpoint(DEEPSEEK_V4_FLASH),
        20_000_000_000,
        find_device("MI300X"),
        "0.26.1rc1.dev229+g124154a88.rocm723",
        max_model_len=262_144,
        max_num_batched_tokens=2048,
    )
    assert printed.num_blocks == 19_955
    assert printed.tokens == 1_927_444
    assert round(printed.max_concurrency, 2) == 7.35


def test_v4_concurrency_before_0_27_counts_bytes_of_the_first_group() -> None:
    """RTX PRO 5000, 37.93 GiB on a 0.22 build, 8,192 tokens a step: 2,497,693 tokens, 9.76x at 256,000; two
    digits of the pool are five blocks."""
    printed = [
        lines(
            checkpoint(DEEPSEEK_V4_FLASH),
            int(size * GIB),
            H100,
            "0.22.1rc1.dev134+g6ece3bb8bfdb",
            max_model_len=256_000,
            max_num_batched_tokens=8192,
        )
        for size in (37.925, 37.93, 37.935)
    ]
    assert printed[0].tokens <= 2_497_693 <= printed[2].tokens
    assert round(printed[1].max_concurrency, 2) == 9.76


def test_v4_window_groups_hold_what_is_in_flight() -> None:
    subject = checkpoint(DEEPSEEK_V4_FLASH)
    found = settings(subject, version="0.25.0", max_model_len=256_000, max_num_batched_tokens=8192)
    held = [request_blocks(group.spec, 256_000, found) for group in layout(subject, version="0.25.0").groups]
    assert held == [1000, 131, 131, 2051, 1041]


@pytest.mark.parametrize(("version", "expected"), [("0.12.0", 64.38), ("0.24.0", 64.38)])
def test_gpt_oss_on_hopper_kept_scales_twice(version: str, expected: float) -> None:
    """64.38 GiB printed: swizzled scales beside the plain ones, fp32 biases. The allocator's rounding is
    within a thousandth."""
    (held,) = weights(checkpoint(GPT_OSS_120B), H100, version)
    assert gib(held.total_bytes) == pytest.approx(expected, rel=1e-3)


def test_mxfp4_experts_of_other_models_take_marlin_on_hopper() -> None:
    """No second copy of the scales: the Triton kernels are gpt-oss's."""
    subject = checkpoint(
        DEEPSEEK_V4_FLASH,
        quantization_config={
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "scale_fmt": "ue8m0",
            "weight_block_size": [128, 128],
        },
    )
    (held,) = weights(subject, H100, "0.24.0")
    assert held.expert_format == "mxfp4"
    assert held.groups["experts"].padding == 0


def test_deepseek_cached_whole_heads_before_0_7_1() -> None:
    """128 heads: padded to 256 elements up to 0.6, 192 in 0.7.0, one latent of 576 after."""
    subject = checkpoint(DEEPSEEK_V3, quantization_config=None)
    per_token = {
        version: bytes_per_token(subject, version=version, tp=8, max_model_len=8192)
        for version in ("0.6.6", "0.7.0", "0.7.1")
    }
    assert per_token == {
        "0.6.6": 61 * 16 * 2 * 256 * 2,
        "0.7.0": 61 * 16 * 2 * 192 * 2,
        "0.7.1": 61 * 576 * 2,
    }


def test_minicpm3_is_not_run_as_mla() -> None:
    subject = checkpoint(MINICPM3)
    assert not runs_mla(subject.model, settings(subject))
    assert bytes_per_token(subject) == 62 * 40 * 2 * 96 * 2
    assert layout(subject, version="0.12.0").block_size == 16


def test_gemma_4_keys_lie_in_the_values_place_too() -> None:
    """Five full layers, two heads of 512: as many bytes again as their key projections."""
    once = checkpoint(GEMMA_4_26B_A4B)
    text = GEMMA_4_26B_A4B["text_config"] | {"attention_k_eq_v": False, "num_global_key_value_heads": 2}
    (same,) = weights(once)
    (own,) = weights(checkpoint(GEMMA_4_26B_A4B, text_config=text | {"num_key_value_heads": 8}))
    keys = 5 * 2 * 512 * 2816 * 2
    # With projections of their own the full layers have eight heads, so four times the keys and the values.
    assert own.groups["attention"].total - same.groups["attention"].total == 6 * keys


def test_shared_kv_layers_lost_their_projections_in_0_30() -> None:
    text = GEMMA_4_26B_A4B["text_config"] | {"num_kv_shared_layers": 6}
    subject = checkpoint(GEMMA_4_26B_A4B, text_config=text)
    (before,), (after,) = weights(subject, version="0.29.0"), weights(subject, version="0.30.0")
    sliding, full = 5 * 2 * 8 * 256 * 2816, 2 * 2 * 512 * 2816
    assert before.groups["attention"].total - after.groups["attention"].total == 2 * (sliding + full)


@pytest.mark.parametrize(
    ("config", "version", "flags", "mode"),
    [
        (QWEN3_5_27B, "0.28.0", {}, "none"),
        (QWEN3_5_27B, "0.29.0", {}, "align"),
        (QWEN3_5_27B, "0.29.0", {"enable_prefix_caching": False}, "none"),
        (QWEN3_5_27B, "0.20.0", {"enable_prefix_caching": True}, "align"),
        (NEMOTRON_3_NANO_30B, "0.20.0", {"enable_prefix_caching": True}, "all"),
        (NEMOTRON_3_NANO_30B, "0.29.0", {"enable_prefix_caching": True}, "align"),
        (NEMOTRON_3_NANO_30B, "0.11.0", {"enable_prefix_caching": True}, "none"),
    ],
)
def test_states_kept_for_prefix_caching(
    config: dict[str, Any], version: str, flags: dict[str, Any], mode: str
) -> None:
    assert recurrent_mode(settings(checkpoint(config), version=version, **flags)) == mode


def test_index_keys_lie_beside_keys_and_values() -> None:
    """MiniMax-M3: sparse layers keep one bf16 index key of 128 a token, in the same group and block of 128."""
    subject = checkpoint(MINIMAX_M3)
    (group,) = layout(subject).groups
    kinds = [member.spec.kind for member in group.members]
    assert (kinds.count(KvKind.FULL), kinds.count(KvKind.INDEXER)) == (8, 6)
    assert group.spec.block_size == 128
    assert bytes_per_token(subject) == 8 * 4 * 2 * 128 * 2 + 6 * 128 * 2
