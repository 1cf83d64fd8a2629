"""Qwen2-VL: Qwen2 behind a vision tower (transformers models/qwen2_vl/modeling_qwen2_vl.py)."""

from __future__ import annotations

from collections.abc import Callable

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model, Tower
from vramledger.models.multimodal import compose, text_config
from vramledger.models.towers_qwen2 import qwen2_vision


def describe(config: Config, model_id: str) -> Model:
    return qwen2_with_tower(config, model_id, qwen2_vision)


def qwen2_with_tower(config: Config, model_id: str, vision: Callable[[Place, Config], Tower]) -> Model:
    """Qwen2 from the outer keys (as published) or a text_config, and a tower under `visual.`."""
    if "text_config" in config:
        text_keys = text_config(config, as_type="qwen2").replacing(architectures=None)
    else:
        text_keys = config.replacing(model_type="qwen2", architectures=None)
    text = architectures.describe(text_keys, model_id)
    root = Place()
    tower = vision(root, config.sub("vision_config"))
    return compose(text, config, model_id, prefixes={}, extra=root.into, towers=(tower,))
