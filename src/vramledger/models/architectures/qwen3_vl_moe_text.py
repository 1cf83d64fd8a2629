"""The text part of Qwen3-VL mixtures: Qwen3-MoE whose checkpoint keeps each layer's experts in two tensors,
input rows first (transformers conversion_mapping.py, "qwen3_vl_moe")."""

from __future__ import annotations

from vramledger.models.architectures.qwen3_moe import qwen3_mixture
from vramledger.models.blocks import Place, fused_experts, router
from vramledger.models.config import Config
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    return qwen3_mixture(config, model_id, _experts)


def _experts(place: Place, moe: MixtureOfExperts, width: int) -> None:
    router(place, "mlp.gate", width=width, count=moe.num_experts)
    fused_experts(
        place,
        "mlp.experts",
        width=width,
        inner=moe.intermediate,
        count=moe.num_experts,
        transposed=True,
    )
