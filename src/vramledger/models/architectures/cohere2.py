"""Command R7B and Command A: three layers with a window for each without (transformers models/cohere2).

Only the layers with a window are rotated.
"""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "Cohere2Config", max_position_embeddings=8192, sliding_window=4096, tie_word_embeddings=True
    )
    if "layer_types" not in config:
        config = config.with_defaults("Cohere2Config", sliding_window_pattern=4)
    pattern = config.integer("sliding_window_pattern", default=4)
    heads = heads_from_config(config)
    bias = config.flag("attention_bias", default=False)
    return gated_decoder(
        config,
        model_id,
        "Cohere2ForCausalLM",
        heads=heads,
        bias=bias,
        o_bias=bias,
        norms=("input_layernorm",),
        mixers=windowed_mixers(config, heads, config.num_layers(), lambda index: (index + 1) % pattern != 0),
    )
