"""Baichuan and Baichuan 2: Llama's layer with q, k and v in W_pack (Baichuan's modeling_baichuan.py).

The 7B is rotated; the 13B has ALiBi and no rotary table, which the file does not say: its class differs by
size, and the hidden width of 4096 tells the 7B (vLLM's baichuan.py goes by the same).
"""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config
from vramledger.models.dense import skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    inner = config.integer("intermediate_size")
    positions = config.integer("max_position_embeddings", "model_max_length", default=4096)
    frame = skeleton(config, "BaichuanForCausalLM", heads=heads, positions=positions)
    frame.fused_attention("self_attn.W_pack", "self_attn.o_proj")
    gated_mlp(frame.layer, "mlp", width=heads.width, inner=inner)
    frame.norms("input_layernorm", "post_attention_layernorm")
    rope = (frame.rope(),) if heads.width == 4096 else ()
    return frame.finish(model_id, frame.uniform(DenseMlp(intermediate=inner, gated=True)), rope=rope)
