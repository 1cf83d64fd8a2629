"""Domain truths of hybrid, recurrent and encoder-decoder models, on facts of their published configs."""

from __future__ import annotations

from typing import Any

import pytest

from vramledger.errors import ConfigError
from vramledger.formats.dtypes import DType
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.mixers import (
    CrossAttention,
    EncoderAttention,
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    LatentAttention,
    Mamba2,
    MixtureOfExperts,
    RwkvMixer,
    ShortConvolution,
    TokenMixer,
)
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Component, Role, Tensor

BAMBA: dict[str, Any] = {
    "model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "attn_rotary_emb": 64,
    "attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
    "mamba_d_state": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
FALCON_H1: dict[str, Any] = {
    "model_type": "falcon_h1", "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 44,
    "num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 130049,
    "mamba_d_ssm": 3072, "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
    "mamba_rms_norm": True, "torch_dtype": "bfloat16",
}  # fmt: skip
NEMOTRON_SUPER: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 4096, "vocab_size": 131072, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 2, "mamba_num_heads": 128, "mamba_head_dim": 64,
    "n_groups": 8, "ssm_state_size": 128, "moe_intermediate_size": 2688, "moe_latent_size": 1024,
    "moe_shared_expert_intermediate_size": 5376, "n_routed_experts": 512, "num_experts_per_tok": 22,
    "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
    "EMEMEMEM*EMEMEMEME", "mtp_hybrid_override_pattern": "*E", "num_nextn_predict_layers": 1,
    "mamba_ssm_cache_dtype": "float32", "max_position_embeddings": 262144, "dtype": "bfloat16",
}  # fmt: skip
QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936,
    "full_attention_interval": 4, "partial_rotary_factor": 0.25, "num_experts": 512,
    "num_experts_per_tok": 10, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
