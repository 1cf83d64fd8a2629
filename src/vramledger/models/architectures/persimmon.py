"""Persimmon: fused q, k and v with biases, biased norms of q and k, half of each head rotated
(transformers models/persimmon)."""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import even_heads
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("PersimmonConfig", max_position_embeddings=16384, partial_rotary_factor=0.5)
    heads = even_heads(config, config.integer("hidden_size"), config.integer("num_attention_heads"))
    inner = config.integer("intermediate_size")
    frame = skeleton(config, "PersimmonForCausalLM", names=Names(norm="final_layernorm"), heads=heads)
    frame.fused_attention("self_attn.query_key_value", "self_attn.dense", bias=True, o_bias=True)
    if config.flag("qk_layernorm", default=True):
        for name in ("self_attn.q_layernorm", "self_attn.k_layernorm"):
            frame.layer.norm(name, heads.head_dim, bias=True)
    plain_mlp(
        frame.layer, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", width=heads.width, inner=inner, bias=True
    )
    frame.norms("input_layernorm", "post_attention_layernorm", bias=True)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=False))
    return frame.finish(model_id, layers, rope=(frame.rope(),), norm_bias=True)
