"""Qwen3: no biases by default, a norm of head_dim for q and k (transformers models/qwen3)."""

from __future__ import annotations

from vramledger.models.architectures.qwen2 import late_window_mixers
from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "Qwen3Config", num_key_value_heads=32, head_dim=128, max_position_embeddings=32768
    )
    heads = heads_from_config(config)
    bias = config.flag("attention_bias", default=False)
    return gated_decoder(
        config,
        model_id,
        "Qwen3ForCausalLM",
        heads=heads,
        bias=bias,
        o_bias=bias,
        qk_norm=True,
        mixers=late_window_mixers(config, heads),
    )
