"""Llama and everything with its tensor layout (transformers models/llama/modeling_llama.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config, uniform_layers
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    count = config.num_layers()
    rows = config.integer("vocab_size")
    inner = config.integer("intermediate_size")
    positions = config.integer("max_position_embeddings", default=2048)
    tied = config.flag("tie_word_embeddings", default=False)
    attention_bias = config.flag("attention_bias", default=False)

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, heads.width)
    layer = root.at("model.layers.{layer}.", range(count))
    attention(
        layer,
        "self_attn",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        bias=attention_bias,
        o_bias=attention_bias,
    )
    gated_mlp(layer, "mlp", width=heads.width, inner=inner, bias=config.flag("mlp_bias", default=False))
    layer.norm("input_layernorm", heads.width)
    layer.norm("post_attention_layernorm", heads.width)
    root.final_norm("norm", heads.width)
    if not tied:
        root.at("").lm_head("lm_head", rows, heads.width)

    return Model(
        id=model_id,
        architecture=(config.texts("architectures") or ("LlamaForCausalLM",))[0],
        model_type=config.text("model_type", default="llama"),
        hidden_size=heads.width,
        vocab_size=rows,
        max_position_embeddings=positions,
        dtype=config.dtype(),
        tie_word_embeddings=tied,
        layers=uniform_layers(count, full_attention(heads), DenseMlp(intermediate=inner, gated=True)),
        tensors=tuple(root.into),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
        notes=tuple(config.notes),
    )
