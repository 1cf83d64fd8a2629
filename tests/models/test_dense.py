"""Dense decoders: what each family does with windows, head counts, names and ties, from published configs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from vramledger.errors import ConfigError, UnknownArchitecture
from vramledger.formats.dtypes import DType
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.mixers import (
    EncoderAttention,
    FullAttention,
    LatentAttention,
    MixtureOfExperts,
    SlidingWindowAttention,
)
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Component, Role, Tensor


def model(**config: Any) -> Model:
    return describe(Config(config, "config.json"), "a/model")


def small(model_type: str, **more: Any) -> Model:
    """A model of distinct primes, so that two widths in each other's place cannot cancel."""
    dims = {
        "hidden_size": 8 * 13,
        "intermediate_size": 17,
        "num_hidden_layers": 5,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 11,
        "vocab_size": 101,
        "max_position_embeddings": 211,
    }
    return model(model_type=model_type, **{**dims, **more})


def tensor(described: Model, name: str) -> Tensor:
    found = [item for item in described.tensors if item.name == name]
    assert len(found) == 1, f"{name}: {len(found)} of {[item.name for item in described.tensors]}"
    return found[0]


def names(described: Model) -> set[str]:
    return {item.name for item in described.tensors}


def windows(described: Model) -> list[int]:
    """The window of each layer, 0 where it attends to the whole context."""
    mixers = [layer.token_mixers[0] for layer in described.layers]
    return [mixer.window if isinstance(mixer, SlidingWindowAttention) else 0 for mixer in mixers]


def kv_elements_per_token(described: Model) -> int:
    return sum(
        mixer.kv_elements_per_token
        for layer in described.layers
        for mixer in layer.token_mixers
        if isinstance(mixer, FullAttention | LatentAttention)
    )


LLAMA_3_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def test_llama_3_8b_keeps_128_kib_a_token() -> None:
    llama = model(**LLAMA_3_8B)
    assert llama.parameter_counts().total == 8030261248
    assert llama.dtype.bytes_for(kv_elements_per_token(llama)) == 128 * 1024


def test_a_tied_head_is_listed_once() -> None:
    free = small("llama", tie_word_embeddings=False)
    tied = small("llama", tie_word_embeddings=True)
    assert names(free) - names(tied) == {"lm_head.weight"}
    assert free.parameter_counts().total - tied.parameter_counts().total == 101 * 104


def test_a_base_model_class_has_no_head_and_no_prefix() -> None:
    embedding = small("mistral", architectures=["MistralModel"])
    assert embedding.is_pooling
    assert "embed_tokens.weight" in names(embedding)
    assert "layers.{layer}.self_attn.q_proj.weight" in names(embedding)
    assert not any("lm_head" in name for name in names(embedding))


def test_a_sequence_classifier_has_one_row_a_label() -> None:
    classifier = small(
        "qwen2", architectures=["Qwen2ForSequenceClassification"], id2label={"0": "a", "1": "b", "2": "c"}
    )
    assert tensor(classifier, "score.weight").shape == (3, 104)
    assert classifier.is_pooling


def test_mistral_has_the_class_window_unless_the_file_says_null() -> None:
    silent = small("mistral")
    assert windows(silent) == [4096] * 5
    assert any("sliding_window=4096" in note for note in silent.notes)
    assert windows(small("mistral", sliding_window=None)) == [0] * 5
    assert windows(small("mistral", sliding_window=64)) == [64] * 5


def test_qwen2_window_counts_only_when_switched_on_and_then_for_the_late_layers() -> None:
    assert windows(small("qwen2", sliding_window=64, use_sliding_window=False)) == [0] * 5
    late = small("qwen2", sliding_window=64, use_sliding_window=True, max_window_layers=3)
    assert windows(late) == [0, 0, 0, 64, 64]


def test_qwen2_has_biases_on_q_k_v_only() -> None:
    biased = {item.name.split(".")[-2] for item in small("qwen2").tensors if item.name.endswith(".bias")}
    assert biased == {"q_proj", "k_proj", "v_proj"}


def test_qwen3_normalises_each_head() -> None:
    assert tensor(small("qwen3"), "model.layers.{layer}.self_attn.q_norm.weight").shape == (11,)


def test_gemma2_alternates_beginning_with_a_window() -> None:
    assert windows(small("gemma2", sliding_window=64)) == [64, 0, 64, 0, 64]


