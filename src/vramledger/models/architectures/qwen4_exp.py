"""Qwen4-Exp with its vision tower (transformers models/qwen4_exp)."""

from __future__ import annotations

from vramledger.models.architectures.qwen4_exp_text import describe_text
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose, text_config
from vramledger.models.towers_qwen import qwen3_vision_tower


def describe(config: Config, model_id: str) -> Model:
    text = describe_text(
        text_config(config, as_type="qwen4_exp_text"),
        model_id,
        prefix="model.language_model.",
        fused="quantization_config" not in config,
    )
    tensors, tower = qwen3_vision_tower(config.sub("vision_config"))
    return compose(text, config, model_id, prefixes={}, extra=tensors, towers=(tower,))
