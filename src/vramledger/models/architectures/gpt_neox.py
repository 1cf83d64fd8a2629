"""GPT-NeoX, Pythia, RedPajama: fused q, k and v interleaved by head, biases (transformers models/gpt_neox).

Older checkpoints also hold a mask and an inv_freq a layer, which nothing loads.
"""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import even_heads
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model

NAMES = Names(base="gpt_neox.", embedding="embed_in", norm="final_layer_norm", head="embed_out")


def describe(config: Config, model_id: str) -> Model:
    if "partial_rotary_factor" not in config:
        config = config.with_defaults("GPTNeoXConfig", rotary_pct=0.25)
    heads = even_heads(config, config.integer("hidden_size"), config.integer("num_attention_heads"))
    inner = config.integer("intermediate_size")
    bias = config.flag("attention_bias", default=True)
    frame = skeleton(config, "GPTNeoXForCausalLM", names=NAMES, heads=heads)
    frame.fused_attention("attention.query_key_value", "attention.dense", bias=bias, o_bias=bias)
    plain_mlp(
        frame.layer, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", width=heads.width, inner=inner, bias=True
    )
    frame.norms("input_layernorm", "post_attention_layernorm", bias=True)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=False))
    return frame.finish(model_id, layers, rope=(frame.rope(),), norm_bias=True)
