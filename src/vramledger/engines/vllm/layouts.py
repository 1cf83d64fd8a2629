"""How a local matrix lies on the device after vLLM's loader has repacked it.

Source: vllm model_executor/layers/quantization (fp8.py, gptq_marlin.py, awq_marlin.py, modelopt.py,
bitsandbytes.py, compressed_tensors/), quantization/utils/marlin_utils.py, fused_moe/oracle/mxfp4.py.
"""

from __future__ import annotations

from math import lcm

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.device_tensors import Laid
from vramledger.engines.vllm.capability import capability, has_fp8_units
from vramledger.engines.vllm.settings import Settings
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
from vramledger.units import ceil_div, round_up

FP32 = 4


MARLIN_PADS_EXPERTS_SINCE = 26
SMALLEST_GROUP = 32


class ExpertPadding(Struct, frozen=True, kw_only=True):
    """What the experts' kernel rounds local widths up to, and the element type of biases."""

    intermediate: int = 1
    hidden: int = 1
    bias_dtype: DType | None = None


def expert_padding(kind: WeightFormat, device: Device, settings: Settings) -> ExpertPadding:
    """Padding of expert stacks by format, device and version (mxfp4_round_up_hidden_size_and_intermediate_size;
    marlin_utils.py for packed integers)."""
    match kind:
        case Mxfp(bits=4):
            return _mxfp4_padding(device, settings)
        case GroupInt(group_size=group) if settings.version.since(MARLIN_PADS_EXPERTS_SINCE):
            return ExpertPadding(intermediate=lcm(64, group) if group > 0 else 64)
        case Fp8(scale=scale, block=(_, group)) if _runs_marlin_fp8(
            kind, device, settings
        ) and settings.version.since(MARLIN_PADS_FP8_EXPERTS_SINCE):
            return ExpertPadding(intermediate=lcm(64, group) if scale is Granularity.BLOCK else 64)
        case Dense() if _trtllm_moe(device, settings):
            return ExpertPadding(intermediate=128)
        case _:
            return ExpertPadding()


def expert_format(kind: WeightFormat, intermediate: int) -> WeightFormat:
    """How a stack whose local width no whole number of groups makes is stored: halved groups, unpadded, for
    the plain integer kernels (quantization/moe_wna16.py); every other as `kind`."""
    if not isinstance(kind, GroupInt) or kind.group_size <= 0 or intermediate % kind.group_size == 0:
        return kind
    group = kind.group_size
    while group > SMALLEST_GROUP and intermediate % group:
        group //= 2
    return replace(kind, group_size=group)


def _trtllm_moe(device: Device, settings: Settings) -> bool:
    return device.architecture == "blackwell" and settings.version.since(12)


def mxfp4_kernel(device: Device, settings: Settings) -> str:
    """The kernels of MXFP4 experts: "marlin", "triton", "trtllm" or "rocm", unless `--moe-backend` names one.

    TensorRT-LLM's run on data-centre Blackwell only; Triton's on Hopper for gpt-oss, from the release that
    ships the triton_kernels package (quantization/mxfp4.py get_mxfp4_backend to 0.18; after it
    fused_moe/oracle/mxfp4.py, which does not offer them to other models).
    """
    if settings.flags.moe_backend not in (None, "auto"):
        return settings.flags.moe_backend
    if device.vendor == "amd":
        return "rocm"
    generation = capability(device)
    if 100 <= generation < 110:
        return "trtllm"
    gpt_oss = settings.model_type == "gpt_oss"
    if gpt_oss and 90 <= generation < 100 and settings.version.since(TRITON_KERNELS_SINCE):
        return "triton"
    return "marlin"


TRITON_KERNELS_SINCE = 12


def _mxfp4_padding(device: Device, settings: Settings) -> ExpertPadding:
    """Multiples of the kernels; TensorRT-LLM's wanted twice the intermediate one before 0.27."""
    match mxfp4_kernel(device, settings):
        case "marlin":
            return ExpertPadding(intermediate=128, hidden=256)
        case "trtllm":
            multiple = 128 if settings.version.since(27) else 256
            return ExpertPadding(intermediate=multiple, hidden=256, bias_dtype=DType.F32)
        case "rocm":
            return ExpertPadding(intermediate=256, hidden=256)
        case "triton":
            return ExpertPadding(intermediate=64, bias_dtype=DType.F32)
        case _:
            return ExpertPadding(intermediate=64)


def _mxfp4_extra_scales(rows: int, columns: int, device: Device, settings: Settings) -> int:
    """Bytes beside one expert's plain scales on Hopper's Triton kernels: the swizzled copy is padded to 256
    rows and an even number of groups, and the plain one stayed on the device until 0.24
    (quantization/utils/mxfp4_utils.py _swizzle_mxfp4; triton_kernels hopper_scale.py)."""
    if mxfp4_kernel(device, settings) != "triton" or not 90 <= capability(device) < 100:
        return 0
    groups = ceil_div(columns, 32)
    swizzled = round_up(rows, 256) * round_up(groups, 2)
    return swizzled if not settings.version.since(25) else swizzled - rows * groups


