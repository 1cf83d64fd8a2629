"""Multimodal models: real dimensions, published totals, what towers give the text model, names, refusals.

Configs hold the keys of the published config.json that decide the layout; totals are those of the published
safetensors files.
"""

from __future__ import annotations

from collections import Counter
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
    LatentAttention,
    MixtureOfExperts,
    SharedKvAttention,
    SlidingWindowAttention,
)
from vramledger.models.model import Model
from vramledger.models.tensors import Component, Role

SIGLIP_896: dict[str, Any] = {
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "model_type": "siglip_vision_model",
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
CLIP_336: dict[str, Any] = {
    "hidden_size": 1024,
    "image_size": 336,
    "intermediate_size": 4096,
    "model_type": "clip_vision_model",
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
PIXTRAL: dict[str, Any] = {
    "model_type": "pixtral",
    "hidden_size": 1024,
    "image_size": 1540,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
GEMMA3_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "vision_config": SIGLIP_896,
}
GEMMA3N_E2B: dict[str, Any] = {
    "model_type": "gemma3n",
    "audio_config": {"model_type": "gemma3n_audio"},
    "text_config": {
        "model_type": "gemma3n_text",
        "hidden_size": 2048,
        "intermediate_size": [8192] * 30,
        "num_hidden_layers": 30,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "num_kv_shared_layers": 10,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 6,
        "sliding_window": 512,
    },
    "vision_config": {"architecture": "mobilenetv5_300m_enc"},
    "torch_dtype": "bfloat16",
}
GEMMA4_VISION: dict[str, Any] = {
    "head_dim": 72,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_hidden_layers": 27,
    "standardize": True,
}
GEMMA4_26B: dict[str, Any] = {
    "model_type": "gemma4",
    "dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma4_text",
        "attention_k_eq_v": True,
        "enable_moe_block": True,
        "head_dim": 256,
        "global_head_dim": 512,
        "hidden_size": 2816,
        "hidden_size_per_layer_input": 0,
        "intermediate_size": 2112,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
        "moe_intermediate_size": 704,
        "num_attention_heads": 16,
        "num_experts": 128,
        "num_global_key_value_heads": 2,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "sliding_window": 1024,
        "top_k_experts": 8,
    },
    "vision_config": GEMMA4_VISION,
}
GEMMA4_E2B_TEXT: dict[str, Any] = {
    "model_type": "gemma4_text",
    "hidden_size": 1536,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": 6144,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    "num_attention_heads": 8,
    "num_hidden_layers": 35,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 20,
    "sliding_window": 512,
    "use_double_wide_mlp": True,
}
LLAVA_7B: dict[str, Any] = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vision_config": CLIP_336,
}
MLLAMA_11B: dict[str, Any] = {
    "model_type": "mllama",
    "text_config": {
        "model_type": "mllama_text_model",
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {"image_size": 560, "patch_size": 14, "max_num_tiles": 4},
}
MISTRAL_SMALL_31: dict[str, Any] = {
    "model_type": "mistral3",
    "text_config": {
        "model_type": "mistral",
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "sliding_window": None,
        "vocab_size": 131072,
    },
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vision_config": PIXTRAL,
}
QWEN2_5_VL_7B: dict[str, Any] = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "sliding_window": None,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584},
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vocab_size": 152064,
}
NV_EMBED: dict[str, Any] = {
    "architectures": ["NVEmbedModel"],
    "model_type": "nvembed",
    "hidden_size": 4096,
    "latent_attention_config": {"model_type": "latent_attention"},
    "text_config": {
        "architectures": ["MistralModel"],
        "model_type": "bidir_mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "vocab_size": 32000,
    },
    "torch_dtype": "float16",
}
XGEN_MM: dict[str, Any] = {
    "model_type": "xgenmm",
    "text_config": {"model_type": "phi3", "sliding_window": 2047},
    "torch_dtype": "float32",
    "vision_encoder_config": {"model_type": "xgenmm_vision_encoder"},
}
DEEPSEEK_OCR2: dict[str, Any] = {
    "architectures": ["DeepseekOCR2ForCausalLM"],
    "model_type": "deepseek_vl_v2",
    "language_config": {
        "first_k_dense_replace": 1,
        "hidden_size": 1280,
        "intermediate_size": 6848,
        "moe_intermediate_size": 896,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_attention_heads": 10,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 12,
        "num_key_value_heads": 10,
        "use_mla": False,
        "vocab_size": 129280,
    },
    "projector_config": {"projector_type": "linear"},
    "torch_dtype": "bfloat16",
    "vision_config": {
        "image_size": 1024,
        "model_name": "deepencoderv2",
        "width": {
            "qwen2-0-5b": {"dim": 896},
            "sam_vit_b": {
                "downsample_channels": [512, 1024],
                "global_attn_indexes": [2, 5, 8, 11],
                "heads": 12,
                "layers": 12,
                "width": 768,
            },
        },
    },
}
MINICPM_V_26: dict[str, Any] = {
    "version": 2.6,
    "architectures": ["MiniCPMV"],
    "model_type": "minicpmv",
    "drop_vision_last_layer": False,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "query_num": 64,
    "slice_config": {"max_slice_nums": 9},
    "torch_dtype": "bfloat16",
    "vocab_size": 151666,
    "vision_config": {**SIGLIP_896, "image_size": 980},
}
MOLMO_7B: dict[str, Any] = {
    "model_type": "molmo",
    "embedding_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 37888,
    "max_position_embeddings": 4096,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "qkv_bias": True,
    "vocab_size": 152064,
    "weight_tying": False,
}
KIMI_K25: dict[str, Any] = {
    "model_type": "kimi_k25",
    "text_config": {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 1,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 384,
        "n_shared_experts": 1,
        "num_attention_heads": 64,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_nextn_predict_layers": 0,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 163840,
    },
    "dtype": "bfloat16",
    "vision_config": {
        "vt_hidden_size": 1152,
        "vt_intermediate_size": 4304,
        "vt_num_attention_heads": 16,
        "vt_num_hidden_layers": 27,
        "merge_kernel_size": [2, 2],
        "patch_size": 14,
    },
}
PALIGEMMA_3B: dict[str, Any] = {
    "model_type": "paligemma",
    "text_config": {
        "model_type": "gemma",
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "num_attention_heads": 8,
        "num_hidden_layers": 18,
        "num_key_value_heads": 1,
        "vocab_size": 257216,
    },
    "torch_dtype": "float32",
    "vision_config": {**SIGLIP_896, "image_size": 224},
}
SMOLVLM_2B: dict[str, Any] = {
    "model_type": "idefics3",
    "scale_factor": 3,
    "text_config": {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_hidden_layers": 24,
        "vocab_size": 49155,
    },
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vision_config": {**SIGLIP_896, "image_size": 384},
}


