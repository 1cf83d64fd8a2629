"""Mixture-of-experts and latent-attention models: real dimensions, their patterns, names and exact totals.

Configs hold the keys of the published config.json that decide the layout; totals are those of the published
safetensors files.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from support import MIMO_V2_FLASH
from vramledger.errors import ConfigError
from vramledger.formats.dtypes import DType
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.mixers import (
    ChunkedAttention,
    CompressedAttention,
    DenseMlp,
    FullAttention,
    GatedDeltaNet,
    IndexedAttention,
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    ShortConvolution,
    SlidingWindowAttention,
)
from vramledger.models.model import Model
from vramledger.models.ngram import is_prime, primes_from
from vramledger.models.tensors import AxisKind, Component, Role, Tensor
from vramledger.units import ceil_div

DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GLM_5_2: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    "first_k_dense_replace": 3,
    "hidden_size": 6144,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "index_skip_topk_offset": 3,
    "index_topk": 2048,
    "index_topk_freq": 4,
    "intermediate_size": 12288,
    "kv_lora_rank": 512,
    "max_position_embeddings": 1048576,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 78,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "dtype": "bfloat16",
    "v_head_dim": 256,
    "vocab_size": 154880,
}
DEEPSEEK_V4_FLASH: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "compress_ratios": [0, 0, *([4, 128] * 20), 4, 0],
    "hc_mult": 4,
    "head_dim": 512,
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
GPT_OSS_120B: dict[str, Any] = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
    "sliding_window": 128,
    "vocab_size": 201088,
}
LONGCAT: dict[str, Any] = {
    "model_type": "longcat_flash",
    "expert_ffn_hidden_size": 2048,
    "ffn_hidden_size": 12288,
    "hidden_size": 6144,
    "kv_lora_rank": 512,
    "max_position_embeddings": 131072,
    "moe_topk": 12,
    "n_routed_experts": 512,
    "num_attention_heads": 64,
    "num_layers": 28,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 131072,
    "zero_expert_num": 256,
}
LLAMA4_SCOUT: dict[str, Any] = {
    "model_type": "llama4_text",
    "attention_chunk_size": 8192,
    "head_dim": 128,
    "hidden_size": 5120,
    "interleave_moe_layer_step": 1,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "max_position_embeddings": 10485760,
    "num_attention_heads": 40,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "num_local_experts": 16,
    "torch_dtype": "bfloat16",
    "vocab_size": 202048,
}
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen2_moe",
    "decoder_sparse_step": 1,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "max_position_embeddings": 8192,
    "max_window_layers": 21,
    "moe_intermediate_size": 1408,
    "num_attention_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 16,
    "shared_expert_intermediate_size": 5632,
    "sliding_window": 32768,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "vocab_size": 32000,
}


def model(base: dict[str, Any], **more: Any) -> Model:
    return describe(Config({**base, **more}, "config.json"), "a/model")


def stored_elements(described: Model) -> int:
    """Everything a checkpoint holds: parameters, draft layers and buffers."""
    return sum(tensor.total_elements for tensor in described.tensors)


def tensor(described: Model, name: str) -> Tensor:
    found = [item for item in described.tensors if item.name == name]
    assert len(found) == 1, f"{name}: {len(found)} found"
    return found[0]


def mixer_types(described: Model) -> Counter[str]:
    return Counter(type(mixer).__name__ for layer in described.layers for mixer in layer.token_mixers)


def test_deepseek_v3_stores_its_published_elements_and_576_per_token_and_layer() -> None:
    described = model(DEEPSEEK_V3)
    # R1's safetensors total, which counts no scales; it includes the draft block and the router's biases.
    assert stored_elements(described) == 684_489_845_504
    assert described.parameter_counts().total == 671_026_404_352
    mixers = [layer.token_mixers[0] for layer in described.layers]
    assert all(isinstance(mixer, LatentAttention) for mixer in mixers)
    per_token = sum(mixer.kv_elements_per_token for mixer in mixers if isinstance(mixer, LatentAttention))
    assert 2 * per_token == 70_272


def test_deepseek_v3_is_dense_in_its_first_layers_only() -> None:
    channels = [layer.channel_mixer for layer in model(DEEPSEEK_V3).layers]
    assert channels[:3] == [DenseMlp(intermediate=18432, gated=True)] * 3
    moe = MixtureOfExperts(num_experts=256, top_k=8, intermediate=2048, shared_intermediate=2048)
    assert channels[3:] == [moe] * 58


def test_deepseek_v3_quantises_just_what_its_published_scales_cover() -> None:
    # V3's safetensors total is R1's plus one scale for each 128 x 128 block of a quantised matrix.
    blocks = sum(
        ceil_div(item.shape[-2], 128)
        * ceil_div(item.shape[-1], 128)
        * (item.num_experts or 1)
        * item.repetitions
        for item in model(DEEPSEEK_V3).tensors
        if item.linear and item.role is not Role.LM_HEAD
    )
    assert blocks == 684_531_386_000 - 684_489_845_504


@pytest.mark.parametrize(
    ("base", "count", "drafts"),
    [(DEEPSEEK_V3, 61, 1), (DEEPSEEK_V4_FLASH, 43, 1), (LONGCAT, 28, 1), (MIMO_V2_FLASH, 48, 3)],
)
def test_draft_layers_are_numbered_after_the_last_layer(
    base: dict[str, Any], count: int, drafts: int
) -> None:
    described = model(base)
    assert described.num_layers == count
    assert [layer.index for layer in described.draft_layers] == list(range(count, count + drafts))


def test_low_rank_widths_are_kept_whole_and_heads_are_not() -> None:
    described = model(DEEPSEEK_V3)
    main = {
        item.name.rpartition("self_attn.")[2]: item.axes[0][0].kind
        for item in described.tensors
        if item.component is Component.DECODER and "self_attn" in item.name and item.linear
    }
    assert main["q_a_proj.weight"] is AxisKind.LATENT
    assert main["kv_a_proj_with_mqa.weight"] is AxisKind.LATENT
    assert main["q_b_proj.weight"] is AxisKind.Q_HEADS
    assert main["kv_b_proj.weight"] is AxisKind.Q_HEADS


def test_router_bias_is_a_single_precision_buffer() -> None:
    biases = [item for item in model(DEEPSEEK_V3).tensors if item.name.endswith("e_score_correction_bias")]
    assert [(item.dtype, item.parameter, item.repetitions) for item in biases] == [
        (DType.F32, False, 58),
        (DType.F32, False, 1),
    ]


def test_a_null_query_rank_projects_directly_and_a_missing_one_is_refused() -> None:
    described = model(DEEPSEEK_V3, q_lora_rank=None, num_nextn_predict_layers=0)
    assert tensor(described, "model.layers.{layer}.self_attn.q_proj.weight").shape == (128 * 192, 7168)
    without = {key: value for key, value in DEEPSEEK_V3.items() if key != "q_lora_rank"}
    with pytest.raises(ConfigError, match="q_lora_rank"):
        model(without)


def test_glm_5_2_keeps_index_keys_in_every_fourth_layer_and_the_first_three() -> None:
    described = model(GLM_5_2)
    keeps = [
        layer.index
        for layer in described.layers
        for mixer in layer.token_mixers
        if isinstance(mixer, LatentAttention) and mixer.indexer is not None and mixer.indexer.keeps_keys
    ]
    assert keeps == [0, 1, *range(2, 78, 4)]
    assert stored_elements(described) == 753_329_940_480
    indexer = [item for item in described.tensors if item.name.endswith("indexer.wk.weight")]
    assert [item.layers for item in indexer] == [tuple(keeps), (78,)]


def test_glm_5_runs_an_indexer_everywhere() -> None:
    described = model(GLM_5_2, index_topk_freq=1)
    assert stored_elements(described) == 753_864_139_008


def test_an_index_pattern_in_letters_is_read() -> None:
    described = model(GLM_5_2, index_topk_pattern="FS" * 39)
    tensors = [item for item in described.tensors if item.name.endswith("indexer.wk.weight")]
    assert tensors[0].layers == tuple(range(0, 78, 2))
    with pytest.raises(ConfigError, match="index_topk_pattern"):
        model(GLM_5_2, index_topk_pattern="FX")


def test_deepseek_v4_stores_its_published_elements() -> None:
    described = model(DEEPSEEK_V4_FLASH)
    assert stored_elements(described) == 290_944_616_402
    mixers = [layer.token_mixers[0] for layer in described.layers]
    ratios = Counter(mixer.compress_ratio for mixer in mixers if isinstance(mixer, CompressedAttention))
    assert ratios == {0: 2, 4: 21, 128: 20}
    indexed = [m for m in mixers if isinstance(m, CompressedAttention) and m.indexer is not None]
    assert {mixer.compress_ratio for mixer in indexed} == {4}


def test_deepseek_v4_routes_its_first_layers_by_token_id() -> None:
    described = model(DEEPSEEK_V4_FLASH)
    table = tensor(described, "layers.{layer}.ffn.gate.tid2eid")
    assert (table.layers, table.shape, table.dtype, table.parameter) == (
        (0, 1, 2),
        (129280, 6),
        DType.I64,
        False,
    )
    assert tensor(described, "layers.{layer}.ffn.gate.bias").layers == tuple(range(3, 43))


def test_deepseek_v4_has_a_scaled_and_a_plain_rotary_table() -> None:
    plain, scaled = model(DEEPSEEK_V4_FLASH).rope
    assert (plain.scaling, plain.rotary_dim) == ("default", 64)
    assert (scaled.scaling, scaled.factor, scaled.original_positions) == ("yarn", 16, 65536)
    (only,) = model(DEEPSEEK_V4_FLASH, compress_ratios=[128] * 43).rope
    assert only == scaled


@pytest.mark.parametrize("ratios", [[0] * 42, [7] * 43, None])
def test_deepseek_v4_needs_a_ratio_it_knows_for_every_layer(ratios: list[int] | None) -> None:
    with pytest.raises(ConfigError, match="compress_ratios"):
        model(DEEPSEEK_V4_FLASH, compress_ratios=ratios)


def test_gpt_oss_alternates_windows_and_counts_its_biases_and_sinks() -> None:
    described = model(GPT_OSS_120B)
    assert stored_elements(described) == 116_829_156_672
    assert described.dtype is DType.BF16
    assert any("bfloat16" in note for note in described.notes)
    mixers = [layer.token_mixers[0] for layer in described.layers]
    assert [isinstance(mixer, SlidingWindowAttention) for mixer in mixers] == [True, False] * 18
    sinks = tensor(described, "model.layers.{layer}.self_attn.sinks")
    assert (sinks.role, sinks.shape) == (Role.SINKS, (64,))
    bias = tensor(described, "model.layers.{layer}.mlp.experts.gate_up_proj_bias")
    assert (bias.shape, bias.linear) == ((128, 5760), False)


def test_longcat_zero_experts_have_a_router_row_and_no_matrices() -> None:
    described = model(LONGCAT)
    assert stored_elements(described) == 561_862_880_256
    assert tensor(described, "model.layers.{layer}.mlp.router.classifier.weight").shape == (768, 6144)
    assert tensor(described, "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight").num_experts == 512
    assert all(len(layer.token_mixers) == 2 for layer in described.layers)
    assert any("zero experts" in note for note in described.notes)


def test_mimo_keeps_narrower_values_and_more_heads_in_its_windows() -> None:
    described = model(MIMO_V2_FLASH)
    full, local = described.layers[0].token_mixers[0], described.layers[1].token_mixers[0]
    assert isinstance(full, FullAttention)
    assert not isinstance(full, SlidingWindowAttention)
    assert full.kv_elements_per_token == 4 * (192 + 128)
    assert isinstance(local, SlidingWindowAttention)
    assert (local.kv_elements_per_token, local.window) == (8 * (192 + 128), 128)
    assert mixer_types(described) == {"SlidingWindowAttention": 39, "FullAttention": 9}
    sinks = [item for item in described.tensors if item.role is Role.SINKS]
    assert [(item.component, item.repetitions) for item in sinks] == [
        (Component.DECODER, 39),
        (Component.DRAFT, 3),
    ]
    assert described.rope[0].rotary_dim == 64


def test_mimo_total_is_the_published_one_without_scales() -> None:
    # 309 785 318 400 published; its FP8 scales follow from 128 x 128 blocks, with the keys of a full layer
    # quantised head by head (192 rows take two blocks).
    sparse_scales = 47 * 256 * 3 * (2048 // 128) * (4096 // 128)
    query, dense = 96 * 32, 3 * 128 * 32
    full, local = query + (4 * 2 + 4) * 32, query + (12 + 8) * 32
    scales = sparse_scales + dense + 9 * full + 39 * local + 3 * (local + dense)
    assert stored_elements(model(MIMO_V2_FLASH)) == 309_785_318_400 - scales


def test_llama_4_is_local_but_for_every_fourth_layer() -> None:
    described = model(LLAMA4_SCOUT)
    assert mixer_types(described) == {"ChunkedAttention": 36, "FullAttention": 12}
    local = described.layers[0].token_mixers[0]
    assert isinstance(local, ChunkedAttention)
    assert local.chunk == 8192
    assert not isinstance(described.layers[3].token_mixers[0], ChunkedAttention)
    assert mixer_types(model(LLAMA4_SCOUT, attention_chunk_size=None)) == {"FullAttention": 48}


def test_llama_4_experts_are_fused_unless_quantised() -> None:
    fused = tensor(model(LLAMA4_SCOUT), "model.layers.{layer}.feed_forward.experts.gate_up_proj")
    assert fused.shape == (16, 5120, 2 * 8192)
    quantised = model(LLAMA4_SCOUT, quantization_config={"quant_method": "compressed-tensors"})
    one = tensor(quantised, "model.layers.{layer}.feed_forward.experts.{expert}.down_proj.weight")
    assert one.shape == (16, 5120, 8192)
    assert stored_elements(quantised) == stored_elements(model(LLAMA4_SCOUT))


def test_llama_4_maverick_has_experts_in_every_second_layer() -> None:
    described = model(LLAMA4_SCOUT, interleave_moe_layer_step=2, num_local_experts=128)
    sparse = [isinstance(layer.channel_mixer, MixtureOfExperts) for layer in described.layers]
    assert sparse == [False, True] * 24
    assert described.intermediate_size == 16384


def test_qwen_1_5_moe_gates_its_shared_expert_and_has_no_window() -> None:
    described = model(QWEN_MOE)
    assert stored_elements(described) == 14_315_784_192
    assert mixer_types(described) == {"FullAttention": 24}
    assert tensor(described, "model.layers.{layer}.mlp.shared_expert_gate.weight").shape == (1, 2048)


def test_qwen_2_moe_windows_only_where_the_switch_is_on() -> None:
    described = model(QWEN_MOE, use_sliding_window=True)
    windows = [
        layer.index for layer in described.layers if isinstance(layer.token_mixers[0], SlidingWindowAttention)
    ]
    assert windows == list(range(0, 21, 2))


def test_mixtral_names_its_experts_one_by_one() -> None:
    described = model(MIXTRAL)
    assert stored_elements(described) == 46_702_792_704
    down = tensor(described, "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight")
    assert (down.role, down.shape, down.num_experts) == (Role.EXPERT_DOWN, (8, 4096, 14336), 8)
    router = tensor(described, "model.layers.{layer}.block_sparse_moe.gate.weight")
    assert (router.role, router.linear) == (Role.ROUTER, False)
    assert described.parameter_counts().active == 12_879_925_248


def test_a_mixtral_with_a_window_is_windowed_in_every_layer() -> None:
    assert mixer_types(model(MIXTRAL, sliding_window=4096)) == {"SlidingWindowAttention": 32}


def test_minimax_text_attends_in_every_eighth_layer() -> None:
    described = model(
        MIXTRAL,
        model_type="minimax",
        attn_type_list=[0, 0, 0, 0, 0, 0, 0, 1] * 10,
        head_dim=128,
        hidden_size=6144,
        intermediate_size=9216,
        num_attention_heads=64,
        num_hidden_layers=80,
        num_local_experts=32,
        rotary_dim=64,
        vocab_size=200064,
    )
    assert stored_elements(described) == 456_089_655_296
    assert mixer_types(described) == {"LinearAttention": 70, "FullAttention": 10}
    assert described.layers[0].token_mixers == (LinearAttention(heads=64, head_dim=128),)
    assert described.rope[0].rotary_dim == 64


def test_minimax_m3_keeps_one_index_key_beside_keys_and_values() -> None:
    flags = [0, 0, 0, *([1] * 57)]
    described = model(
        MIXTRAL,
        model_type="minimax_m3",
        dense_intermediate_size=12288,
        head_dim=128,
        hidden_size=6144,
        intermediate_size=3072,
        moe_layer_freq=flags,
        num_attention_heads=64,
        num_experts_per_tok=4,
        num_hidden_layers=60,
        num_key_value_heads=4,
        num_local_experts=128,
        rotary_dim=64,
        shared_intermediate_size=3072,
        sparse_attention_config={
            "sparse_attention_freq": flags,
            "sparse_block_size": 128,
            "sparse_index_dim": 128,
            "sparse_num_index_heads": 4,
            "sparse_topk_blocks": 16,
        },
        vocab_size=200064,
    )
    mixer = described.layers[3].token_mixers[0]
    assert isinstance(mixer, IndexedAttention)
    assert (mixer.kv_elements_per_token, mixer.indexer.head_dim) == (4 * 256, 128)
    assert mixer.indexer.top_k == 2048
    assert mixer_types(described) == {"IndexedAttention": 57, "FullAttention": 3}
    # The rest of the published 427 040 140 160 is the vision tower and its projector.
    assert described.parameter_counts().total == 426_174_565_632


def test_laguna_has_more_query_heads_in_windows() -> None:
    described = model(
        MIXTRAL,
        model_type="laguna",
        head_dim=128,
        hidden_size=2048,
        intermediate_size=8192,
        layer_types=["full_attention", *(["sliding_attention"] * 3)] * 10,
        mlp_layer_types=["dense", *(["sparse"] * 39)],
        moe_intermediate_size=512,
        num_attention_heads=48,
        num_attention_heads_per_layer=[48, 64, 64, 64] * 10,
        num_experts=256,
        num_experts_per_tok=8,
        num_hidden_layers=40,
        shared_expert_intermediate_size=512,
        sliding_window=512,
        vocab_size=100352,
    )
    assert stored_elements(described) == 33_442_617_088
    full, local = described.layers[0].token_mixers[0], described.layers[1].token_mixers[0]
    assert isinstance(full, FullAttention)
    assert isinstance(local, SlidingWindowAttention)
    assert (full.q_heads, local.q_heads, full.kv_heads, local.kv_heads) == (48, 64, 8, 8)
    assert [table.rotary_dim for table in described.rope] == [64, 128]


def test_ernie_draft_block_is_dense_and_listed_when_the_file_counts_it() -> None:
    ernie: dict[str, Any] = {
        "model_type": "ernie4_5_moe",
        "hidden_size": 2560,
        "intermediate_size": 12288,
        "max_position_embeddings": 131072,
        "moe_intermediate_size": 1536,
        "moe_k": 6,
        "moe_num_experts": 64,
        "moe_num_shared_experts": 2,
        "num_attention_heads": 20,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "num_nextn_predict_layers": 1,
        "torch_dtype": "bfloat16",
        "vocab_size": 103424,
    }
    described = model(ernie)
    assert stored_elements(described) == 21_948_655_808
    assert described.tie_word_embeddings
    assert not any(item.role is Role.LM_HEAD for item in described.tensors)
    assert [type(layer.channel_mixer) for layer in described.draft_layers] == [DenseMlp]


def test_qwen_4_adds_a_convolution_where_it_embeds_ngrams() -> None:
    described = model(
        QWEN_MOE,
        model_type="qwen4_exp_text",
        head_dim=256,
        hc_count=4,
        hc_lowrank=320,
        hidden_size=2560,
        indexer_budget=2048,
        indexer_head_dim=128,
        indexer_n_heads=24,
        layer_types=[*(["linear_attention"] * 3), "qwen_sparse_attention"] * 12,
        linear_num_value_heads=48,
        moe_intermediate_size=640,
        num_attention_heads=24,
        num_experts=512,
        num_experts_per_tok=10,
        num_hidden_layers=48,
        num_key_value_heads=2,
        ple_layer_ids=[2],
        shared_expert_intermediate_size=640,
        vocab_size=248320,
    )
    assert mixer_types(described) == {"GatedDeltaNet": 36, "IndexedAttention": 12, "ShortConvolution": 1}
    delta, convolution = described.layers[1].token_mixers
    assert isinstance(delta, GatedDeltaNet)
    assert convolution == ShortConvolution(channels=4 * 2560, kernel=3 * 3 + 1)
    table = tensor(described, "model.layers.{layer}.ple.ple_embedding.ngram_embedding.weight")
    assert (table.layers, table.shape) == ((1,), (320_001_536, 160))


def test_primes_are_found_in_order_and_carmichael_numbers_are_not_among_them() -> None:
    assert primes_from(20, 5) == [23, 29, 31, 37, 41]
    assert primes_from(23, 1) == [23]
    assert not any(is_prime(value) for value in (0, 1, 9, 561, 1105, 1729, 25326001, 2_147_483_649))
    assert is_prime(2_147_483_647)


@pytest.mark.parametrize(
    ("base", "change", "key"),
    [
        (MIXTRAL, {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        (MIXTRAL, {"num_key_value_heads": 5}, "num_attention_heads"),
        (MIXTRAL, {"num_local_experts": -1}, "num_local_experts"),
        (MIMO_V2_FLASH, {"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern"),
        (MIMO_V2_FLASH, {"swa_num_key_value_heads": 7}, "swa_num_attention_heads"),
        (MIMO_V2_FLASH, {"moe_layer_freq": [1] * 47}, "moe_layer_freq"),
        (GLM_5_2, {"indexer_types": ["full"] * 77 + ["half"]}, "indexer_types"),
        (GPT_OSS_120B, {"layer_types": ["full_attention", "odd_attention"] * 18}, "layer_types"),
        (DEEPSEEK_V4_FLASH, {"o_groups": 5}, "num_attention_heads"),
        (LLAMA4_SCOUT, {"no_rope_layers": [1] * 5}, "no_rope_layers"),
        (QWEN_MOE, {"mlp_only_layers": ["x"]}, "mlp_only_layers"),
    ],
)
def test_a_config_that_does_not_add_up_names_the_key(
    base: dict[str, Any], change: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError, match=key) as caught:
        model(base, **change)
    assert "config.json" in caught.value.message
