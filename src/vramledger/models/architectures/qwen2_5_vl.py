"""Qwen2.5-VL: Qwen2 behind a gated vision tower (transformers models/qwen2_5_vl/modeling_qwen2_5_vl.py)."""

from __future__ import annotations

from vramledger.models.architectures.qwen2_vl import qwen2_with_tower
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.towers_qwen2 import qwen2_5_vision


def describe(config: Config, model_id: str) -> Model:
    return qwen2_with_tower(config, model_id, qwen2_5_vision)
