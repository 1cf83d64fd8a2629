"""Seed-OSS: Llama's layer, biases on q, k and v by default (transformers models/seed_oss)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "SeedOssConfig", num_key_value_heads=8, head_dim=128, max_position_embeddings=524288
    )
    return gated_decoder(
        config,
        model_id,
        "SeedOssForCausalLM",
        bias=config.flag("attention_bias", default=True),
        o_bias=config.flag("attention_out_bias", default=False),
        mlp_bias=config.flag("mlp_bias", default=False),
    )
