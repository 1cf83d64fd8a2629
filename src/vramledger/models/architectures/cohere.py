"""Command R and Aya: attention and MLP beside each other after one norm (transformers models/cohere).

Command R+ normalises q and k with a weight for each head; the norm has no bias.
"""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.dense import skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Role, axis, whole


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("CohereConfig", max_position_embeddings=8192, tie_word_embeddings=True)
    bias = config.flag("attention_bias", default=False)
    inner = config.integer("intermediate_size")
    frame = skeleton(config, "CohereForCausalLM")
    frame.attention(bias=bias, o_bias=bias)
    if config.flag("use_qk_norm", default=False):
        each = whole(frame.heads.head_dim)
        for name, kind, heads in (
            ("q_norm", AxisKind.Q_HEADS, frame.heads.heads),
            ("k_norm", AxisKind.KV_HEADS, frame.heads.kv),
        ):
            frame.layer.tensor(f"self_attn.{name}.weight", Role.NORM, axis(kind, heads), each)
    gated_mlp(frame.layer, "mlp", width=frame.heads.width, inner=inner)
    frame.norms("input_layernorm")
    channel = DenseMlp(intermediate=inner, gated=True)
    return frame.finish(model_id, frame.uniform(channel), rope=(frame.rope(),))
