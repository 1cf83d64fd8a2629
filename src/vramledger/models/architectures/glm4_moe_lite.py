"""GLM-4.7-Flash: DeepSeek-V3's layout with one dense layer by default (transformers models/glm4_moe_lite)."""

from __future__ import annotations

from vramledger.models.architectures.deepseek_v3 import latent_moe
from vramledger.models.config import Config
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    return latent_moe(
        config,
        model_id,
        default_class="Glm4MoeLiteForCausalLM",
        default_dense=1,
        default_positions=202752,
    )
