"""Values that vLLM's own flags take by name, and what sizes hang on them.

Source: vllm v1/attention/backends/registry.py, config/kernel.py (moe_backend),
model_executor/layers/quantization/__init__.py.
"""

from __future__ import annotations

from vramledger.errors import FlagError
from vramledger.models.checkpoint import Checkpoint

# Block sizes a backend forces or prefers; 16 where none is named.
ATTENTION_BACKENDS: dict[str, int] = {
    "FLASH_ATTN": 16, "FLASH_ATTN_DIFFKV": 16, "FLASHINFER": 16, "TRITON_ATTN": 16, "FLEX_ATTENTION": 16,
    "TREE_ATTN": 16, "XFORMERS": 16, "TORCH_SDPA": 16, "ROCM_ATTN": 16, "ROCM_AITER_FA": 16,
    "ROCM_AITER_UNIFIED_ATTN": 16, "ROCM_FLASH": 16, "CPU_ATTN": 128, "TURBOQUANT": 16,
    "TRITON_MLA": 16, "FLASH_ATTN_MLA": 16, "FLASHINFER_MLA": 32, "FLASHINFER_MLA_SPARSE": 64,
    "FLASHMLA": 64, "FLASHMLA_SPARSE": 64, "CUTLASS_MLA": 128, "ROCM_AITER_MLA": 16,
    "ROCM_AITER_MLA_SPARSE": 64, "XPU_MLA_SPARSE": 64,
}  # fmt: skip

MOE_BACKENDS = (
    "auto", "triton", "deep_gemm", "cutlass", "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cutedsl",
    "marlin", "aiter", "emulation",
)  # fmt: skip

ONLINE_QUANTIZATION = ("fp8", "bitsandbytes")

# What `--quantization` may say for a checkpoint of a method; the first is the method's own name.
QUANTIZATION_NAMES: dict[str, tuple[str, ...]] = {
    "awq": ("awq", "awq_marlin", "auto_awq"),
    "gptq": ("gptq", "gptq_marlin", "gptq_marlin_24", "auto_gptq"),
    "compressed-tensors": ("compressed-tensors",),
    "fp8": ("fp8", "deepseek_v4_fp8"),
    "fbgemm_fp8": ("fbgemm_fp8",),
    "modelopt": ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"),
    "bitsandbytes": ("bitsandbytes",),
    "mxfp4": ("mxfp4", "gpt_oss_mxfp4"),
    "auto-round": ("auto-round", "auto_round", "inc"),
    "gguf": ("gguf",),
}


def check_names(
    checkpoint: Checkpoint, *, quantization: str | None, attention: str | None, moe: str | None
) -> None:
    """Raises FlagError for a backend vLLM does not have (with the closest), and for a quantisation that is
    neither the checkpoint's own nor one the engine makes while loading."""
    if attention is not None and attention.upper() not in ATTENTION_BACKENDS:
        raise _unknown("attention_backend", attention, tuple(ATTENTION_BACKENDS))
    if moe is not None and moe.lower() not in MOE_BACKENDS:
        raise _unknown("moe_backend", moe, MOE_BACKENDS)
    if quantization is None:
        return
    method = checkpoint.quantization.partition(":")[0]
    allowed = QUANTIZATION_NAMES.get(method, ONLINE_QUANTIZATION)
    if quantization not in allowed:
        stored = (
            f"the checkpoint is {method}"
            if method in QUANTIZATION_NAMES
            else "the checkpoint is not quantised"
        )
        raise FlagError(
            f"--quantization {quantization}: {stored}, which takes {' or '.join(allowed)}",
            flag="quantization",
            value=quantization,
        )


def _unknown(flag: str, value: str, known: tuple[str, ...]) -> FlagError:
    from difflib import get_close_matches

    closest = get_close_matches(value.lower(), [name.lower() for name in known], n=3)
    shown = [name for name in known if name.lower() in closest] or list(known)
    return FlagError(
        f"--{flag.replace('_', '-')} {value} is not one of vLLM's; did you mean {', '.join(shown)}?",
        flag=flag,
        value=value,
        closest=shown,
    )
