"""Mistral: Llama's layer with one window for all layers (transformers models/mistral).

The class has a window of 4096 where a file does not mention it; files of later releases say null.
"""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "MistralConfig", num_key_value_heads=8, max_position_embeddings=131072, sliding_window=4096
    )
    return windowed_everywhere(config, model_id, "MistralForCausalLM")


def windowed_everywhere(config: Config, model_id: str, default_class: str) -> Model:
    """Llama's layer; a `sliding_window` that is not null holds for every layer."""
    heads = heads_from_config(config)
    mixers = windowed_mixers(config, heads, config.num_layers(), lambda index: True)
    return gated_decoder(config, model_id, default_class, heads=heads, mixers=mixers)
