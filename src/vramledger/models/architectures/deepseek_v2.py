"""DeepSeek-V2: as V3 without the router's correction bias (transformers models/deepseek_v2)."""

from __future__ import annotations

from vramledger.models.architectures.deepseek_v3 import latent_moe
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.moe import MoeNames


def describe(config: Config, model_id: str) -> Model:
    return latent_moe(
        config,
        model_id,
        default_class="DeepseekV2ForCausalLM",
        default_dense=0,
        names=MoeNames(),
        default_positions=2048,
    )
