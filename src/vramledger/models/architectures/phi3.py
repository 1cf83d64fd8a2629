"""Phi-3, Phi-3.5, Phi-4: fused q, k, v and fused gate and up, a window for all layers where the file has one
(transformers models/phi3)."""

from __future__ import annotations

from vramledger.models.blocks import fused_gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import layers_of_mixers, windowed_mixers
from vramledger.models.dense import skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("Phi3Config", max_position_embeddings=4096)
    inner = config.integer("intermediate_size")
    frame = skeleton(config, "Phi3ForCausalLM")
    frame.fused_attention("self_attn.qkv_proj", "self_attn.o_proj")
    fused_gated_mlp(frame.layer, "mlp.gate_up_proj", "mlp.down_proj", width=frame.heads.width, inner=inner)
    frame.norms("input_layernorm", "post_attention_layernorm")
    mixers = windowed_mixers(config, frame.heads, frame.count, lambda index: True)
    layers = layers_of_mixers(mixers, DenseMlp(intermediate=inner, gated=True))
    return frame.finish(model_id, layers, rope=(frame.rope(),))
