"""SmolLM3: Llama's layer; every fourth layer goes without rotary embedding, and it is those that may have a
window (transformers models/smollm3)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "SmolLM3Config", num_key_value_heads=4, max_position_embeddings=32768, tie_word_embeddings=True
    )
    count = config.num_layers()
    has_rope = config.integers("no_rope_layers", maximum=1) or _every_but(
        config.integer("no_rope_layer_interval", default=4), count
    )
    if len(has_rope) < count:
        raise config.fail("no_rope_layers", f"has {len(has_rope)} entries for {count} layers")
    if not config.flag("use_sliding_window", default=False):
        config = config.replacing(sliding_window=None)
    heads = heads_from_config(config)
    bias = config.flag("attention_bias", default=False)
    return gated_decoder(
        config,
        model_id,
        "SmolLM3ForCausalLM",
        heads=heads,
        bias=bias,
        o_bias=bias,
        mlp_bias=config.flag("mlp_bias", default=False),
        mixers=windowed_mixers(config, heads, count, lambda index: not has_rope[index]),
    )


def _every_but(interval: int, count: int) -> tuple[int, ...]:
    """1 for a layer with rotary embedding, 0 for each `interval`-th one."""
    return tuple(int((index + 1) % interval != 0) for index in range(count))
