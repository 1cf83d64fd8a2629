"""Weights on a rank, against sums done by hand and against what start-up logs printed."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    DEEPSEEK_V3,
    DEEPSEEK_V3_2,
    GEMMA_3_27B,
    GEMMA_4_26B_A4B,
    GPT_OSS_20B,
    GPT_OSS_120B,
    H100,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    LLAMA_3_8B,
    MIXTRAL_8X7B,
    QWEN3_5_27B,
    QWEN3_5_35B_A3B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    QWEN3_32B_AWQ,
    QWEN3_235B_A22B_FP8,
    R1_DISTILL_QWEN_1_5B,
    SMOLLM2_135M,
    checkpoint,
    gib,
    tensor_bytes,
    weights,
)
from vramledger.hardware.catalogue import find_device
from vramledger.models.tensors import Component
from vramledger.units import round_up

B200 = find_device("B200")
MIB = 2**20
GPTQ_INT4 = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
FP8_OF_LLAMA_70B = {
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
}


def one(config: dict[str, Any], *, version: str = "0.33.0", **values: Any) -> int:
    """Tensor bytes of the only kind of rank."""
    (held,) = weights(checkpoint(config), H100, version, **values)
    return tensor_bytes(held)


def group(config: dict[str, Any], name: str, **values: Any) -> int:
    (held,) = weights(checkpoint(config), **values)
    return held.groups[name].total


# By hand


def test_llama_is_its_parameters_times_two_and_a_rope_table() -> None:
    (held,) = weights(checkpoint(LLAMA_3_1_8B))
    assert tensor_bytes(held) == 8_030_261_248 * 2 == 16_060_522_496
    assert held.rope_bytes == 131072 * 128 * 2 == 33_554_432
    assert tensor_bytes(held) + held.rope_bytes == 16_094_076_928


def test_llama_on_two_ranks_keeps_norms_and_rope_whole() -> None:
    (held,) = weights(checkpoint(LLAMA_3_1_8B), tp=2)
    assert tensor_bytes(held) + held.rope_bytes == 8_064_081_920
    assert held.groups["norms"].total == (2 * 32 + 1) * 4096 * 2
    assert held.groups["embedding"].total == held.groups["lm_head"].total == 128256 // 2 * 4096 * 2


def test_qwen3_30b_on_two_ranks() -> None:
    config = QWEN3_30B_A3B
    assert group(config, "embedding", tp=2) + group(config, "lm_head", tp=2) == 622_329_856
    layer_norms = 2 * 2048 + 2 * 128
    attention = (16 + 2 * 2) * 128 * 2048 + 2048 * 2048
    assert group(config, "attention", tp=2) == 48 * 2 * attention
    assert 2 * (attention + layer_norms) == 18_883_072
    assert group(config, "norms", tp=2) == 2 * (48 * layer_norms + 2048)
    assert group(config, "routers", tp=2) == 48 * 524_288
    assert group(config, "experts", tp=2) == 48 * 603_979_776
    assert one(config, tp=2) == 30_544_916_480


def test_whole_experts_on_half_the_ranks_are_as_many_bytes_as_half_of_all_experts() -> None:
    for config, ranks in ((QWEN3_30B_A3B, 2), (DEEPSEEK_V3, 8)):
        split = one(config, tp=ranks)
        assert one(config, tp=ranks, enable_expert_parallel=True) == split


def test_qwen3_30b_on_one_rank() -> None:
    (held,) = weights(checkpoint(QWEN3_30B_A3B))
    assert tensor_bytes(held) == 30_532_122_624 * 2
    assert round(gib(tensor_bytes(held) + held.rope_bytes), 2) == 56.88


def test_deepseek_v3_on_eight_ranks() -> None:
    (held,) = weights(checkpoint(DEEPSEEK_V3), tp=8)
    latent_norms = 61 * (1536 + 512) * 2
    assert held.groups["attention"].total + latent_norms == 61 * 36_647_776
    assert held.absorbed_bytes == 61 * 4_194_304 == 61 * 16 * 256 * 512 * 2
    assert held.groups["mlp"].total == 3 * 49_557_312
    assert held.groups["experts"].total == 58 * 1_409_630_208
    assert held.groups["shared experts"].total == 58 * 5_506_368
    assert held.groups["routers"].total == 58 * 3_671_040
    assert held.groups["embedding"].total + held.groups["lm_head"].total == 463_339_520
    assert tensor_bytes(held) == 85_395_983_392
    assert 0.0195 <= gib(held.rope_bytes) <= 0.04


def test_unquantised_latent_attention_needs_no_second_copy_of_its_up_projection() -> None:
    plain = {name: value for name, value in DEEPSEEK_V3.items() if name != "quantization_config"}
    (held,) = weights(checkpoint(plain), tp=8)
    assert held.absorbed_bytes == 0


def test_gemma_3_keeps_one_table_for_each_of_its_two_ropes() -> None:
    (held,) = weights(checkpoint(GEMMA_3_27B))
    glob, local = 131072 * 8 * 128 * 2, 131072 * 128 * 2
    assert glob == 256 * MIB
    assert held.rope_bytes == glob + local
    tower = held.groups["vision tower"].total + held.groups["projector"].total
    assert round(gib(tower), 3) == 0.788
    assert round(gib(tensor_bytes(held) - tower), 3) == 50.309
    assert round(gib(tensor_bytes(held) + held.rope_bytes), 3) == 51.378


@pytest.mark.parametrize(("config", "size"), [(GPT_OSS_20B, 13_761_264_768), (GPT_OSS_120B, 65_248_815_744)])
def test_gpt_oss_is_as_large_as_its_published_files(config: dict[str, Any], size: int) -> None:
    assert checkpoint(config).disk_bytes == size


@pytest.mark.parametrize(
    ("device", "version", "backend", "intermediate", "hidden", "bias_bytes"),
    [
        ("H100-80GB", "0.33.0", "marlin", 2944, 3072, 2),
        ("A100-80GB", "0.33.0", None, 2944, 3072, 2),
        ("B200", "0.33.0", None, 2944, 3072, 4),
        ("B200", "0.10.2", None, 3072, 3072, 4),
    ],
)
def test_gpt_oss_experts_are_padded_as_their_kernel_wants(
    device: str, version: str, backend: str | None, intermediate: int, hidden: int, bias_bytes: int
) -> None:
    (held,) = weights(checkpoint(GPT_OSS_20B), find_device(device), version, moe_backend=backend)
    elements = 3 * intermediate * hidden
    expert = elements // 2 + elements // 32 + (2 * intermediate + hidden) * bias_bytes
    assert held.groups["experts"].total == 24 * 32 * expert


def test_gpt_oss_on_hopper_swizzles_scales_and_pads_nothing_else() -> None:
    (held,) = weights(checkpoint(GPT_OSS_20B))
    elements = 3 * 2880 * 2880
    scales = (round_up(2 * 2880, 256) + round_up(2880, 256)) * round_up(2880 // 32, 2)
    assert held.groups["experts"].total == 24 * 32 * (elements // 2 + scales + 3 * 2880 * 4)


def test_gpt_oss_on_blackwell_as_a_published_log_has_it() -> None:
    (held,) = weights(checkpoint(GPT_OSS_20B), B200)
    assert held.rope_bytes == 131072 * 64 * 4
    assert round(gib(tensor_bytes(held) + held.rope_bytes), 4) == 13.7152


@pytest.mark.parametrize(
    ("config", "values", "expected"),
    [
        (LLAMA_3_1_8B, {}, 14.958),
        (LLAMA_3_1_8B, {"tp": 8}, 1.870),
        (QWEN3_32B, {"tp": 2}, 30.513),
        (QWEN3_30B_A3B, {"tp": 8}, 7.153),
        (MIXTRAL_8X7B, {"tp": 2}, 43.497),
        (GPT_OSS_120B, {}, 60.965),
        (GEMMA_4_26B_A4B, {"tp": 8}, 6.984),
        (QWEN3_5_35B_A3B, {}, 65.392),
        (QWEN3_32B_AWQ, {}, 17.998),
    ],
)
def test_weights_of_one_rank_in_gib(config: dict[str, Any], values: dict[str, Any], expected: float) -> None:
    assert round(gib(one(config, **values)), 3) == expected


def test_gemma_4_keeps_the_keys_of_full_layers_a_second_time_as_values() -> None:
    (held,) = weights(checkpoint(GEMMA_4_26B_A4B), tp=8)
    second = 5 * 512 * 2816 * 2
    assert round(gib(tensor_bytes(held) - second), 3) == 6.971


@pytest.mark.parametrize(("ranks", "expected"), [(8, 79.293), (16, 40.177)])
def test_deepseek_v3_beside_its_absorbed_copies(ranks: int, expected: float) -> None:
    (held,) = weights(checkpoint(DEEPSEEK_V3), tp=ranks)
    assert round(gib(tensor_bytes(held) - held.absorbed_bytes), 3) == expected


def test_llama_70b_in_fp8_of_a_quantisation_file() -> None:
    (held,) = weights(checkpoint(LLAMA_3_1_70B, hf_quant=FP8_OF_LLAMA_70B))
    assert round(gib(tensor_bytes(held)), 3) == 67.667


# Start-up logs: "Model loading took". Tensors and rope tables, to the log's digits or the share that the
# allocator's rounding may add.


@pytest.mark.parametrize(
    ("config", "version", "values", "printed"),
    [
        (LLAMA_3_1_8B, "0.8.5", {}, 14.9889),
        (LLAMA_3_8B, "0.6.6", {}, 14.9595),
        (LLAMA_3_8B, "0.6.6", {"tp": 2}, 7.4829),
        (R1_DISTILL_QWEN_1_5B, "0.7.0", {}, 3.3414),
        (
            QWEN3_235B_A22B_FP8 | {"max_position_embeddings": 262144},
            "0.10.2",
            {"tp": 8, "enable_expert_parallel": True},
            27.7183,
        ),
        (GEMMA_3_27B, "0.19.0", {}, 51.45),
    ],
)
def test_what_logs_printed(
    config: dict[str, Any], version: str, values: dict[str, Any], printed: float
) -> None:
    (held,) = weights(checkpoint(config), H100, version, **values)
    assert gib(held.total_bytes) == pytest.approx(printed, rel=2e-3)
    assert gib(tensor_bytes(held) + held.rope_bytes) <= printed + 5e-4


# Rules


def test_vocabulary_rows_are_padded_to_64_before_they_are_cut() -> None:
    odd = LLAMA_3_1_8B | {"vocab_size": 32001}
    rows = 32064
    assert group(odd, "embedding") == group(odd, "lm_head") == 32064 * 4096 * 2
    assert group(odd, "embedding", tp=4) == rows // 4 * 4096 * 2


def test_a_tied_head_is_one_tensor_unless_it_sits_on_another_stage() -> None:
    tied = checkpoint(SMOLLM2_135M)
    (alone,) = weights(tied)
    assert "lm_head" not in alone.groups
    table = 49152 * 576 * 2
    first, last = weights(tied, pp=2)
    assert first.groups["embedding"].total == last.groups["embedding"].total == table
    assert tensor_bytes(first) + tensor_bytes(last) == tensor_bytes(alone) + table


def test_an_untied_head_and_the_last_norm_sit_on_the_last_stage() -> None:
    first, last = weights(checkpoint(LLAMA_3_1_8B), pp=2)
    assert "lm_head" not in first.groups
    assert "embedding" not in last.groups
    assert last.groups["norms"].total - first.groups["norms"].total == 4096 * 2
    assert tensor_bytes(first) + tensor_bytes(last) == 16_060_522_496


@pytest.mark.parametrize(("ranks", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (32, 1)])
def test_key_and_value_heads_are_replicated_beyond_their_count(ranks: int, heads: int) -> None:
    rows = 32 // ranks * 128 + 2 * heads * 128
    expected = 32 * 2 * (rows * 4096 + 4096 * 32 // ranks * 128)
    assert group(LLAMA_3_1_8B, "attention", tp=ranks) == expected


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_routers_and_down_projections_of_latents_are_whole_on_every_rank(ranks: int) -> None:
    assert group(DEEPSEEK_V3, "routers", tp=ranks) == group(DEEPSEEK_V3, "routers")
    whole = 61 * (1536 + 512 + 64) * 7168
    cut = 61 * 128 * ((128 + 64) * 1536 + 256 * 512 + 7168 * 128) // ranks
    held = weights(checkpoint(DEEPSEEK_V3), tp=ranks)[0].groups["attention"]
    assert held.elements == whole + cut


def test_the_indexer_of_sparse_attention_is_whole_on_every_rank() -> None:
    def indexer(ranks: int) -> int:
        return group(DEEPSEEK_V3_2, "attention", tp=ranks) - group(DEEPSEEK_V3, "attention", tp=ranks)

    assert indexer(1) == indexer(8) > 0


def test_the_scales_of_fp8_blocks_cover_the_fused_matrix() -> None:
    held = weights(checkpoint(QWEN3_235B_A22B_FP8), tp=8)[0].groups["attention"]
    rows, inner = (8 + 2) * 128, 8 * 128
    assert held.scales == 94 * 4 * (rows // 128 * 32 + 32 * inner // 128)


def test_awq_keeps_words_scales_and_zero_points() -> None:
    held = weights(checkpoint(QWEN3_32B_AWQ))[0].groups["mlp"]
    matrix = 5120 * 25600
    assert held.elements == 64 * 3 * matrix // 2
    assert held.scales == 64 * 3 * matrix // 128 * 5 // 2


def test_draft_layers_are_loaded_only_when_speculation_asks_for_them() -> None:
    from vramledger.engines.vllm.flags import Speculation

    for config, extra in ((DEEPSEEK_V3, 10.0), (QWEN3_5_27B, 0.7)):
        subject = checkpoint(config)
        assert any(item.tensor.component is Component.DRAFT for item in subject.stored)
        (without,) = weights(subject)
        (with_draft,) = weights(subject, speculative=Speculation(method="mtp", num_speculative_tokens=1))
        (ngram,) = weights(subject, speculative=Speculation(method="ngram", num_speculative_tokens=3))
        assert "draft" not in without.groups
        assert ngram.groups == without.groups
        assert gib(with_draft.groups["draft"].total) > extra


def test_a_draft_shares_the_ends_of_its_target_on_one_stage_since_0_12() -> None:
    from vramledger.engines.vllm.flags import Speculation

    drafts = Speculation(method="mtp", num_speculative_tokens=1)
    ends = 2 * 129280 * 7168 * 2
    (before,) = weights(checkpoint(DEEPSEEK_V3), version="0.11.2", speculative=drafts)
    (since,) = weights(checkpoint(DEEPSEEK_V3), version="0.12.0", speculative=drafts)
    assert before.groups["draft"].total - since.groups["draft"].total == ends
    last = weights(checkpoint(DEEPSEEK_V3), version="0.12.0", pp=2, speculative=drafts)[-1]
    assert last.groups["draft"].total == before.groups["draft"].total


def test_experts_that_break_groups_are_kept_unpadded_in_smaller_groups() -> None:
    """192 of 768 are no whole number of groups of 128: half-byte elements and a scale for every 64, no padding."""
    config = QWEN3_30B_A3B | {"torch_dtype": "float16", "quantization_config": GPTQ_INT4}
    (held,) = weights(checkpoint(config), version="0.32.0", tp=4)
    elements = 48 * 128 * 3 * 192 * 2048
    assert held.groups["experts"].padding == 0
    assert held.groups["experts"].elements == elements // 2
    assert held.groups["experts"].scales == elements // 64 * 2


def test_models_that_build_both_ends_on_every_stage() -> None:
    ends = 151936 * 2048 * 2
    for part in weights(checkpoint(QWEN3_30B_A3B), pp=2):
        assert part.groups["embedding"].total == part.groups["lm_head"].total == ends
    first, last = weights(checkpoint(QWEN3_32B), pp=2)
    assert "lm_head" not in first.groups
    assert "embedding" not in last.groups


def test_no_tower_is_built_for_a_model_that_only_reads_text() -> None:
    (with_tower,) = weights(checkpoint(GEMMA_3_27B))
    (without,) = weights(checkpoint(GEMMA_3_27B), language_model_only=True)
    tower = with_tower.groups["vision tower"].total + with_tower.groups["projector"].total
    assert tensor_bytes(with_tower) - tensor_bytes(without) == tower


def test_a_tower_is_whole_on_every_rank_when_data_is_what_is_cut() -> None:
    (alone,) = weights(checkpoint(GEMMA_3_27B))
    (cut,) = weights(checkpoint(GEMMA_3_27B), tp=4)
    (whole,) = weights(checkpoint(GEMMA_3_27B), tp=4, mm_encoder_tp_mode="data")
    assert whole.groups["vision tower"].total == alone.groups["vision tower"].total
    assert cut.groups["vision tower"].total < alone.groups["vision tower"].total


STARCODER: dict[str, Any] = {
    "model_type": "gpt_bigcode",
    "n_embd": 6144,
    "n_head": 48,
    "n_inner": 24576,
    "n_layer": 40,
    "n_positions": 8192,
    "torch_dtype": "float16",
    "vocab_size": 49153,
}


def test_mlps_of_gpt_bigcode_are_whole_once_transformers_runs_it() -> None:
    """26,051,907,584 bytes are what 0.32.0 builds on each of four ranks; its own class divided the MLPs."""
    (through_transformers,) = weights(checkpoint(STARCODER), version="0.32.0", tp=4)
    assert tensor_bytes(through_transformers) == 26_051_907_584
    (own_class,) = weights(checkpoint(STARCODER), version="0.24.0", tp=4)
    mlp = 40 * 2 * (2 * 24576 * 6144 + 24576 + 6144)
    assert through_transformers.groups["mlp"].total == mlp
    assert own_class.groups["mlp"].total == 40 * 2 * (2 * 24576 * 6144 + 24576) // 4 + 40 * 2 * 6144


def test_a_card_without_fp8_units_holds_the_same_elements_and_no_more_than_two_bytes_a_row_of_scales() -> (
    None
):
    subject = checkpoint(LLAMA_3_1_70B, hf_quant=FP8_OF_LLAMA_70B)
    (ampere,) = weights(subject, find_device("A100-80GB"))
    (hopper,) = weights(subject)
    assert ampere.groups["mlp"].elements == hopper.groups["mlp"].elements
    assert ampere.groups["mlp"].scales == 80 * 2 * (2 * 28672 + 8192)


def test_online_fp8_leaves_embedding_head_norms_and_routers_alone() -> None:
    (plain,) = weights(checkpoint(QWEN3_30B_A3B))
    (fp8,) = weights(checkpoint(QWEN3_30B_A3B), quantization="fp8")
    for name in ("embedding", "lm_head", "norms", "routers"):
        assert fp8.groups[name].total == plain.groups[name].total
    for name in ("attention", "experts"):
        assert fp8.groups[name].elements * 2 == plain.groups[name].elements


def test_a_single_precision_checkpoint_runs_in_two_bytes_unless_told_otherwise() -> None:
    single = LLAMA_3_8B | {"torch_dtype": "float32"}
    assert one(single) == 8_030_261_248 * 2
    assert one(single, dtype="float32") == 8_030_261_248 * 4


def test_weights_are_the_same_on_cards_with_and_without_fast_links() -> None:
    """What a slow link costs is time; it holds no bytes."""
    fast, slow = find_device("H100-80GB"), find_device("H100-PCIe")
    left, right = weights(checkpoint(LLAMA_3_1_8B), fast, tp=4), weights(checkpoint(LLAMA_3_1_8B), slow, tp=4)
    assert left == right
