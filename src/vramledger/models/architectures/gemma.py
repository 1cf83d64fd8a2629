"""Gemma: Llama's layer with heads of 256 and a tied head (transformers models/gemma)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "GemmaConfig",
        num_key_value_heads=16,
        head_dim=256,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    bias = config.flag("attention_bias", default=False)
    return gated_decoder(config, model_id, "GemmaForCausalLM", bias=bias, o_bias=bias)
