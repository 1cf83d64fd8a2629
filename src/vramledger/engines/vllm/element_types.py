"""Tensors that vLLM keeps in another element type than the checkpoint does.

Source: vllm model_executor/layers/mamba (mamba_mixer.py, mamba_mixer2.py, gdn), layers/kda.py and the models'
own gates; the conformance command finds what differs.
"""

from __future__ import annotations

from vramledger.engines.vllm.settings import Settings
from vramledger.formats.dtypes import DType
from vramledger.models.tensors import Role, Tensor

FP32_ROUTERS = frozenset({"glm4_moe", "glm4_moe_lite", "hy_v3", "mimo_v2_flash", "minimax_m2"})
"""Models whose gate is an fp32 matrix whatever the checkpoint holds."""

FP32_TIME_STEPS = frozenset({"kimi_linear"})
"""Models whose time steps and convolutions are fp32."""


# DeepSeek-V4's table of experts by token, Gemma 3n's scale of AltUp.
BY_NAME = {"tid2eid": DType.I32, "correct_output_scale": DType.F32}


def held_dtype(tensor: Tensor, settings: Settings) -> DType:
    """Element type on the device of a tensor that is not quantised."""
    if tensor.role is Role.ROUTER and settings.model_type in FP32_ROUTERS:
        return DType.F32
    if tensor.role is Role.SSM_CONV and settings.model_type in FP32_TIME_STEPS:
        return DType.F32
    if tensor.role is Role.SSM_PARAM:
        leaf = tensor.name.rpartition(".")[2]
        if leaf == "A_log" or (leaf == "dt_bias" and settings.model_type in FP32_TIME_STEPS):
            return DType.F32
    return BY_NAME.get(tensor.name.rpartition(".")[2]) or tensor.dtype or settings.dtype