def model(config: dict[str, Any]) -> Model:
    return describe(Config(config, "config.json"), "an/id")


def changed(config: dict[str, Any], part: str, **values: Any) -> dict[str, Any]:
    """`config` with keys of one nested object replaced."""
    return {**config, part: {**config[part], **values}}


def stored(described: Model) -> int:
    """Elements a checkpoint holds: parameters and whatever else it carries."""
    return sum(tensor.total_elements for tensor in described.tensors)


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (GEMMA3_4B, 4_300_079_472),
        (LLAVA_7B, 7_063_427_072),
        (MLLAMA_11B, 10_670_220_835),
        (MISTRAL_SMALL_31, 24_011_361_280),
        (QWEN2_5_VL_7B, 8_292_166_656),
        (NV_EMBED, 7_851_016_192),
        (DEEPSEEK_OCR2, 3_389_119_360),
        (MINICPM_V_26, 8_099_175_152),
        (MOLMO_7B, 8_021_025_280),
        (PALIGEMMA_3B, 2_923_466_480),
        (SMOLVLM_2B, 2_246_272_880),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_totals_are_the_published_ones(config: dict[str, Any], published: int) -> None:
    assert model(config).parameter_counts().total == published


@pytest.mark.parametrize(
    ("config", "published"), [(GEMMA3N_E2B, 5_439_438_272), (GEMMA4_26B, 25_805_936_206)]
)
def test_stored_elements_include_what_is_not_a_parameter(config: dict[str, Any], published: int) -> None:
    described = model(config)
    assert stored(described) == published
    assert described.parameter_counts().total < published


