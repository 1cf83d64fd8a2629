"""Apertus: an MLP without a gate whose activation has two learnt numbers a layer, norms of q and k
(transformers models/apertus)."""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.dense import skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import Role, whole


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("ApertusConfig", max_position_embeddings=65536)
    bias = config.flag("attention_bias", default=False)
    inner = config.integer("intermediate_size")
    frame = skeleton(config, "ApertusForCausalLM")
    frame.attention(bias=bias, o_bias=bias, qk_norm=config.flag("qk_norm", default=True))
    plain_mlp(
        frame.layer,
        "mlp.up_proj",
        "mlp.down_proj",
        width=frame.heads.width,
        inner=inner,
        bias=config.flag("mlp_bias", default=False),
    )
    for alpha in ("alpha_p", "alpha_n"):
        frame.layer.tensor(f"mlp.act_fn.{alpha}", Role.OTHER, whole(1))
    frame.norms("attention_layernorm", "feedforward_layernorm")
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=False))
    return frame.finish(model_id, layers, rope=(frame.rope(),))
