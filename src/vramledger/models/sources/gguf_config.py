"""A GGUF header's metadata as the config.json of the same model, for the architectures that have one.

Keys: llama.cpp gguf-py/gguf/constants.py; their meaning: the model classes of convert_hf_to_gguf.py, read
backwards. Config keys and class names are Transformers'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramledger.errors import ConfigError, UnknownArchitecture
from vramledger.models.sources.bounded_file import quote
from vramledger.models.sources.gguf import GgufInfo
from vramledger.models.sources.gguf_reader import Array

_COMPUTE_NOTE = "a GGUF header states no element type for computation and the KV cache; float16 is taken"


class _Keys:
    """Typed access to one architecture's keys; a missing or wrong one is a ConfigError that names it."""

    def __init__(self, info: GgufInfo, where: str) -> None:
        self.info = info
        self.where = where
        self.blocks = self.integer("block_count", most=4096)

    def _find(self, key: str) -> tuple[str, Any]:
        name = key if key.startswith(("general.", "tokenizer.")) else f"{self.info.architecture}.{key}"
        return name, self.info.metadata.get(name)

    def fail(self, name: str, problem: str, value: object = None) -> ConfigError:
        return ConfigError(f"{self.where}: {name} {problem}", file=self.where, key=name, value=value)

    def optional(self, key: str, *, least: int = 0, most: int = 2**31) -> int | None:
        name, value = self._find(key)
        if isinstance(value, tuple) and value and all(item == value[0] for item in value):
            value = value[0]
        if value is None:
            return None
        if type(value) is not int:
            raise self.fail(name, f"is {quote(value)}, not one whole number for all layers", value)
        if not least <= value <= most:
            raise self.fail(name, f"is {quote(value)}, outside {least} to {most}", value)
        return value

    def integer(self, key: str, *, least: int = 1, most: int = 2**31) -> int:
        value = self.optional(key, least=least, most=most)
        if value is None:
            raise self.fail(self._find(key)[0], "is missing")
        return value

    def number(self, key: str) -> float | None:
        name, value = self._find(key)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise self.fail(name, f"is {quote(value)}, not a number", value)

    def text(self, key: str) -> str | None:
        value = self._find(key)[1]
        return value if isinstance(value, str) else None

    def per_layer(self, key: str) -> tuple[int, ...]:
        """One whole number a layer; a single one stands for all."""
        name, value = self._find(key)
        values = value if isinstance(value, tuple) else (value,) * self.blocks
        if len(values) != self.blocks or any(
            type(item) is not int or not 0 <= item <= 2**31 for item in values
        ):
            raise self.fail(
                name, f"is {quote(value)}, not a whole number for each of {self.blocks} layers", value
            )
        return tuple(values)

    def has(self, tensor: str) -> bool:
        return self.info.tensor(tensor) is not None

    def vocab_size(self) -> int:
        """Rows of the embedding, which may be padded beyond the tokenizer's tokens."""
        embedding = self.info.tensor("token_embd.weight")
        if embedding is not None and len(embedding.dims) == 2:
            return embedding.dims[1]
        stated = self.optional("vocab_size", least=1)
        if stated is not None:
            return stated
        name, tokens = self._find("tokenizer.ggml.tokens")
        if isinstance(tokens, Array | tuple):
            return tokens.length if isinstance(tokens, Array) else len(tokens)
        raise self.fail(name, "is missing, and so is every other statement of the vocabulary's size")


def _put(config: dict[str, Any], **values: Any) -> dict[str, Any]:
    """`config` with the values that are known."""
    config.update({key: value for key, value in values.items() if value is not None})
    return config


