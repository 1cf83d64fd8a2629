"""Mistral 4: latent attention and experts as in DeepSeek-V2, each layer's experts stored in two tensors
(transformers models/mistral4/modeling_mistral4.py; the published FP8 checkpoint has 128 scales for each)."""

from __future__ import annotations

from vramledger.models.architectures.deepseek_v3 import latent_moe
from vramledger.models.blocks import SHARED, Place, fused_experts, gated_mlp, router
from vramledger.models.config import Config
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    return latent_moe(
        config,
        model_id,
        default_class="Mistral4ForCausalLM",
        default_dense=0,
        default_positions=1048576,
        experts=_experts,
    )


def _experts(place: Place, moe: MixtureOfExperts, width: int) -> None:
    router(place, "mlp.gate", width=width, count=moe.num_experts)
    fused_experts(place, "mlp.experts", width=width, inner=moe.intermediate, count=moe.num_experts)
    if moe.shared_intermediate:
        gated_mlp(place, "mlp.shared_experts", width=width, inner=moe.shared_intermediate, roles=SHARED)
