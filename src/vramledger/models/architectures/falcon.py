"""Falcon, the first releases (RefinedWeb) too (transformers models/falcon).

The 7B has one KV head, the 40B and 180B ("new decoder architecture") have groups and two norms a layer.
Transformers ties the head; the checkpoints hold it a second time.
"""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, even_heads
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model

NAMES = Names(base="transformer.", embedding="word_embeddings", layer="h.{layer}.", norm="ln_f")


def describe(config: Config, model_id: str) -> Model:
    # The files of the first releases do not name the new architecture; their model_type does.
    first_type = config.raw("model_type") == "RefinedWeb"
    grouped = config.flag("new_decoder_architecture", default=first_type)
    config = config.with_defaults("FalconConfig", tie_word_embeddings=True, max_position_embeddings=2048)
    heads = _heads(config, grouped)
    inner = config.integer("ffn_hidden_size", default=4 * heads.width)
    bias = config.flag("bias", default=False)

    frame = skeleton(
        config,
        "FalconForCausalLM",
        names=NAMES,
        heads=heads,
        count=config.num_layers("num_hidden_layers", "n_layer"),
    )
    frame.fused_attention("self_attention.query_key_value", "self_attention.dense", bias=bias, o_bias=bias)
    plain_mlp(
        frame.layer, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", width=heads.width, inner=inner, bias=bias
    )
    if not config.flag("parallel_attn", default=True):
        frame.norms("input_layernorm", "post_attention_layernorm", bias=True)
    elif config.integer("num_ln_in_parallel_attn", default=2 if grouped else 1, maximum=2) == 2:
        frame.norms("ln_attn", "ln_mlp", bias=True)
    else:
        frame.norms("input_layernorm", bias=True)
    if frame.tied:
        config.assume("Falcon checkpoints hold the tied output head a second time; it is counted once")
    rope = () if config.flag("alibi", default=False) else (frame.rope(),)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=False))
    return frame.finish(model_id, layers, rope=rope, norm_bias=True)


def _heads(config: Config, grouped: bool) -> Heads:
    heads = even_heads(config, config.integer("hidden_size"), config.integer("num_attention_heads", "n_head"))
    if not grouped and config.flag("multi_query", default=True):
        kv = 1
    else:
        kv = config.integer("num_kv_heads", "n_head_kv", default=heads.heads)
    if heads.heads % kv:
        raise config.fail("num_kv_heads", f"{kv} does not divide num_attention_heads {heads.heads}")
    return Heads(width=heads.width, heads=heads.heads, kv=kv, head_dim=heads.head_dim)
