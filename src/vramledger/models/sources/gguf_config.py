"""A GGUF header's metadata as the config.json of the same model, for the architectures that have one.

Keys: llama.cpp gguf-py/gguf/constants.py; their meaning: the model classes of convert_hf_to_gguf.py, read
backwards. Config keys and class names are Transformers'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramledger.errors import UnknownArchitecture
from vramledger.models.sources.bounded_file import quote
from vramledger.models.sources.gguf import GgufInfo
from vramledger.models.sources.gguf_hybrids import (
    biased,
    delta_net,
    delta_net_moe,
    falcon_h1,
    gemma3n,
    gemma4,
    glm4_moe,
    granite_hybrid,
    jamba,
    llama4,
    mamba,
    mamba2,
    nemotron_h,
)
from vramledger.models.sources.gguf_keys import Keys, common, decoder, put

_COMPUTE_NOTE = "a GGUF header states no element type for computation and the KV cache; float16 is taken"


def _llama(keys: Keys) -> dict[str, Any]:
    config = decoder(keys)
    if keys.optional("expert_count"):
        return put(
            config,
            architectures=["MixtralForCausalLM"],
            model_type="mixtral",
            num_local_experts=keys.integer("expert_count"),
            num_experts_per_tok=keys.integer("expert_used_count"),
        )
    return put(
        config,
        attention_bias=keys.has("blk.0.attn_q.bias"),
        mlp_bias=keys.has("blk.0.ffn_gate.bias"),
    )


def _qwen_moe(keys: Keys) -> dict[str, Any]:
    return put(
        decoder(keys),
        num_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        shared_expert_intermediate_size=keys.optional("expert_shared_feed_forward_length") or None,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    )


def _windowed(keys: Keys) -> dict[str, Any]:
    """Layers with and without a window take turns as the class's default says."""
    return put(decoder(keys), sliding_window=keys.optional("attention.sliding_window", least=1))


def _gpt_oss(keys: Keys) -> dict[str, Any]:
    return put(
        _windowed(keys),
        intermediate_size=keys.integer("expert_feed_forward_length"),
        num_local_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
    )


def _deepseek2(keys: Keys) -> dict[str, Any]:
    """Files from before mid-2025 state the head widths as `key_length`, later ones as `key_length_mla`."""
    rope_dim = keys.integer("rope.dimension_count")
    key_length = keys.optional("attention.key_length_mla", least=1) or keys.integer("attention.key_length")
    value_length = keys.optional("attention.value_length_mla", least=1) or keys.integer(
        "attention.value_length"
    )
    if key_length <= rope_dim:
        raise keys.fail(
            "deepseek2.attention.key_length", f"is {key_length}, not above rope.dimension_count {rope_dim}"
        )
    config = common(keys)
    draft = keys.optional("nextn_predict_layers", most=16) or 0
    if draft >= keys.blocks:
        raise keys.fail("deepseek2.nextn_predict_layers", f"is {draft}, with {keys.blocks} blocks in all")
    sigmoid = keys.optional("expert_gating_func") == 2
    config.pop("head_dim", None)
    # The class has a default rank, so a model that projects its queries directly states null.
    config["q_lora_rank"] = keys.optional("attention.q_lora_rank") or None
    return put(
        config,
        architectures=["DeepseekV3ForCausalLM" if sigmoid else "DeepseekV2ForCausalLM"],
        model_type="deepseek_v3" if sigmoid else "deepseek_v2",
        num_hidden_layers=keys.blocks - draft,
        num_nextn_predict_layers=draft,
        num_key_value_heads=config["num_attention_heads"],
        kv_lora_rank=keys.integer("attention.kv_lora_rank"),
        qk_rope_head_dim=rope_dim,
        qk_nope_head_dim=key_length - rope_dim,
        v_head_dim=value_length,
        intermediate_size=keys.integer("feed_forward_length"),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        n_routed_experts=keys.integer("expert_count"),
        n_shared_experts=keys.optional("expert_shared_count") or 0,
        num_experts_per_tok=keys.integer("expert_used_count"),
        first_k_dense_replace=keys.optional("leading_dense_block_count") or 0,
        moe_layer_freq=1,
    )


def _phi3(keys: Keys) -> dict[str, Any]:
    config = decoder(keys)
    rotary = keys.optional("rope.dimension_count", least=1)
    head_dim = config.get("head_dim")
    if rotary is not None and isinstance(head_dim, int) and rotary < head_dim:
        config["partial_rotary_factor"] = rotary / head_dim
    return put(config, sliding_window=keys.optional("attention.sliding_window") or None)