def matrix_bytes(
    kind: WeightFormat, rows: tuple[int, ...], columns: int, *, stack: int, settings: Settings, device: Device
) -> Laid:
    """Bytes of `stack` fused matrices of sum(rows) x columns on one rank.

    `rows` are the output rows of each logical matrix that the engine fused (q, k, v; gate, up).
    """
    total_rows = sum(rows)
    count = stack * total_rows * columns
    match kind:
        case Dense():
            return Laid(settings.dtype.bytes_for(count), 0)
        case Fp8():
            if _runs_marlin_fp8(kind, device, settings):
                return _marlin_fp8(kind, total_rows, columns, stack, settings)
            return Laid(count, stack * _fp8_scales(kind, rows, columns))
        case Int8(scale=scale):
            scales = total_rows if scale is Granularity.CHANNEL else len(rows)
            return Laid(count, stack * FP32 * scales)
        case GroupInt():
            return _group_int(kind, total_rows, columns, stack, settings)
        case Nvfp4():
            return _nvfp4(rows, columns, stack)
        case Mxfp(bits=bits):
            extra = (
                _mxfp4_extra_scales(total_rows, columns, device, settings) if bits == 4 and stack > 1 else 0
            )
            return Laid(count * bits // 8, stack * total_rows * ceil_div(columns, 32), stack * extra)
        case Bnb4(double_quant=nested):
            blocks = ceil_div(total_rows * columns, 64)
            per_matrix = FP32 * blocks
            if nested and not settings.version.since(6):
                per_matrix = blocks + FP32 * (ceil_div(blocks, 256) + 256)
            return Laid(count // 2, stack * (per_matrix + FP32 * 16))
        case Bnb8():
            return Laid(count, stack * FP32 * total_rows)
        case Ggml(type=block):
            return Laid(stack * total_rows * ceil_div(columns, block.block_elements) * block.block_bytes, 0)


def _fp8_scales(kind: Fp8, rows: tuple[int, ...], columns: int) -> int:
    """Bytes of one fused matrix's scales for kernels that compute in FP8."""
    static = FP32 if kind.static_input else 0
    if kind.scale is Granularity.BLOCK:
        return FP32 * ceil_div(sum(rows), kind.block[0]) * ceil_div(columns, kind.block[1])
    if kind.scale is Granularity.CHANNEL:
        return FP32 * sum(rows) + static
    return FP32 * len(rows) + static


def _runs_marlin_fp8(kind: Fp8, device: Device, settings: Settings) -> bool:
    """Whether FP8 weights run in Marlin's weight-only kernels: on GPUs without FP8 units, tiles among them since
    0.9 (quantization/fp8.py, `use_marlin`)."""
    return not has_fp8_units(device) and (
        kind.scale is not Granularity.BLOCK or settings.version.since(MARLIN_TILES_SINCE)
    )


MARLIN_TILES_SINCE = 9
MARLIN_PADS_FP8_EXPERTS_SINCE = 25


def _marlin_fp8(kind: Fp8, rows: int, columns: int, stack: int, settings: Settings) -> Laid:
    """Scales in the model's type: one a row, or for tiles one for every row and group of columns
    (quantization/utils/marlin_utils_fp8.py, prepare_fp8_layer_for_marlin and prepare_fp8_moe_layer_for_marlin)."""
    group = kind.block[1] if kind.scale is Granularity.BLOCK else -1
    plain = stack * rows * columns
    scales = stack * settings.dtype.bytes_for(rows * (ceil_div(columns, group) if group > 0 else 1))
    if stack > 1 or not settings.version.since(MARLIN_PADS_SINCE):
        return Laid(plain, scales)
    padded_rows, padded_columns = _marlin_tiles(rows, columns, max(group, 1))
    padded = padded_rows * padded_columns + settings.dtype.bytes_for(
        padded_rows * (padded_columns // group if group > 0 else 1)
    )
    return Laid(plain, scales, padded - plain - scales)


def _marlin_tiles(rows: int, columns: int, group: int) -> tuple[int, int]:
    """The shape that Marlin's kernels take a matrix in (marlin_utils.py, marlin_padded_nk)."""
    return min(
        (round_up(rows, 64), round_up(columns, lcm(128, group))),
        (round_up(rows, 128), round_up(columns, lcm(64, group))),
        key=lambda shape: (shape[0] * shape[1], shape[0] + shape[1]),
    )


def _group_int(kind: GroupInt, rows: int, columns: int, stack: int, settings: Settings) -> Laid:
    """Packed words, fp16 scales a group, zero points only where the format is asymmetric."""
    group = kind.group_size if kind.group_size > 0 else columns
    elements = stack * rows * columns * kind.bits // 8
    groups = ceil_div(columns, group)
    scales = 2 * groups * rows
    if kind.zero_points:
        scales += groups * rows * kind.bits // 8
    if kind.act_order and not settings.version.since(10):
        scales += 2 * 4 * columns
    padding = 0
    if stack == 1:
        padded_rows, padded_columns = _marlin_tiles(rows, columns, group)
        if settings.version.since(MARLIN_PADS_SINCE):
            padding = (padded_rows * padded_columns - rows * columns) * kind.bits // 8
    return Laid(elements, stack * scales, padding)


MARLIN_PADS_SINCE = 24


def _nvfp4(rows: tuple[int, ...], columns: int, stack: int) -> Laid:
    """Half a byte an element; e4m3 scales swizzled in tiles of 128 rows and 4 groups of 16."""
    total = sum(rows)
    padded_rows, padded_columns = round_up(total, 32), round_up(columns, 32)
    elements = stack * total * columns // 2
    scales = stack * (round_up(total, 128) * round_up(ceil_div(columns, 16), 4) + 2 * FP32 * len(rows))
    return Laid(elements, scales, stack * (padded_rows * padded_columns - total * columns) // 2)
