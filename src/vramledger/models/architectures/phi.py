"""Phi-1, Phi-1.5 and Phi-2: one norm a layer, biases everywhere, the head's too (transformers models/phi)."""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("PhiConfig", partial_rotary_factor=0.5)
    inner = config.integer("intermediate_size")
    frame = skeleton(config, "PhiForCausalLM", names=Names(norm="final_layernorm"))
    frame.attention(bias=True, o_bias=True, names=("q_proj", "k_proj", "v_proj", "dense"))
    if config.flag("qk_layernorm", default=False):
        for name in ("self_attn.q_layernorm", "self_attn.k_layernorm"):
            frame.layer.norm(name, frame.heads.head_dim, bias=True)
    plain_mlp(frame.layer, "mlp.fc1", "mlp.fc2", width=frame.heads.width, inner=inner, bias=True)
    frame.norms("input_layernorm", bias=True)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=False))
    return frame.finish(model_id, layers, rope=(frame.rope(),), norm_bias=True, head_bias=True)