def _granite_moe(keys: Keys) -> dict[str, Any]:
    return put(
        decoder(keys),
        num_local_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
    )


def _lfm2(keys: Keys) -> dict[str, Any]:
    """A layer without KV heads is a short convolution."""
    kv_heads = keys.per_layer("attention.head_count_kv")
    attention = sorted({heads for heads in kv_heads if heads})
    if len(attention) != 1:
        raise keys.fail(
            f"{keys.info.architecture}.attention.head_count_kv", f"holds {quote(attention)}, not one count"
        )
    return put(
        common(keys),
        num_key_value_heads=attention[0],
        layer_types=["full_attention" if heads else "conv" for heads in kv_heads],
        conv_L_cache=keys.integer("shortconv.l_cache"),
        intermediate_size=keys.integer("feed_forward_length"),
        block_auto_adjust_ff_dim=False,
    )


def _lfm2_moe(keys: Keys) -> dict[str, Any]:
    return put(
        _lfm2(keys),
        num_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        num_dense_layers=keys.optional("leading_dense_block_count") or 0,
        use_expert_bias=keys.has(f"blk.{keys.blocks - 1}.exp_probs_b.bias"),
    )


def _olmo2(keys: Keys) -> dict[str, Any]:
    """Olmo 3 is the same architecture with windows."""
    if not keys.optional("attention.sliding_window"):
        return decoder(keys)
    return put(_windowed(keys), model_type="olmo3", architectures=["Olmo3ForCausalLM"])


def _own_experts(keys: Keys) -> dict[str, Any]:
    """Every layer routes, and the width is the experts' own."""
    return put(
        decoder(keys),
        intermediate_size=keys.optional("expert_feed_forward_length", least=1)
        or keys.integer("feed_forward_length"),
        num_experts=keys.integer("expert_count"),
        num_local_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
        use_qk_norm=keys.has("blk.0.attn_q_norm.weight"),
    )


def _dots1(keys: Keys) -> dict[str, Any]:
    return put(
        decoder(keys),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        n_routed_experts=keys.integer("expert_count"),
        n_shared_experts=keys.optional("expert_shared_count") or 0,
        num_experts_per_tok=keys.integer("expert_used_count"),
        first_k_dense_replace=keys.optional("leading_dense_block_count") or 0,
    )


def _ernie_moe(keys: Keys) -> dict[str, Any]:
    return put(
        decoder(keys),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        moe_num_experts=keys.integer("expert_count"),
        moe_num_shared_experts=keys.optional("expert_shared_count") or 0,
        moe_k=keys.integer("expert_used_count"),
        moe_layer_start_index=keys.optional("leading_dense_block_count") or 0,
        moe_layer_interval=keys.optional("interleave_moe_layer_step", least=1) or 1,
    )


def _hunyuan_moe(keys: Keys) -> dict[str, Any]:
    width = keys.integer("expert_feed_forward_length")
    shared = keys.optional("expert_shared_feed_forward_length") or 0
    return put(
        _own_experts(keys),
        moe_topk=keys.integer("expert_used_count"),
        num_shared_expert=shared // width,
        use_mixed_mlp_moe=bool(shared),
    )


def _internlm2(keys: Keys) -> dict[str, Any]:
    return put(decoder(keys), bias=keys.has("blk.0.attn_q.bias"))


def _stablelm(keys: Keys) -> dict[str, Any]:
    """A file with the flag and one norm a layer adds attention and MLP to the same input."""
    return put(
        decoder(keys),
        use_qkv_bias=keys.has("blk.0.attn_q.bias"),
        qk_layernorm=keys.has("blk.0.attn_q_norm.weight"),
        use_parallel_residual=not keys.has("blk.0.ffn_norm.weight"),
    )


def _starcoder2(keys: Keys) -> dict[str, Any]:
    return put(decoder(keys), use_bias=keys.has("blk.0.attn_q.bias"), hidden_act="gelu_pytorch_tanh")


def _command_r(keys: Keys) -> dict[str, Any]:
    return put(decoder(keys), use_qk_norm=keys.has("blk.0.attn_q_norm.weight"))