def _common(keys: _Keys) -> dict[str, Any]:
    heads = keys.integer("attention.head_count")
    width = keys.integer("embedding_length")
    scaling = keys.text("rope.scaling.type")
    config = _put(
        {},
        hidden_size=width,
        num_hidden_layers=keys.blocks,
        num_attention_heads=heads,
        vocab_size=keys.vocab_size(),
        max_position_embeddings=keys.integer("context_length"),
        tie_word_embeddings=not keys.has("output.weight"),
        torch_dtype="float16",
        rope_theta=keys.number("rope.freq_base"),
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        head_dim=keys.optional("attention.key_length", least=1)
        or (None if width % heads else width // heads),
    )
    if scaling not in (None, "none"):
        config["rope_scaling"] = _put(
            {"rope_type": scaling},
            factor=keys.number("rope.scaling.factor"),
            original_max_position_embeddings=keys.optional("rope.scaling.original_context_length", least=1),
        )
    return config


def _decoder(keys: _Keys) -> dict[str, Any]:
    """Attention and a dense MLP the same in every layer."""
    return _put(
        _common(keys),
        num_key_value_heads=keys.optional("attention.head_count_kv", least=1)
        or keys.integer("attention.head_count"),
        intermediate_size=keys.optional("feed_forward_length", least=1),
    )


def _llama(keys: _Keys) -> dict[str, Any]:
    config = _decoder(keys)
    if keys.optional("expert_count"):
        return _put(
            config,
            architectures=["MixtralForCausalLM"],
            model_type="mixtral",
            num_local_experts=keys.integer("expert_count"),
            num_experts_per_tok=keys.integer("expert_used_count"),
        )
    return _put(
        config,
        attention_bias=keys.has("blk.0.attn_q.bias"),
        mlp_bias=keys.has("blk.0.ffn_gate.bias"),
    )


def _qwen_moe(keys: _Keys) -> dict[str, Any]:
    return _put(
        _decoder(keys),
        num_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        shared_expert_intermediate_size=keys.optional("expert_shared_feed_forward_length", least=1),
        decoder_sparse_step=1,
        mlp_only_layers=[],
    )


def _windowed(keys: _Keys) -> dict[str, Any]:
    """Layers with and without a window take turns as the class's default says."""
    return _put(_decoder(keys), sliding_window=keys.optional("attention.sliding_window", least=1))


def _gpt_oss(keys: _Keys) -> dict[str, Any]:
    return _put(
        _windowed(keys),
        intermediate_size=keys.integer("expert_feed_forward_length"),
        num_local_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
    )


def _deepseek2(keys: _Keys) -> dict[str, Any]:
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
    config = _common(keys)
    draft = keys.optional("nextn_predict_layers", most=16) or 0
    if draft >= keys.blocks:
        raise keys.fail("deepseek2.nextn_predict_layers", f"is {draft}, with {keys.blocks} blocks in all")
    sigmoid = keys.optional("expert_gating_func") == 2
    config.pop("head_dim", None)
    # The class has a default rank, so a model that projects its queries directly states null.
    config["q_lora_rank"] = keys.optional("attention.q_lora_rank") or None
    return _put(
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


def _phi3(keys: _Keys) -> dict[str, Any]:
    config = _decoder(keys)
    rotary = keys.optional("rope.dimension_count", least=1)
    head_dim = config.get("head_dim")
    if rotary is not None and isinstance(head_dim, int) and rotary < head_dim:
        config["partial_rotary_factor"] = rotary / head_dim
    return _put(config, sliding_window=keys.optional("attention.sliding_window") or None)


def _granite_moe(keys: _Keys) -> dict[str, Any]:
    return _put(
        _decoder(keys),
        num_local_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
    )


def _lfm2(keys: _Keys) -> dict[str, Any]:
    """A layer without KV heads is a short convolution."""
    kv_heads = keys.per_layer("attention.head_count_kv")
    attention = sorted({heads for heads in kv_heads if heads})
    if len(attention) != 1:
        raise keys.fail(
            f"{keys.info.architecture}.attention.head_count_kv", f"holds {quote(attention)}, not one count"
        )
    return _put(
        _common(keys),
        num_key_value_heads=attention[0],
        layer_types=["full_attention" if heads else "conv" for heads in kv_heads],
        conv_L_cache=keys.integer("shortconv.l_cache"),
        intermediate_size=keys.integer("feed_forward_length"),
        block_auto_adjust_ff_dim=False,
    )


def _lfm2_moe(keys: _Keys) -> dict[str, Any]:
    return _put(
        _lfm2(keys),
        num_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        num_dense_layers=keys.optional("leading_dense_block_count") or 0,
        use_expert_bias=keys.has(f"blk.{keys.blocks - 1}.exp_probs_b.bias"),
    )


def _starcoder2(keys: _Keys) -> dict[str, Any]:
    return _put(_decoder(keys), use_bias=keys.has("blk.0.attn_q.bias"), hidden_act="gelu_pytorch_tanh")


def _command_r(keys: _Keys) -> dict[str, Any]:
    return _put(_decoder(keys), use_qk_norm=keys.has("blk.0.attn_q_norm.weight"))


_ARCHITECTURES: dict[str, tuple[str, str, Callable[[_Keys], dict[str, Any]]]] = {
    "llama": ("llama", "LlamaForCausalLM", _llama),
    "mistral": ("mistral", "MistralForCausalLM", _decoder),
    "mistral3": ("mistral", "MistralForCausalLM", _decoder),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", _decoder),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", _decoder),
    "qwen2moe": ("qwen2_moe", "Qwen2MoeForCausalLM", _qwen_moe),
    "qwen3moe": ("qwen3_moe", "Qwen3MoeForCausalLM", _qwen_moe),
    "gemma": ("gemma", "GemmaForCausalLM", _decoder),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", _windowed),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM", _windowed),
    "gpt-oss": ("gpt_oss", "GptOssForCausalLM", _gpt_oss),
    "deepseek2": ("deepseek_v2", "DeepseekV2ForCausalLM", _deepseek2),
    "phi3": ("phi3", "Phi3ForCausalLM", _phi3),
    "granite": ("granite", "GraniteForCausalLM", _decoder),
    "granitemoe": ("granitemoe", "GraniteMoeForCausalLM", _granite_moe),
    "lfm2": ("lfm2", "Lfm2ForCausalLM", _lfm2),
    "lfm2moe": ("lfm2_moe", "Lfm2MoeForCausalLM", _lfm2_moe),
    "starcoder2": ("starcoder2", "Starcoder2ForCausalLM", _starcoder2),
    "command-r": ("cohere", "CohereForCausalLM", _command_r),
    "cohere2": ("cohere2", "Cohere2ForCausalLM", _windowed),
    "olmo2": ("olmo2", "Olmo2ForCausalLM", _decoder),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM", _decoder),
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
    return config | describe(_Keys(info, where)), (_COMPUTE_NOTE,)
