"""Qwen1.5, Qwen2, Qwen2.5 and QwQ: Llama's layer with biases on q, k and v (transformers models/qwen2).

The window counts only with `use_sliding_window`, and then for layers from `max_window_layers` on.
"""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import Heads, heads_from_config, windowed_mixers
from vramledger.models.dense import gated_decoder
from vramledger.models.mixers import FullAttention
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("Qwen2Config", num_key_value_heads=32, max_position_embeddings=32768)
    heads = heads_from_config(config)
    return gated_decoder(
        config,
        model_id,
        "Qwen2ForCausalLM",
        heads=heads,
        bias=True,
        mixers=late_window_mixers(config, heads),
    )


def late_window_mixers(config: Config, heads: Heads) -> tuple[FullAttention, ...]:
    """A mixer a layer: Qwen's rule of a window in the layers from `max_window_layers` on, off by default."""
    if not config.flag("use_sliding_window", default=False):
        config = config.replacing(sliding_window=None)
    else:
        config = config.with_defaults("the Qwen config class", sliding_window=4096, max_window_layers=28)
    first = config.integer("max_window_layers", default=28, minimum=0)
    return windowed_mixers(config, heads, config.num_layers(), lambda index: index >= first)
