"""Arcee: Llama's layer with an MLP without a gate (transformers models/arcee)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.dense import plain_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("ArceeConfig", max_position_embeddings=4096)
    bias = config.flag("attention_bias", default=False)
    return plain_decoder(
        config,
        model_id,
        "ArceeForCausalLM",
        bias=bias,
        o_bias=bias,
        mlp_bias=config.flag("mlp_bias", default=False),
    )