def test_xgen_checkpoint_is_fp32_to_the_byte() -> None:
    described = model(XGEN_MM)
    assert described.dtype is DType.F32
    assert 4 * described.parameter_counts().total == 17_437_028_876


def test_kimi_is_deepseek_v3_behind_moonvit() -> None:
    described = model(KIMI_K25)
    assert stored(described) == 1_026_879_376_368
    assert {type(layer.token_mixers[0]) for layer in described.layers} == {LatentAttention}
    (tower,) = described.towers
    assert (tower.max_item_tokens, tower.patches_per_token) == (4096, 4)


def test_components_are_told_apart() -> None:
    groups = dict(model(GEMMA3_4B).parameter_counts().by_group)
    assert groups["vision"] == 416_866_032
    assert groups["projector"] == 1152 * 2560 + 1152


class TestTowers:
    @pytest.mark.parametrize(
        ("config", "tokens", "patches"),
        [
            (GEMMA3_4B, 256, 16),
            (LLAVA_7B, 576, 1),
            (MISTRAL_SMALL_31, 55 * 56, 4),
            (QWEN2_5_VL_7B, 16384, 4),
            (MLLAMA_11B, 4 * 1601, 1),
            (GEMMA4_26B, 280, 9),
            (MINICPM_V_26, 64 * 10, 0),
            (DEEPSEEK_OCR2, 6 * 144 + 256 + 1, 2),
        ],
        ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
    )
    def test_largest_item(self, config: dict[str, Any], tokens: int, patches: int) -> None:
        tower = model(config).towers[0]
        assert (tower.max_item_tokens, tower.patches_per_token) == (tokens, patches)

    def test_llava_next_counts_tiles_newlines_and_the_whole(self) -> None:
        described = model({**LLAVA_7B, "model_type": "llava_next"})
        assert described.towers[0].max_item_tokens == 576 + 48 * 48 + 48

    def test_gemma3n_hears_and_sees(self) -> None:
        assert [tower.modality for tower in model(GEMMA3N_E2B).towers] == ["image", "audio"]

    def test_an_image_limit_that_is_not_in_the_file_is_noted(self) -> None:
        assert any("12845056 pixels" in note for note in model(QWEN2_5_VL_7B).notes)

    def test_a_tower_without_its_own_tokens_says_so(self) -> None:
        assert model(MOLMO_7B).towers[0].max_item_tokens == 0


