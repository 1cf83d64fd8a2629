"""Qwen3.5 and its mixtures with their vision tower (transformers models/qwen3_5/modeling_qwen3_5.py)."""

from __future__ import annotations

from vramledger.models.architectures.qwen3_5_text import describe_text
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.towers_qwen import qwen3_vision_tower


def describe(config: Config, model_id: str) -> Model:
    """The outer config decides whether the head is tied.

    Published BF16 checkpoints fuse the experts; quantised ones store them one by one, since their scales and
    block formats are a matrix's own.
    """
    text = describe_text(
        config.sub("text_config"),
        model_id,
        tied=config.flag("tie_word_embeddings", default=False),
        prefix="model.language_model.",
        moe=config.text("model_type", default="qwen3_5") == "qwen3_5_moe",
        fused="quantization_config" not in config,
    )
    tensors, tower = qwen3_vision_tower(config.sub("vision_config"))
    return compose(text, config, model_id, prefixes={}, extra=tensors, towers=(tower,))