KIMI_LINEAR: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
    "num_attention_heads": 32, "vocab_size": 163840, "kv_lora_rank": 512, "q_lora_rank": None,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": True,
    "model_max_length": 1048576, "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "dtype": "bfloat16",
    "linear_attn_config": {
        "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
        "kda_layers": [i for i in range(1, 27) if i % 4],
    },
}  # fmt: skip
ZAMBA2: dict[str, Any] = {
    "model_type": "zamba2", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 54,
    "num_attention_heads": 32, "attention_head_dim": 160, "vocab_size": 32000, "num_mem_blocks": 2,
    "hybrid_layer_ids": [6, 12, 18, 24, 30, 36, 42, 47, 51], "n_mamba_heads": 80, "mamba_d_state": 64,
    "adapter_rank": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
WHISPER: dict[str, Any] = {
    "model_type": "whisper", "d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8,
    "encoder_ffn_dim": 2048, "decoder_layers": 6, "decoder_attention_heads": 8, "decoder_ffn_dim": 2048,
    "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51865,
}  # fmt: skip
RWKV5: dict[str, Any] = {
    "model_type": "rwkv5", "hidden_size": 2048, "attention_hidden_size": 2048, "head_size": 64,
    "num_hidden_layers": 24, "vocab_size": 65536, "context_length": 4096,
}  # fmt: skip
T5: dict[str, Any] = {
    "model_type": "t5", "d_model": 768, "d_ff": 2048, "d_kv": 64, "num_heads": 12, "num_layers": 12,
    "num_decoder_layers": 12, "vocab_size": 32128, "feed_forward_proj": "gated-gelu",
}  # fmt: skip


def model_of(base: dict[str, Any], **changes: Any) -> Model:
    return describe(Config({**base, **changes}, "config.json"), "org/model")


def layers_with(model: Model, kind: type[TokenMixer]) -> list[int]:
    return [layer.index for layer in model.layers if any(isinstance(m, kind) for m in layer.token_mixers)]


def tensor_of(model: Model, suffix: str, component: Component = Component.DECODER) -> Tensor:
    found = [t for t in model.tensors if t.name.endswith(suffix) and t.component is component]
    assert len(found) == 1, [t.name for t in found]
    return found[0]


def kv_elements_per_token(model: Model) -> int:
    return sum(
        mixer.kv_elements_per_token
        for layer in model.layers
        for mixer in layer.token_mixers
        if isinstance(mixer, FullAttention | LatentAttention)
    )


def test_bamba_keeps_kv_in_three_layers_only() -> None:
    model = model_of(BAMBA)
    assert layers_with(model, FullAttention) == [9, 18, 27]
    assert len(layers_with(model, Mamba2)) == 29
    assert kv_elements_per_token(model) == 3 * 2 * 8 * 128
    assert model.parameter_counts().total == 9_780_235_392
    assert [rope.rotary_dim for rope in model.rope] == [64]


def test_mamba2_projection_is_gate_x_b_c_and_a_step_size_a_head() -> None:
    (rows, _) = tensor_of(model_of(BAMBA), "mamba.in_proj.weight").axes
    assert [(part.kind, part.size, part.units) for part in rows] == [
        (AxisKind.SSM_HEADS, 8192, 128),
        (AxisKind.SSM_HEADS, 8192, 128),
        (AxisKind.SSM_GROUPS, 128, 1),
        (AxisKind.SSM_GROUPS, 128, 1),
        (AxisKind.SSM_HEADS, 128, 128),
    ]


def test_falcon_h1_mixes_twice_in_every_layer() -> None:
    model = model_of(FALCON_H1)
    every = list(range(44))
    assert layers_with(model, FullAttention) == every
    assert layers_with(model, Mamba2) == every
    assert model.parameter_counts().total == 7_585_654_880


def test_nemotron_layers_hold_one_thing_each_and_experts_work_in_the_latent_width() -> None:
    model = model_of(NEMOTRON_SUPER)
    assert layers_with(model, FullAttention) == [7, 16, 25, 36, 47, 58, 69, 78]
    assert kv_elements_per_token(model) == 8 * 2 * 2 * 128
    experts = [layer for layer in model.layers if isinstance(layer.channel_mixer, MixtureOfExperts)]
    assert len(experts) == 40
    assert all(not layer.token_mixers for layer in experts)
    assert tensor_of(model, "experts.{expert}.up_proj.weight").shape == (512, 2688, 1024)
    assert model.rope == ()
    assert model.state_dtype is DType.F32


def test_nemotron_mtp_is_what_the_published_count_has_more() -> None:
    counts = model_of(NEMOTRON_SUPER).parameter_counts()
    assert (counts.total, counts.total + counts.draft) == (120_668_687_360, 123_611_012_096)
    assert model_of(NEMOTRON_SUPER, num_nextn_predict_layers=0).parameter_counts().draft == 0


def test_qwen3_next_attends_in_every_fourth_layer() -> None:
    model = model_of(QWEN3_NEXT)
    assert layers_with(model, FullAttention) == list(range(3, 48, 4))
    assert model.layers[0].token_mixers == (
        GatedDeltaNet(k_heads=16, v_heads=32, k_dim=128, v_dim=128, conv_kernel=4),
    )
    assert kv_elements_per_token(model) == 12 * 2 * 2 * 256
    # The gate doubles the query rows of a head, not the heads.
    (rows, _) = tensor_of(model, "self_attn.q_proj.weight").axes
    assert [(part.size, part.units) for part in rows] == [(8192, 16)]
    counts = model.parameter_counts()
    assert (counts.total, counts.total + counts.draft) == (79_674_391_296, 81_324_862_720)


def test_qwen3_5_head_is_tied_by_the_outer_config() -> None:
    text = {
        "model_type": "qwen3_5_text", "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "linear_num_value_heads": 16, "vocab_size": 248320, "mtp_num_hidden_layers": 1,
        "max_position_embeddings": 262144, "dtype": "bfloat16", "mamba_ssm_dtype": "float32",
        "rope_parameters": {"rope_type": "default", "mrope_section": [11, 11, 10],
                            "partial_rotary_factor": 0.25},
    }  # fmt: skip
    vision = {
        "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16,
        "out_hidden_size": 2048, "deepstack_visual_indexes": [],
    }  # fmt: skip
    whole = {"model_type": "qwen3_5", "text_config": text, "vision_config": vision}
    counts = model_of(whole, tie_word_embeddings=True).parameter_counts()
    assert (counts.total, counts.total + counts.draft) == (2_213_241_664, 2_274_069_824)

    untied = model_of(whole, tie_word_embeddings=False)
    assert untied.parameter_counts().total == 2_213_241_664 + 248_320 * 2048
    (tower,) = untied.towers
    assert (tower.patches_per_token, tower.max_item_tokens) == (4, 16_384)
    assert (untied.rope[0].rotary_dim, untied.rope[0].scaling) == (64, "mrope")
    assert (untied.dtype, untied.state_dtype) == (DType.BF16, DType.F32)


def test_kimi_linear_keeps_one_latent_in_seven_layers() -> None:
    model = model_of(KIMI_LINEAR)
    assert layers_with(model, LatentAttention) == [3, 7, 11, 15, 19, 23, 26]
    assert len(layers_with(model, KimiDeltaAttention)) == 20
    assert kv_elements_per_token(model) == 7 * 576
    assert model.parameter_counts().total == 49_122_675_072
    bias = tensor_of(model, "e_score_correction_bias")
    assert (bias.total_elements, bias.parameter) == (6656, False)


def test_zamba2_blocks_have_weights_once_and_kv_a_run() -> None:
    model = model_of(ZAMBA2)
    runs = [6, 12, 18, 24, 30, 36, 42, 47, 51]
    assert layers_with(model, FullAttention) == runs
    assert len(layers_with(model, Mamba2)) == 54
    assert tensor_of(model, "shared_transformer.self_attn.q_proj.weight").layers == (6, 12)
    assert tensor_of(model, "gate_up_proj_adapter_list.{block}.1.weight").layers == tuple(runs)
    assert kv_elements_per_token(model) == 9 * 2 * 32 * 160
    assert model.parameter_counts().total == 2_662_214_560


def test_lfm2_width_is_two_thirds_rounded_up() -> None:
    config = {
        "model_type": "lfm2", "hidden_size": 2048, "block_ff_dim": 12288, "block_multiple_of": 256,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3,
    }  # fmt: skip
    model = model_of(config)
    assert model.intermediate_size == 8192
    assert model.layers[0].token_mixers == (ShortConvolution(channels=2048, kernel=3),)
    assert kv_elements_per_token(model) == 6 * 2 * 8 * 64
    assert model.parameter_counts().total == 1_170_340_608


def test_rwkv_state_does_not_grow_and_its_head_is_its_own() -> None:
    model = model_of(RWKV5, tie_word_embeddings=True)
    assert model.layers[0].token_mixers == (RwkvMixer(state_elements=2 * 2048 + 32 * 64 * 64),)
    assert kv_elements_per_token(model) == 0
    assert model.parameter_counts().total == 1_577_754_624
    assert any("tied" in note for note in model.notes)


def test_whisper_decoder_attends_to_itself_and_to_the_window_of_audio() -> None:
    model = model_of(WHISPER)
    assert len(layers_with(model, CrossAttention)) == 6
    own, cross = model.layers[0].token_mixers
    assert type(own) is FullAttention
    assert isinstance(cross, CrossAttention)
    assert cross.max_encoder_tokens == 1500
    assert all(isinstance(layer.token_mixers[0], EncoderAttention) for layer in model.encoder_layers)
    assert model.parameter_counts().total == 72_593_920
    assert not [t for t in model.tensors if t.name.endswith("k_proj.bias")]


def test_t5_head_is_counted_where_the_config_unties_it() -> None:
    tied, untied = model_of(T5), model_of(T5, tie_word_embeddings=False)
    assert tied.parameter_counts().total == 222_903_552
    assert untied.parameter_counts().total == 222_903_552 + 32_128 * 768
    assert tensor_of(tied, "relative_attention_bias.weight").layers == (0,)
    every = tensor_of(model_of(T5, model_type="umt5"), "relative_attention_bias.weight")
    assert every.layers == tuple(range(12))


def test_bart_position_tables_have_two_rows_more() -> None:
    side = {"layers": 12, "attention_heads": 16, "ffn_dim": 4096}
    keys = {f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in side.items()}
    model = model_of({"model_type": "bart", "d_model": 1024, "vocab_size": 50265, **keys})
    assert tensor_of(model, "decoder.embed_positions.weight").shape == (1026, 1024)
    assert model.parameter_counts().total == 406_291_456


def test_embedding_model_counts_positions_after_the_padding_index() -> None:
    model = model_of(
        {"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024,
         "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
         "vocab_size": 250002, "type_vocab_size": 1, "max_position_embeddings": 8194}
    )  # fmt: skip
    assert model.is_pooling
    assert model.max_position_embeddings == 8192
    assert model.parameter_counts().total == 567_754_752
    assert [t.role for t in model.tensors if t.name.startswith("pooler")] == [Role.OTHER, Role.OTHER]


@pytest.mark.parametrize(
    ("base", "changes", "key"),
    [
        (BAMBA, {"attn_layer_indices": [32]}, "attn_layer_indices"),
        (BAMBA, {"mamba_d_head": 61}, "mamba_n_heads"),
        (FALCON_H1, {"mamba_n_groups": 7}, "mamba_n_heads"),
        (NEMOTRON_SUPER, {"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        (NEMOTRON_SUPER, {"num_hidden_layers": 87}, "hybrid_override_pattern"),
        (NEMOTRON_SUPER, {"num_experts_per_tok": 513}, "num_experts_per_tok"),
        (QWEN3_NEXT, {"layer_types": ["full_attention"]}, "layer_types"),
        (QWEN3_NEXT, {"linear_num_value_heads": 33}, "linear_num_value_heads"),
        (KIMI_LINEAR, {"linear_attn_config": None}, "linear_attn_config"),
        (ZAMBA2, {"n_mamba_heads": 81}, "n_mamba_heads"),
        (WHISPER, {"decoder_attention_heads": 7}, "d_model"),
        (RWKV5, {"head_size": 60}, "attention_hidden_size"),
    ],
)
def test_a_config_that_cannot_be_is_refused_by_key(
    base: dict[str, Any], changes: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError, match=key):
        model_of(base, **changes)