def test_gemma3_has_five_windows_to_one_full_layer_and_two_rotary_tables() -> None:
    gemma = model(
        model_type="gemma3_text",
        hidden_size=1152,
        intermediate_size=6912,
        num_hidden_layers=26,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        vocab_size=262144,
        sliding_window=512,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        max_position_embeddings=32768,
    )
    assert gemma.parameter_counts().total == 999885952
    assert Counter(windows(gemma)) == {512: 22, 0: 4}
    assert windows(gemma)[:6] == [512] * 5 + [0]
    assert [(rope.scaling, rope.factor) for rope in gemma.rope] == [("linear", 8.0), ("default", 1.0)]


def test_gemma3_text_alone_has_its_class_dimensions() -> None:
    gemma = model(model_type="gemma3_text")
    assert (gemma.hidden_size, gemma.num_layers, gemma.vocab_size) == (2304, 26, 262208)
    assert gemma.layers[0].token_mixers == (
        SlidingWindowAttention(q_heads=8, kv_heads=4, head_dim=256, v_head_dim=256, window=4096),
    )
    assert gemma.tie_word_embeddings


def test_embedding_gemma_keeps_no_kv() -> None:
    embedding = small("gemma3_text", architectures=["Gemma3TextModel"], use_bidirectional_attention=True)
    assert all(isinstance(layer.token_mixers[0], EncoderAttention) for layer in embedding.layers)
    assert embedding.is_pooling


def test_cohere2_and_olmo3_leave_every_fourth_layer_without_a_window() -> None:
    assert windows(small("cohere2", sliding_window=64)) == [64, 64, 64, 0, 64]
    assert windows(small("olmo3", sliding_window=64)) == [64, 64, 64, 0, 64]


def test_stated_layer_types_win_over_the_rule() -> None:
    kinds = ["full_attention"] * 4 + ["sliding_attention"]
    assert windows(small("cohere2", sliding_window=64, layer_types=kinds)) == [0, 0, 0, 0, 64]


def test_olmo3_scales_only_the_table_of_the_full_layers() -> None:
    yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 53}
    ropes = small("olmo3", rope_scaling=yarn).rope
    assert [(rope.scaling, rope.original_positions) for rope in ropes] == [("yarn", 53), ("default", 0)]
    assert len(small("olmo3").rope) == 1


def test_exaone4_reads_its_pattern_in_letters() -> None:
    lettered = small("exaone4", sliding_window=64, sliding_window_pattern="LLLG", num_hidden_layers=9)
    assert windows(lettered) == [64, 64, 64, 0, 64, 64, 64, 0, 0]
    assert windows(small("exaone4", sliding_window=None)) == [0] * 5


def test_smollm3_3b_has_the_published_size() -> None:
    smollm = model(
        model_type="smollm3",
        hidden_size=2048,
        intermediate_size=11008,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=128256,
    )
    assert smollm.parameter_counts().total == 3075098624


def test_command_r_plus_keeps_a_norm_for_each_head() -> None:
    norms = small("cohere", use_qk_norm=True)
    weight = tensor(norms, "model.layers.{layer}.self_attn.k_norm.weight")
    assert weight.shape == (2, 11)
    assert weight.axes[0][0].kind is AxisKind.KV_HEADS


def test_olmo_has_no_norm_weights_and_olmo2_norms_all_of_q() -> None:
    assert not any(item.role is Role.NORM for item in small("olmo").tensors)
    assert tensor(small("olmo2"), "model.layers.{layer}.self_attn.q_norm.weight").shape == (8 * 11,)


def test_phi3_fuses_what_llama_keeps_apart() -> None:
    phi = small("phi3")
    qkv = tensor(phi, "model.layers.{layer}.self_attn.qkv_proj.weight")
    assert [(part.kind, part.size) for part in qkv.axes[0]] == [
        (AxisKind.Q_HEADS, 88),
        (AxisKind.KV_HEADS, 22),
        (AxisKind.KV_HEADS, 22),
    ]
    assert tensor(phi, "model.layers.{layer}.mlp.gate_up_proj.weight").shape == (34, 104)


def test_phi3_takes_the_original_length_from_the_top_of_the_file() -> None:
    rope = small(
        "phi3", rope_scaling={"type": "su", "long_factor": [1.0]}, original_max_position_embeddings=53
    ).rope[0]
    assert (rope.scaling, rope.original_positions) == ("longrope", 53)


def test_falcon_7b_has_one_kv_head_and_a_tied_head() -> None:
    falcon = model(
        model_type="falcon",
        hidden_size=4544,
        num_attention_heads=71,
        num_hidden_layers=32,
        vocab_size=65024,
        multi_query=True,
        parallel_attn=True,
        bias=False,
        torch_dtype="bfloat16",
    )
    assert falcon.parameter_counts().total == 6921720704
    assert kv_elements_per_token(falcon) == 32 * 2 * 64
    assert falcon.tie_word_embeddings


