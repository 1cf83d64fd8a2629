"""BLOOM: ALiBi, fused q, k and v interleaved by head, a norm after the embedding (transformers models/bloom).

Its checkpoints were saved from the base model: no `transformer.` before the names.
"""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import even_heads
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model

NAMES = Names(base="", embedding="word_embeddings", layer="h.{layer}.", norm="ln_f")


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("BloomConfig", seq_length=2048, tie_word_embeddings=True)
    heads = even_heads(
        config, config.integer("hidden_size", "n_embed"), config.integer("n_head", "num_attention_heads")
    )
    frame = skeleton(
        config,
        "BloomForCausalLM",
        names=NAMES,
        heads=heads,
        count=config.num_layers("n_layer", "num_hidden_layers"),
        positions=config.integer("max_position_embeddings", "seq_length"),
    )
    frame.root.norm("word_embeddings_layernorm", heads.width, bias=True)
    frame.fused_attention("self_attention.query_key_value", "self_attention.dense", bias=True, o_bias=True)
    inner = 4 * heads.width
    plain_mlp(
        frame.layer, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", width=heads.width, inner=inner, bias=True
    )
    frame.norms("input_layernorm", "post_attention_layernorm", bias=True)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=False))
    return frame.finish(model_id, layers, norm_bias=True)
