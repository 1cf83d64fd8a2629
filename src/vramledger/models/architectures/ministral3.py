"""Ministral 3 and Devstral 2: Mistral's layer without a window by default (transformers models/ministral3)."""

from __future__ import annotations

from vramledger.models.architectures.mistral import windowed_everywhere
from vramledger.models.config import Config
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults(
        "Ministral3Config", num_key_value_heads=8, head_dim=128, max_position_embeddings=262144
    )
    return windowed_everywhere(config, model_id, "Ministral3ForCausalLM")