def test_refined_web_is_the_grouped_falcon() -> None:
    falcon = model(
        model_type="RefinedWeb", hidden_size=8192, n_head=128, n_head_kv=8, n_layer=60, vocab_size=65024
    )
    assert falcon.parameter_counts().total == 41303293952
    assert kv_elements_per_token(falcon) == 60 * 2 * 8 * 64
    assert "transformer.h.{layer}.ln_mlp.weight" in names(falcon)


def test_starcoder_keeps_one_kv_head_and_learnt_positions() -> None:
    coder = model(model_type="gpt_bigcode", n_embd=96, n_head=6, n_layer=3, n_positions=211, vocab_size=101)
    assert kv_elements_per_token(coder) == 3 * 2 * 16
    assert tensor(coder, "transformer.wpe.weight").shape == (211, 96)
    assert coder.rope == ()


def test_gpt_neox_calls_its_head_embed_out_and_rotates_a_quarter() -> None:
    neox = small("gpt_neox", num_attention_heads=8, num_key_value_heads=None, head_dim=None)
    assert "embed_out.weight" in names(neox)
    assert neox.rope[0].rotary_dim == 13 // 4


def test_opt_350m_embeds_narrower_than_its_layers() -> None:
    opt = model(
        model_type="opt",
        hidden_size=1024,
        ffn_dim=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        vocab_size=50272,
        word_embed_proj_dim=512,
        do_layer_norm_before=False,
        max_position_embeddings=2048,
    )
    assert opt.parameter_counts().total == 331196416
    assert tensor(opt, "model.decoder.embed_positions.weight").shape == (2050, 1024)


def test_baichuan_rotates_the_7b_only() -> None:
    shape = {"intermediate_size": 17, "num_hidden_layers": 3, "vocab_size": 101, "model_max_length": 211}
    seven = model(model_type="baichuan", hidden_size=4096, num_attention_heads=32, **shape)
    thirteen = model(model_type="baichuan", hidden_size=5120, num_attention_heads=40, **shape)
    assert (len(seven.rope), len(thirteen.rope)) == (1, 0)
    assert seven.max_position_embeddings == 211


def test_first_qwen_halves_its_intermediate_size_and_reads_its_own_type_flags() -> None:
    qwen = model(
        model_type="qwen",
        hidden_size=256,
        num_attention_heads=2,
        num_hidden_layers=3,
        intermediate_size=34,
        vocab_size=101,
        fp16=True,
    )
    assert qwen.intermediate_size == 17
    assert qwen.dtype is DType.F16
    assert tensor(qwen, "transformer.h.{layer}.mlp.w2.weight").role is Role.GATE


def test_qwen_vl_is_the_first_qwen_with_a_tower() -> None:
    qwen = model(
        model_type="qwen",
        hidden_size=4096,
        num_attention_heads=32,
        num_hidden_layers=32,
        intermediate_size=22016,
        vocab_size=151936,
        visual={
            "width": 1664,
            "heads": 16,
            "layers": 48,
            "mlp_ratio": 4.9231,
            "patch_size": 14,
            "image_size": 448,
            "output_dim": 4096,
        },
    )
    # The GPTQ release holds 9 657 901 824 elements: these and a bias on each of the four plain linears.
    biases = 32 * (2 * 4096 + 2 * 11008)
    assert qwen.parameter_counts().total == 9657901824 - biases
    assert (qwen.towers[0].max_item_tokens, qwen.towers[0].patches_per_token) == (256, 4)
    assert any(item.component is Component.VISION for item in qwen.tensors)


CHATGLM3 = {
    "model_type": "chatglm",
    "architectures": ["ChatGLMModel"],
    "hidden_size": 4096,
    "ffn_hidden_size": 13696,
    "num_layers": 28,
    "num_attention_heads": 32,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "kv_channels": 128,
    "padded_vocab_size": 65024,
    "seq_length": 8192,
    "add_qkv_bias": True,
    "torch_dtype": "float16",
}


def test_chatglm3_has_a_head_and_its_stored_rotary_buffer_is_no_parameter() -> None:
    glm = model(**CHATGLM3)
    assert glm.parameter_counts().total == 6243584000
    stored = sum(item.total_elements for item in glm.tensors)
    assert 2 * stored == 12487168064, "total_size of the published index"
    assert glm.rope[0].rotary_dim == 64


