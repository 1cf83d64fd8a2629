"""GLM-4-0414 and GLM-Z1: GLM with two more norms a layer (transformers models/glm4)."""

from __future__ import annotations

from vramledger.models.architectures.glm import with_norms
from vramledger.models.config import Config
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    norms = (
        "input_layernorm",
        "post_attention_layernorm",
        "post_self_attn_layernorm",
        "post_mlp_layernorm",
    )
    return with_norms(config, model_id, "Glm4", norms)
