"""InternLM2 and 2.5: fused q, k and v under names of its own (InternLM's modeling_internlm2.py)."""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model

NAMES = Names(embedding="tok_embeddings", head="output")


def describe(config: Config, model_id: str) -> Model:
    bias = config.flag("bias", default=True)
    inner = config.integer("intermediate_size")
    frame = skeleton(config, "InternLM2ForCausalLM", names=NAMES)
    frame.fused_attention("attention.wqkv", "attention.wo", bias=bias, o_bias=bias)
    gated_mlp(frame.layer, "feed_forward", width=frame.heads.width, inner=inner, names=("w1", "w3", "w2"))
    frame.norms("attention_norm", "ffn_norm")
    channel = DenseMlp(intermediate=inner, gated=True)
    return frame.finish(model_id, frame.uniform(channel), rope=(frame.rope(),))
