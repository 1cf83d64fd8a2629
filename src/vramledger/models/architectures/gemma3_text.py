"""Gemma 3 (text): five layers with a window for each without, norms of q and k (transformers models/gemma3).

Two rotary tables: the layers without a window use the scaled one, those with a window a local one that is
never scaled. EmbeddingGemma is this model attending in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.models.architectures.gemma2 import NORMS
from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.dense import gated_decoder
from vramledger.models.mixers import EncoderAttention, TokenMixer
from vramledger.models.model import Model, Rope
from vramledger.models.rope import rope_from_config
from vramledger.models.text_defaults import TEXT_DEFAULTS


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "Gemma3TextConfig", tie_word_embeddings=True, **TEXT_DEFAULTS["gemma3_text"]
    )
    if "layer_types" not in config:
        config = config.with_defaults("Gemma3TextConfig", sliding_window_pattern=6)
    pattern = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    heads = heads_from_config(config)
    count = config.num_layers()
    mixers: Sequence[TokenMixer]
    if config.flag("use_bidirectional_attention", default=False):
        both_ways = EncoderAttention(
            q_heads=heads.heads, kv_heads=heads.kv, head_dim=heads.head_dim, v_head_dim=heads.head_dim
        )
        mixers = (both_ways,) * count
    else:
        mixers = windowed_mixers(config, heads, count, lambda index: (index + 1) % pattern != 0)
    positions = config.integer("max_position_embeddings")
    bias = config.flag("attention_bias", default=False)
    return gated_decoder(
        config,
        model_id,
        "Gemma3ForCausalLM",
        heads=heads,
        bias=bias,
        o_bias=bias,
        qk_norm=True,
        norms=NORMS,
        mixers=mixers,
        rope=(
            rope_from_config(config, heads.head_dim, max_positions=positions, layer_type="full_attention"),
            Rope(rotary_dim=heads.head_dim, max_positions=positions),
        ),
    )
