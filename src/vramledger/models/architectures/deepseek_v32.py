"""DeepSeek-V3.2: V3 with a lightning indexer in every layer (transformers models/deepseek_v32)."""

from __future__ import annotations

from vramledger.models.architectures.deepseek_v3 import latent_moe
from vramledger.models.config import Config
from vramledger.models.mla import indexer_from_config
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    return latent_moe(
        config,
        model_id,
        default_class="DeepseekV32ForCausalLM",
        default_dense=3,
        default_positions=163840,
        indexers=(indexer_from_config(config),) * (config.num_layers() + 1),
    )
