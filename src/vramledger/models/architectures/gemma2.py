"""Gemma 2: every other layer has a window, four norms a layer (transformers models/gemma2)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model

NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "Gemma2Config",
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=8192,
        sliding_window=4096,
        tie_word_embeddings=True,
    )
    heads = heads_from_config(config)
    bias = config.flag("attention_bias", default=False)
    return gated_decoder(
        config,
        model_id,
        "Gemma2ForCausalLM",
        heads=heads,
        bias=bias,
        o_bias=bias,
        norms=NORMS,
        mixers=windowed_mixers(config, heads, config.num_layers(), lambda index: index % 2 == 0),
    )
