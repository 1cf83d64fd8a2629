"""Scratch of the libraries that multiply matrices: cuBLAS, FlashInfer, Marlin.

Source: torch aten/src/ATen/cuda/CUDABlas.cpp (a workspace for each handle and stream); flashinfer gemm (DEFAULT_WORKSPACE_SIZE,
one buffer for each kind of product); vllm csrc/quantization/gptq_marlin/gptq_marlin.cu (fp32 sums of one product for each
multiprocessor), v1/worker/gpu_worker.py (0.33 makes the handles before it measures).
"""

from __future__ import annotations

from collections.abc import Collection

from vramledger.engines.vllm.capability import capability
from vramledger.engines.vllm.extras import Extra, extra
from vramledger.engines.vllm.sampler import USUAL_SMS
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import AFTER_LOAD, Owner
from vramledger.units import MIB

MADE_BEFORE_MEASURING_SINCE = 33
FLASHINFER_BYTES = 32 * MIB
MARLIN_ROWS, MARLIN_COLUMNS = 64, 256  # max_m_block_size, max_thread_n


def matrix_extras(settings: Settings, device: Device, kernels: Collection[str]) -> list[Extra]:
    """Lasting scratch of the libraries that `kernels` (those of the quantised matrices) and plain products use."""
    if device.vendor == "cpu":
        return []
    out = [
        extra(
            Owner.WORKSPACE, "matrix library (cuBLAS)", AFTER_LOAD, cublas_bytes(device),
            calculated("torch cuBLAS workspace", "one handle and stream"),
            charged=not settings.version.since(MADE_BEFORE_MEASURING_SINCE),
        )
    ]  # fmt: skip
    if "flashinfer" in kernels:
        out.append(
            extra(
                Owner.WORKSPACE, "matrix library (FlashInfer, FP4)", AFTER_LOAD, FLASHINFER_BYTES,
                calculated("flashinfer gemm mm_fp4_workspace", "DEFAULT_WORKSPACE_SIZE"),
                charged=True,
            )
        )  # fmt: skip
    return out


def cublas_bytes(device: Device) -> int:
    """32 MiB on Hopper and newer, 8 MiB before."""
    return (32 if capability(device) >= 90 else 8) * MIB


def partial_sums_bytes(device: Device, kernels: Collection[str]) -> int:
    """Marlin's fp32 sums of one product at 64 rows or more, 0 where nothing runs on it."""
    if "marlin" not in kernels:
        return 0
    return (device.sm_count or USUAL_SMS) * MARLIN_ROWS * MARLIN_COLUMNS * 4