@pytest.mark.parametrize("key", ["inner_hidden_size", "vision_config"])
def test_other_models_under_the_chatglm_type_are_refused(key: str) -> None:
    with pytest.raises(UnknownArchitecture, match=key):
        model(**CHATGLM3, **{key: {"a": 1}})


def test_nemotron_nas_skips_attention_where_the_search_left_it_out() -> None:
    def block(attention: dict[str, Any], ffn: dict[str, Any]) -> dict[str, Any]:
        return {"attention": attention, "ffn": ffn}

    nas = model(
        model_type="nemotron-nas",
        hidden_size=768,
        num_attention_heads=8,
        num_hidden_layers=4,
        vocab_size=101,
        max_position_embeddings=211,
        intermediate_size=None,
        num_key_value_heads=None,
        block_configs=[
            block({"n_heads_in_group": 8}, {"ffn_mult": 5.25}),
            block({"no_op": True, "n_heads_in_group": None}, {"ffn_mult": 1.0}),
            block({"replace_with_linear": True}, {"no_op": True}),
            block({"n_heads_in_group": 2}, {"replace_with_linear": True}),
        ],
    )
    assert [len(layer.token_mixers) for layer in nas.layers] == [1, 0, 0, 1]
    assert kv_elements_per_token(nas) == 2 * 96 * (1 + 4)
    # 2/3 x 5.25 x 768 = 2688 and 2/3 x 768 = 512, rounded up to steps of 256.
    assert [getattr(layer.channel_mixer, "intermediate", 0) for layer in nas.layers] == [2816, 512, 0, 0]
    assert tensor(nas, "model.layers.{layer}.self_attn.linear_attn.weight").layers == (2,)
    assert tensor(nas, "model.layers.{layer}.mlp.linear_mlp.weight").layers == (3,)


def test_minicpm3_is_known_by_its_class_and_keeps_a_latent() -> None:
    cpm = model(
        architectures=["MiniCPM3ForCausalLM"],
        hidden_size=2560,
        intermediate_size=6400,
        num_hidden_layers=62,
        num_attention_heads=40,
        qk_nope_head_dim=64,
        qk_rope_head_dim=32,
        q_lora_rank=768,
        kv_lora_rank=256,
        vocab_size=73448,
    )
    assert cpm.parameter_counts().total == 4073875968
    assert cpm.model_type == "minicpm3"
    assert kv_elements_per_token(cpm) == 62 * (256 + 32)


def test_minicpm_becomes_a_mixture_with_num_experts() -> None:
    mixture = small("minicpm", num_experts=7, num_experts_per_tok=2)
    assert mixture.layers[0].channel_mixer == MixtureOfExperts(num_experts=7, top_k=2, intermediate=17)
    assert "model.layers.{layer}.mlp.experts.{expert}.w1.weight" in names(mixture)


def test_bge_m3_takes_two_tokens_less_than_its_table_has_rows() -> None:
    bge = model(
        model_type="xlm-roberta",
        architectures=["XLMRobertaModel"],
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        vocab_size=250002,
        max_position_embeddings=8194,
        type_vocab_size=1,
    )
    assert bge.parameter_counts().total == 567754752
    assert bge.max_position_embeddings == 8192
    assert bge.is_pooling
    assert all(isinstance(layer.token_mixers[0], EncoderAttention) for layer in bge.layers)


@pytest.mark.parametrize(
    ("model_type", "changes", "key"),
    [
        ("llama", {"num_key_value_heads": 3}, "num_attention_heads"),
        ("llama", {"hidden_size": 105, "head_dim": None}, "hidden_size"),
        ("llama", {"vocab_size": None}, "vocab_size"),
        ("llama", {"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ("mistral", {"sliding_window": 0}, "sliding_window"),
        ("cohere2", {"layer_types": ["full_attention"]}, "layer_types"),
        ("cohere2", {"layer_types": ["linear_attention"] * 5}, "layer_types"),
        ("cohere2", {"sliding_window_pattern": 0}, "sliding_window_pattern"),
        ("exaone4", {"sliding_window_pattern": "LLX"}, "sliding_window_pattern"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
        ("glm", {"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
        ("bloom", {"num_attention_heads": 7}, "num_attention_heads"),
        ("gpt_neox", {"num_attention_heads": 9}, "num_attention_heads"),
        ("nemotron-nas", {"block_configs": []}, "block_configs"),
        ("minicpm", {"num_experts": 2, "num_experts_per_tok": 3}, "num_experts_per_tok"),
    ],
)
def test_what_does_not_add_up_is_refused_by_key(model_type: str, changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        small(model_type, **changes)
    assert str(refused.value.facts["key"]).startswith(key)