class TestKvCache:
    def test_mllama_crosses_in_eight_layers(self) -> None:
        mixers = [layer.token_mixers[0] for layer in model(MLLAMA_11B).layers]
        crossing = [index for index, mixer in enumerate(mixers) if isinstance(mixer, CrossAttention)]
        assert crossing == [3, 8, 13, 18, 23, 28, 33, 38]
        assert {m.max_encoder_tokens for m in mixers if isinstance(m, CrossAttention)} == {6404}

    def test_mllama_embeds_eight_rows_more_than_it_predicts(self) -> None:
        rows = {tensor.role: tensor.shape[0] for tensor in model(MLLAMA_11B).tensors}
        assert rows[Role.EMBEDDING] - rows[Role.LM_HEAD] == 8

    def test_gemma4_full_layers_have_wider_and_fewer_heads(self) -> None:
        widths = Counter(
            (type(mixer), mixer.kv_heads, mixer.head_dim)
            for layer in model(GEMMA4_26B).layers
            for mixer in layer.token_mixers
            if isinstance(mixer, FullAttention)
        )
        assert widths == {(SlidingWindowAttention, 8, 256): 25, (FullAttention, 2, 512): 5}

    def test_gemma4_keeps_values_that_it_does_not_project(self) -> None:
        described = model(GEMMA4_26B)
        values = [t for t in described.tensors if t.role is Role.V and t.component is Component.DECODER]
        assert sum(len(tensor.layers) for tensor in values) == 25
        full = described.layers[5].token_mixers[0]
        assert isinstance(full, FullAttention)
        assert full.kv_elements_per_token == 2 * 2 * 512

    def test_gemma4_e2b_shares_by_kind(self) -> None:
        mixers = [layer.token_mixers[0] for layer in model(GEMMA4_E2B_TEXT).layers]
        sources = {
            (mixer.head_dim, mixer.source_layer) for mixer in mixers if isinstance(mixer, SharedKvAttention)
        }
        assert sources == {(256, 13), (512, 14)}
        kept = [m for m in mixers if isinstance(m, FullAttention) and not isinstance(m, SharedKvAttention)]
        assert sum(mixer.kv_elements_per_token for mixer in kept) == 12 * 2 * 256 + 3 * 2 * 512

    def test_gemma4_e2b_doubles_the_mlp_where_kv_is_shared(self) -> None:
        described = model(GEMMA4_E2B_TEXT)
        gates = {t.shape[0]: len(t.layers) for t in described.tensors if t.role is Role.GATE}
        assert gates == {6144: 15, 12288: 20}

    def test_gemma3n_keeps_kv_in_twenty_of_thirty_layers(self) -> None:
        kinds = Counter(type(layer.token_mixers[0]) for layer in model(GEMMA3N_E2B).layers)
        assert kinds == {SlidingWindowAttention: 16, FullAttention: 4, SharedKvAttention: 10}

    def test_nv_embed_keeps_nothing(self) -> None:
        described = model(NV_EMBED)
        assert described.is_pooling
        assert all(isinstance(layer.token_mixers[0], EncoderAttention) for layer in described.layers)

    def test_deepseek_ocr_without_latent_attention(self) -> None:
        described = model(DEEPSEEK_OCR2)
        mixer = described.layers[0].token_mixers[0]
        assert isinstance(mixer, FullAttention)
        assert (mixer.kv_heads, mixer.head_dim) == (10, 128)
        assert sum(isinstance(layer.channel_mixer, MixtureOfExperts) for layer in described.layers) == 11


class TestNames:
    @pytest.mark.parametrize(
        ("config", "name"),
        [
            (GEMMA3_4B, "language_model.model.layers.{layer}.self_attn.q_proj.weight"),
            (GEMMA3_4B, "vision_tower.vision_model.encoder.layers.{block}.mlp.fc1.weight"),
            (GEMMA3N_E2B, "model.vision_tower.timm_model.conv_stem.conv.weight"),
            (GEMMA4_26B, "model.language_model.layers.{layer}.experts.gate_up_proj"),
            (MISTRAL_SMALL_31, "multi_modal_projector.patch_merger.merging_layer.weight"),
            (QWEN2_5_VL_7B, "visual.blocks.{block}.attn.qkv.weight"),
            (KIMI_K25, "vision_tower.encoder.blocks.{block}.wqkv.weight"),
            (NV_EMBED, "embedding_model.layers.{layer}.mlp.up_proj.weight"),
            (XGEN_MM, "vlm.lang_model.model.layers.{layer}.self_attn.qkv_proj.weight"),
            (MINICPM_V_26, "llm.lm_head.weight"),
            (MOLMO_7B, "model.transformer.blocks.{layer}.att_proj.weight"),
            (DEEPSEEK_OCR2, "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"),
        ],
    )
    def test_checkpoint_names(self, config: dict[str, Any], name: str) -> None:
        assert name in {tensor.name for tensor in model(config).tensors}

    def test_ministral_and_its_tower_are_inside_model(self) -> None:
        newer = changed(MISTRAL_SMALL_31, "text_config", model_type="ministral3")
        names = {tensor.name for tensor in model(newer).tensors}
        assert "model.vision_tower.patch_conv.weight" in names
        assert "model.language_model.norm.weight" in names

    def test_a_class_name_decides_where_the_type_is_ambiguous(self) -> None:
        flat = {
            "architectures": ["LlavaLlamaForCausalLM"],
            "model_type": "llava",
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "mm_projector_type": "mlp2x_gelu",
            "mm_vision_tower": "openai/clip-vit-large-patch14-336",
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "torch_dtype": "float16",
            "vocab_size": 32000,
        }
        assert model(flat).parameter_counts().total == 7_062_902_784