_ARCHITECTURES: dict[str, tuple[str, str, Callable[[Keys], dict[str, Any]]]] = {
    "llama": ("llama", "LlamaForCausalLM", _llama),
    "mistral": ("mistral", "MistralForCausalLM", decoder),
    "mistral3": ("mistral", "MistralForCausalLM", decoder),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", decoder),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", decoder),
    "qwen2moe": ("qwen2_moe", "Qwen2MoeForCausalLM", _qwen_moe),
    "qwen3moe": ("qwen3_moe", "Qwen3MoeForCausalLM", _qwen_moe),
    "gemma": ("gemma", "GemmaForCausalLM", decoder),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", _windowed),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM", _windowed),
    "gpt-oss": ("gpt_oss", "GptOssForCausalLM", _gpt_oss),
    "deepseek2": ("deepseek_v2", "DeepseekV2ForCausalLM", _deepseek2),
    "phi3": ("phi3", "Phi3ForCausalLM", _phi3),
    "granite": ("granite", "GraniteForCausalLM", decoder),
    "granitemoe": ("granitemoe", "GraniteMoeForCausalLM", _granite_moe),
    "lfm2": ("lfm2", "Lfm2ForCausalLM", _lfm2),
    "lfm2moe": ("lfm2_moe", "Lfm2MoeForCausalLM", _lfm2_moe),
    "starcoder2": ("starcoder2", "Starcoder2ForCausalLM", _starcoder2),
    "command-r": ("cohere", "CohereForCausalLM", _command_r),
    "cohere2": ("cohere2", "Cohere2ForCausalLM", _windowed),
    "olmo2": ("olmo2", "Olmo2ForCausalLM", _olmo2),
    "mamba": ("mamba", "MambaForCausalLM", mamba),
    "mamba2": ("mamba2", "Mamba2ForCausalLM", mamba2),
    "jamba": ("jamba", "JambaForCausalLM", jamba),
    "granitehybrid": ("granitemoehybrid", "GraniteMoeHybridForCausalLM", granite_hybrid),
    "falcon-h1": ("falcon_h1", "FalconH1ForCausalLM", falcon_h1),
    "nemotron_h": ("nemotron_h", "NemotronHForCausalLM", nemotron_h),
    "nemotron_h_moe": ("nemotron_h", "NemotronHForCausalLM", nemotron_h),
    "qwen3next": ("qwen3_next", "Qwen3NextForCausalLM", delta_net_moe),
    "qwen35": ("qwen3_5_text", "Qwen3_5ForCausalLM", delta_net),
    "qwen35moe": ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", delta_net_moe),
    "gemma3n": ("gemma3n_text", "Gemma3nForCausalLM", gemma3n),
    "gemma4": ("gemma4_text", "Gemma4ForCausalLM", gemma4),
    "llama4": ("llama4_text", "Llama4ForCausalLM", llama4),
    "glm4": ("glm4", "Glm4ForCausalLM", biased),
    "glm4moe": ("glm4_moe", "Glm4MoeForCausalLM", glm4_moe),
    "seed_oss": ("seed_oss", "SeedOssForCausalLM", biased),
    "minimax-m2": ("minimax_m2", "MiniMaxM2ForCausalLM", _own_experts),
    "dots1": ("dots1", "Dots1ForCausalLM", _dots1),
    "ernie4_5": ("ernie4_5", "Ernie4_5ForCausalLM", decoder),
    "ernie4_5-moe": ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", _ernie_moe),
    "hunyuan-dense": ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", decoder),
    "hunyuan-moe": ("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", _hunyuan_moe),
    "olmoe": ("olmoe", "OlmoeForCausalLM", _own_experts),
    "exaone": ("exaone", "ExaoneForCausalLM", decoder),
    "internlm2": ("internlm2", "InternLM2ForCausalLM", _internlm2),
    "olmo": ("olmo", "OlmoForCausalLM", decoder),
    "phi2": ("phi", "PhiForCausalLM", decoder),
    "stablelm": ("stablelm", "StableLmForCausalLM", _stablelm),
    "gptneox": ("gpt_neox", "GPTNeoXForCausalLM", decoder),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM", decoder),
}


def config_from_gguf(info: GgufInfo, where: str = "") -> tuple[dict[str, Any], tuple[str, ...]]:
    """A config.json-like dictionary, and notes about what the header does not say.

    `where` names the file in messages, by its plain name unless it is given.

    Raises UnknownArchitecture naming an architecture that is not described here, ConfigError naming a key
    that is missing or cannot be.
    """
    name = info.architecture
    where = where or info.files[0].name
    if name not in _ARCHITECTURES:
        problem = (
            f"the GGUF architecture {quote(name)}" if name else "a GGUF file without general.architecture"
        )
        raise UnknownArchitecture(
            f"{where}: {problem} is not described; known: {', '.join(_ARCHITECTURES)}",
            file=where,
            architecture=name,
        )
    model_type, class_name, describe = _ARCHITECTURES[name]
    config: dict[str, Any] = {"architectures": [class_name], "model_type": model_type}
    return config | describe(Keys(info, where)), (_COMPUTE_NOTE,)
