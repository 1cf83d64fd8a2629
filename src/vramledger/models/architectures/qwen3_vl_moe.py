"""Qwen3-VL mixtures: Qwen3-MoE with experts stored fused, behind Qwen3-VL's tower
(transformers models/qwen3_vl_moe)."""

from __future__ import annotations

from vramledger.models.architectures.qwen3_vl import qwen3_with_tower
from vramledger.models.config import Config
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    return qwen3_with_tower(config, model_id, as_type="qwen3_vl_moe_text")
