"""The format of a stored matrix, told from its parts in a safetensors header."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import (
    Bnb4,
    Bnb8,
    Dense,
    Fp8,
    Granularity,
    GroupInt,
    Int8,
    Mxfp,
    Nvfp4,
    Packing,
    Shape,
    WeightFormat,
)
from vramledger.units import ceil_div

Parts = Mapping[str, tuple[DType, Shape]]

_FP8 = (DType.F8_E4M3, DType.F8_E5M2)
_BLOCK_EDGES = (128, 64, 32, 256, 16, 512, 1024)
_SCALE_NAMES = (".weight_scale_inv", ".weight_scale", ".scale")


def detect_format(parts: Parts, *, columns: int | None = None) -> WeightFormat:
    """The format of one module (not a stack) whose parts have these types and shapes, keyed by suffix.

    `columns` is K where the model's description gives it. Without it the packed integers of
    compressed-tensors say only bits times group size, and 4 bits with the largest usual group that fits is
    taken (4 bits where a row has one scale); the bytes are the same. GPTQ's order of activation is in its
    data, and changes no byte. Raises UnknownFormat for parts that no known format has, naming them.
    """
    if "_blocks" in parts:
        return Mxfp(bits=4, packing=Packing.GPT_OSS)
    if ".qweight" in parts:
        return _packed_columns(parts)
    if ".weight_packed" in parts:
        return _compressed(parts, columns)
    if ".SCB" in parts:
        return Bnb8()
    for suffix in parts:
        _, found, kind = suffix.partition(".weight.quant_state.bitsandbytes__")
        if found:
            return Bnb4(quant_type=kind, double_quant=".weight.nested_absmax" in parts)
    if ".weight" in parts:
        return _plain_weight(parts)
    if len(parts) == 1:
        return Dense(dtype=next(iter(parts.values()))[0])
    raise _unknown(parts)


def _unknown(parts: Parts) -> UnknownFormat:
    shown = ", ".join(
        f"{suffix} {dtype} {list(shape)}" for suffix, (dtype, shape) in sorted(parts.items())[:8]
    )
    return UnknownFormat(f"no known format stores a matrix as {shown}", parts=tuple(parts))


def _group_size(length: int, groups: int) -> int:
    """The group size of `groups` groups along `length`; -1 where one group covers it all."""
    if groups <= 1:
        return -1
    usual = [size for size in (128, 64, 32, 16, 256, 512, 1024) if ceil_div(length, size) == groups]
    return usual[0] if usual else ceil_div(length, groups)


def _packed_columns(parts: Parts) -> WeightFormat:
    """GPTQ packs along K and AWQ along N; the scales' width is N in both."""
    if ".scales" not in parts or ".qzeros" not in parts:
        raise _unknown(parts)
    qweight, (dtype, scales), qzeros = parts[".qweight"][1], parts[".scales"], parts[".qzeros"][1]
    if len(qweight) != 2 or len(scales) != 2 or len(qzeros) != 2 or min(*qweight, *scales, *qzeros) < 1:
        raise _unknown(parts)
    groups, rows = scales
    if qweight[1] == rows:
        if ".g_idx" in parts:
            columns = max(1, _count(parts[".g_idx"][1]))
            bits = qweight[0] * 32 // columns
        else:
            bits = qzeros[1] * 32 // rows
            columns = qweight[0] * 32 // max(1, bits)
        if bits not in (2, 3, 4, 8):
            raise _unknown(parts)
        return GroupInt(
            bits=bits, group_size=_group_size(columns, groups), packing=Packing.GPTQ, scale_dtype=dtype,
            bias=".bias" in parts,
        )  # fmt: skip
    return GroupInt(
        bits=max(1, qweight[1] * 32 // rows),
        group_size=_group_size(qweight[0], groups),
        packing=Packing.AWQ,
        scale_dtype=dtype,
    )


def _compressed(parts: Parts, known_columns: int | None) -> WeightFormat:
    dtype, packed = parts[".weight_packed"]
    if ".weight_scale" not in parts:
        raise _unknown(parts)
    scale_dtype, scales = parts[".weight_scale"]
    if dtype is DType.U8 and ".weight_global_scale" in parts:
        return Nvfp4(packing=Packing.COMPRESSED_TENSORS, input_scale=".input_global_scale" in parts)
    if dtype is DType.U8:
        return Mxfp(bits=4, packing=Packing.COMPRESSED_TENSORS)
    if len(packed) != 2 or len(scales) != 2 or scales[1] < 1:
        raise _unknown(parts)
    widths: tuple[int, ...] = (4, 8, 3, 2)
    if known_columns is not None:
        widths = tuple(width for width in widths if ceil_div(known_columns * width, 32) == packed[1])
    if not widths:
        raise _unknown(parts)
    bits, group = widths[0], -1
    if scales[1] > 1:
        # Words a group = bits x group / 32, rounded up at the row's end only.
        fitting = [
            (width, size)
            for width in widths
            for size in (128, 64, 32, 16, 256, 512, 1024)
            for columns in (known_columns or packed[1] * 32 // width,)
            if ceil_div(columns * width, 32) == packed[1] and ceil_div(columns, size) == scales[1]
        ]
        if not fitting:
            raise _unknown(parts)
        bits, group = fitting[0]
    return GroupInt(
        bits=bits,
        group_size=group,
        packing=Packing.COMPRESSED_TENSORS,
        zero_points=".weight_zero_point" in parts,
        act_order=".weight_g_idx" in parts,
        scale_dtype=scale_dtype,
        shape_dtype=parts[".weight_shape"][0] if ".weight_shape" in parts else DType.I64,
    )


def _plain_weight(parts: Parts) -> WeightFormat:
    dtype, shape = parts[".weight"]
    scale_name = next((name for name in _SCALE_NAMES if name in parts), None)
    smooth = ".pre_quant_scale" in parts
    if scale_name is None:
        return Dense(dtype=dtype)
    scale_dtype, scales = parts[scale_name]
    if dtype is DType.U8:
        if ".weight_scale_2" in parts:
            return Nvfp4(input_scale=".input_scale" in parts, smooth=smooth)
        if scale_dtype in (DType.U8, DType.F8_E8M0):
            return Mxfp(bits=4)
        if smooth and len(scales) == 2 and len(shape) == 2:
            group = _group_size(shape[1], scales[1])
            return GroupInt(bits=4, group_size=group, packing=Packing.MODELOPT, scale_dtype=scale_dtype)
    if dtype is DType.I8 and scale_dtype is DType.F8_E8M0:
        return Mxfp(bits=4, packing=Packing.DEEPSEEK)
    if dtype in _FP8 and len(shape) == 2:
        if scale_dtype is DType.U8:
            return Mxfp(bits=8)
        return _fp8(shape, scale_name, scale_dtype, scales, static_input=".input_scale" in parts)
    if dtype is DType.I8 and len(shape) == 2:
        return Int8(
            scale=Granularity.TENSOR if _count(scales) == 1 else Granularity.CHANNEL,
            scale_dtype=scale_dtype,
            static_input=".input_scale" in parts,
            zero_points=".weight_zero_point" in parts,
            smooth=smooth,
        )
    raise _unknown(parts)


def _count(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _fp8(shape: Shape, name: str, scale_dtype: DType, scales: Shape, *, static_input: bool) -> Fp8:
    scale, block = Granularity.BLOCK, (128, 128)
    if name == ".weight_scale" and scales in ((shape[0], 1), (shape[0],)):
        scale = Granularity.CHANNEL
    elif _count(scales) == 1 and len(scales) < 2:
        scale = Granularity.TENSOR
    else:
        sides = tuple(size for size in scales if size != 1) if len(scales) > 2 else scales
        if len(sides) != 2 or min(sides) < 1:
            raise _unknown({".weight": (DType.F8_E4M3, shape), name: (scale_dtype, scales)})
        block = (_edge(shape[0], sides[0]), _edge(shape[1], sides[1]))
    return Fp8(
        scale=scale,
        block=block,
        scale_dtype=scale_dtype,
        static_input=static_input,
        scale_name=name.removeprefix("."),
    )


def _edge(length: int, tiles: int) -> int:
    """The tile edge that cuts `length` into `tiles`, a usual one where several do."""
    return next((edge for edge in _BLOCK_EDGES if ceil_div(length, edge) == tiles), ceil_div(length, tiles))
