"""OLMo: Llama's layer whose norms have no weights (transformers models/olmo)."""

from __future__ import annotations

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.dense import skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    bias = config.flag("attention_bias", default=False)
    inner = config.integer("intermediate_size")
    frame = skeleton(config, "OlmoForCausalLM")
    frame.attention(bias=bias, o_bias=bias)
    gated_mlp(frame.layer, "mlp", width=frame.heads.width, inner=inner)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=True))
    return frame.finish(model_id, layers, rope=(frame.rope(),), final_norm=False)
