"""StarCoder2: GPT-2's MLP and biases in Llama's frame, a window for all layers where the file has one
(transformers models/starcoder2)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.dense import plain_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "Starcoder2Config", num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True
    )
    heads = heads_from_config(config)
    bias = config.flag("use_bias", default=True)
    return plain_decoder(
        config,
        model_id,
        "Starcoder2ForCausalLM",
        heads=heads,
        bias=bias,
        o_bias=bias,
        mlp_bias=bias,
        mlp_names=("mlp.c_fc", "mlp.c_proj"),
        norm_bias=True,
        mixers=windowed_mixers(config, heads, config.num_layers(), lambda index: True),
    )
