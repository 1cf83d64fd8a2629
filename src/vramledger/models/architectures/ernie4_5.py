"""ERNIE 4.5 (dense): Llama's layer with one `use_bias` for all projections (transformers models/ernie4_5)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "Ernie4_5Config",
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
    )
    bias = config.flag("use_bias", default=False)
    return gated_decoder(config, model_id, "Ernie4_5ForCausalLM", bias=bias, o_bias=bias, mlp_bias=bias)
