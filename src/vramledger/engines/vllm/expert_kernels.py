"""Scratch of the experts' kernels, by vLLM's names for `--moe-backend`.

Source: `workspace_shapes` of vllm model_executor/layers/fused_moe (experts/ since 0.16): triton_moe.py, marlin_moe.py,
cutlass_moe.py, deep_gemm_moe.py, gpt_oss_triton_kernels_moe.py, flashinfer_cutlass_moe.py, rocm_aiter_moe.py; the others
return no shapes and keep what they need inside.
"""

from __future__ import annotations

from vramledger.engines.vllm.version import VllmVersion
from vramledger.units import ceil_div, round_up

GROUPED_ROWS = 128  # DeepGEMM's alignment of an expert's rows (get_mk_alignment_for_contiguous_layout)
ACTIVE_EXPERTS_SINCE = 24
FP8_BYTES_SINCE = 31
SWAPPED_UNTIL = (12, 1)


def kernel_name(backend: str, expert_format: str) -> str:
    """The kernel that a backend of the flag runs for experts stored so."""
    name = backend.lower().replace("-", "_")
    if expert_format == "mxfp4" and name in ("triton", "triton_unfused"):
        return "gptoss_triton" if name == "triton" else "gptoss_triton_unfused"
    if expert_format == "nvfp4" and name == "cutlass":
        return "cutlass_fp4"
    return name


def scratch_elements(
    kernel: str,
    version: VllmVersion,
    *,
    rows: int,
    top_k: int,
    width: int,
    inner: int,
    both: int,
    experts: int,
    element: int,
) -> tuple[int, int]:
    """Elements of the two buffers for `rows` tokens of `width`, experts of `inner` columns (`both` with the gate's) of
    which a rank has `experts`; `element` is the activations' bytes."""
    routed = rows * top_k
    match kernel:
        case "triton":
            return routed * max(both // 2, width), routed * max(both, width)
        case "marlin":
            return routed * max(inner, width), routed * max(2 * inner, width)
        case "cutlass":
            return routed * max(both, width), routed * max(both // 2, width)
        case "cutlass_fp4":
            return routed * max(2 * both, width), routed * both
        case "deep_gemm":
            active = min(routed, experts) if version.since(ACTIVE_EXPERTS_SINCE) else experts
            grouped = round_up(routed + active * (GROUPED_ROWS - 1), GROUPED_ROWS)
            if not version.since(*SWAPPED_UNTIL):
                return grouped * max(both, width), grouped * max(both // 2, width)
            columns = max(both // 2, width)
            if version.since(FP8_BYTES_SINCE):
                columns = ceil_div(columns, element)
            return grouped * columns, grouped * max(both, width)
        case "flashinfer_cutlass":
            return rows * width, 0
        case "gptoss_triton":
            return 0, routed * both // 2
        case "gptoss_triton_unfused":
            return routed * both // 2, routed * max(both, width)
        case _:
            return 0, 0
