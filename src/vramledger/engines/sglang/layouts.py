"""How a local matrix lies on the device after SGLang's loader has repacked it.

Source: sglang srt/layers/quantization (fp8.py, gptq.py, awq.py, modelopt_quant.py, mxfp4.py, marlin_utils.py,
compressed_tensors/).
"""

from __future__ import annotations

from vramledger.engines.device_tensors import Laid
from vramledger.engines.sglang.settings import Settings
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import (
    Bnb4,
    Bnb8,
    Dense,
    Fp8,
    Ggml,
    Granularity,
    GroupInt,
    Int8,
    Mxfp,
    Nvfp4,
    WeightFormat,
)
from vramledger.hardware.catalogue import Device
from vramledger.models.tensors import Role
from vramledger.units import ceil_div, round_up

FP32 = 4
NVFP4_ROWS, NVFP4_GROUPS = 128, 4
MXFP4_TRTLLM = 256  # layers/quantization/mxfp4.py: what TensorRT-LLM's kernels round both widths to
MXFP4_TRITON = 64


def matrix_bytes(
    kind: WeightFormat, rows: tuple[int, ...], columns: int, *, stack: int, settings: Settings, device: Device
) -> Laid:
    """Bytes of `stack` fused matrices of sum(rows) x columns on one rank; `rows` are those of each logical one."""
    total = sum(rows)
    count = stack * total * columns
    match kind:
        case Dense():
            return Laid(settings.dtype.bytes_for(count), 0)
        case Fp8():
            return _fp8(kind, rows, columns, stack, settings, device)
        case Int8(scale=scale):
            return Laid(count, stack * FP32 * (total if scale is Granularity.CHANNEL else len(rows)))
        case GroupInt():
            return _group_int(kind, total, columns, stack)
        case Nvfp4():
            scales = round_up(total, NVFP4_ROWS) * round_up(ceil_div(columns, 16), NVFP4_GROUPS)
            return Laid(count // 2, stack * (scales + 2 * FP32 * len(rows)))
        case Mxfp(bits=bits):
            return Laid(count * bits // 8, stack * total * ceil_div(columns, 32))
        case Bnb4():
            blocks = ceil_div(total * columns, 64)
            return Laid(count // 2, stack * FP32 * (blocks + 16))
        case Bnb8():
            return Laid(count, stack * FP32 * total)
        case Ggml(type=block):
            return Laid(stack * total * ceil_div(columns, block.block_elements) * block.block_bytes, 0)


def padded_experts(
    kind: WeightFormat, role: Role, rows: tuple[int, ...], columns: int, settings: Settings, device: Device
) -> tuple[tuple[int, ...], int]:
    """Rows and columns of one expert after the padding of its kernels (MXFP4 alone)."""
    if not isinstance(kind, Mxfp) or kind.bits != 4:
        return rows, columns
    both = device.architecture == "blackwell"
    inner, hidden = (MXFP4_TRTLLM, MXFP4_TRTLLM) if both else (MXFP4_TRITON, 1)
    row_multiple, column_multiple = (hidden, inner) if role is Role.EXPERT_DOWN else (inner, hidden)
    return tuple(round_up(row, row_multiple) for row in rows), round_up(columns, column_multiple)


def online(kind: WeightFormat, role: Role, settings: Settings) -> WeightFormat:
    """The format after `--quantization` on an unquantised checkpoint; heads stay as they are."""
    if not isinstance(kind, Dense) or role is Role.LM_HEAD:
        return kind
    match settings.flags.quantization:
        case "fp8":
            return Fp8(scale=Granularity.TENSOR)
        case "w8a8_int8":
            return Int8(scale=Granularity.CHANNEL)
        case "w8a8_fp8":
            return Fp8(scale=Granularity.CHANNEL)
        case "bitsandbytes":
            return Bnb4()
        case _:
            return kind


def _fp8(
    kind: Fp8, rows: tuple[int, ...], columns: int, stack: int, settings: Settings, device: Device
) -> Laid:
    """Scales in fp32; weight-only kernels (Marlin, on GPUs without fp8 units) keep them in the model's type."""
    total = sum(rows)
    if not has_fp8_units(device):
        per_row = ceil_div(columns, kind.block[1]) if kind.scale is Granularity.BLOCK else 1
        return Laid(stack * total * columns, stack * settings.dtype.bytes_for(total * per_row))
    static = FP32 if kind.static_input else 0
    match kind.scale:
        case Granularity.BLOCK:
            scales = FP32 * ceil_div(total, kind.block[0]) * ceil_div(columns, kind.block[1])
        case Granularity.CHANNEL:
            scales = FP32 * total + static
        case Granularity.TENSOR:
            scales = FP32 * len(rows) + static
    return Laid(stack * total * columns, stack * scales)


def has_fp8_units(device: Device) -> bool:
    """Ada, Hopper and newer; CDNA 3 and newer; taken for granted where the generation is not known."""
    if device.vendor != "nvidia" or device.compute_capability is None:
        return True
    major, _, minor = device.compute_capability.partition(".")
    return (int(major), int(minor)) >= (8, 9) if major.isdigit() and minor.isdigit() else True


def _group_int(kind: GroupInt, rows: int, columns: int, stack: int) -> Laid:
    """Packed words, 16-bit scales a group, zero points where the format is asymmetric, the order of inputs."""
    group = kind.group_size if kind.group_size > 0 else columns
    groups = ceil_div(columns, group)
    scales = DType.F16.bytes_for(groups * rows)
    if kind.zero_points:
        scales += groups * rows * kind.bits // 8
    if kind.act_order:
        scales += 2 * DType.I32.bytes_for(columns)
    return Laid(stack * rows * columns * kind.bits // 8, stack * scales)