class TestNestedDefaults:
    def test_what_the_nested_class_leaves_out_is_taken_from_it_and_noted(self) -> None:
        described = model(LLAVA_7B)
        assert (described.hidden_size, described.num_layers) == (4096, 32)
        assert any(
            note.startswith("default of the llama class: hidden_size=4096") for note in described.notes
        )

    def test_defaults_are_those_of_the_type_the_file_names(self) -> None:
        nested = {
            "model_type": "qwen2_5_vl",
            "text_config": {"model_type": "qwen2_5_vl_text"},
            "vision_config": {"hidden_size": 1280, "out_hidden_size": 8192},
        }
        assert model(nested).hidden_size == 8192


class TestTying:
    def test_the_outer_object_decides(self) -> None:
        tied = model({**MISTRAL_SMALL_31, "tie_word_embeddings": True})
        assert not any(tensor.role is Role.LM_HEAD for tensor in tied.tensors)

    def test_the_nested_one_where_the_outer_is_silent(self) -> None:
        silent = {key: value for key, value in MISTRAL_SMALL_31.items() if key != "tie_word_embeddings"}
        untied = model(changed(silent, "text_config", tie_word_embeddings=False))
        assert any(tensor.role is Role.LM_HEAD for tensor in untied.tensors)
        assert model(silent).tie_word_embeddings


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (changed(GEMMA3_4B, "vision_config", num_attention_heads=7), "hidden_size"),
        (changed(GEMMA3_4B, "vision_config", patch_size=4000), "image_size"),
        ({**GEMMA3_4B, "mm_tokens_per_image": 255}, "mm_tokens_per_image"),
        (changed(GEMMA4_26B, "text_config", layer_types=["full_attention"]), "layer_types"),
        (changed(GEMMA4_26B, "text_config", num_kv_shared_layers=30), "num_kv_shared_layers"),
        (changed(GEMMA4_26B, "text_config", num_kv_shared_layers=29), "num_kv_shared_layers"),
        (changed(GEMMA4_26B, "text_config", top_k_experts=129), "top_k_experts"),
        (changed(GEMMA3N_E2B, "vision_config", architecture="resnet50"), "architecture"),
        (changed(GEMMA3N_E2B, "text_config", intermediate_size=[8192]), "intermediate_size"),
        (changed(MLLAMA_11B, "text_config", cross_attention_layers=[40]), "cross_attention_layers"),
        (changed(LLAVA_7B, "vision_config", model_type="sam"), "model_type"),
        ({**MINICPM_V_26, "version": 2.5}, "version"),
        (changed(DEEPSEEK_OCR2, "vision_config", model_name="siglip"), "model_name"),
        ({"model_type": "llava", "text_config": LLAVA_7B["text_config"]}, "vision_config"),
    ],
)
def test_refusals_name_the_key(config: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        model(config)
    assert refusal.value.facts["key"] == key
