"""How a linear layer's matrix is stored in a checkpoint, and how many bytes that takes.

A shape is [.., N out, K in]; what stands before N and K is a stack (of experts) whose every matrix is stored
the same way. Scales and zero points are parts of their own, named as the checkpoint names them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from math import prod

from msgspec import Struct

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.ggml import GgmlType
from vramledger.units import ceil_div

Shape = tuple[int, ...]


class Granularity(StrEnum):
    """How much of a matrix shares a scale: all of it, an output row, or a tile."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    BLOCK = "block"


class Packing(StrEnum):
    """Whose layout and names the packed parts have."""

    GPTQ = "gptq"
    AWQ = "awq"
    COMPRESSED_TENSORS = "compressed-tensors"
    MODELOPT = "modelopt"
    GPT_OSS = "gpt-oss"
    DEEPSEEK = "deepseek"


class Dense(Struct, frozen=True, kw_only=True):
    """One element after another."""

    dtype: DType


class Fp8(Struct, frozen=True, kw_only=True):
    """8-bit floats with a scale for the tensor, each row, or each tile of `block` (rows, columns).

    `static_input` adds the activation's scale, one value. `scale_name` is what the producer calls the
    weight's scale ("weight_scale_inv" in DeepSeek's layout, "scale" in DeepSeek-V4's).
    """

    scale: Granularity
    block: tuple[int, int] = (128, 128)
    scale_dtype: DType = DType.F32
    static_input: bool = False
    scale_name: str = "weight_scale"


class Int8(Struct, frozen=True, kw_only=True):
    """8-bit integers with a scale for the tensor or each row (W8A8). `smooth` adds SmoothQuant's fp16 vector over K."""

    scale: Granularity
    scale_dtype: DType = DType.F32
    static_input: bool = False
    zero_points: bool = False
    smooth: bool = False


class GroupInt(Struct, frozen=True, kw_only=True):
    """Integers of 2 to 8 bits packed into int32, a scale for every `group_size` inputs (-1: one a row).

    GPTQ stores zero points and a group index always, so `zero_points` and `act_order` change nothing there.
    `bias` is the zero bias that AutoGPTQ writes for linears that have none; `shape_dtype` the type of
    compressed-tensors' `weight_shape`, int64 as its own compressor writes it.
    """

    bits: int
    group_size: int
    packing: Packing
    zero_points: bool = True
    act_order: bool = False
    scale_dtype: DType = DType.F16
    bias: bool = False
    shape_dtype: DType = DType.I64


class Nvfp4(Struct, frozen=True, kw_only=True):
    """4-bit floats, an e4m3 scale for every 16 inputs and an fp32 scale for the tensor.

    `input_scale` adds the activation's, `smooth` AWQ's vector over K.
    """

    packing: Packing = Packing.MODELOPT
    input_scale: bool = True
    smooth: bool = False


class Mxfp(Struct, frozen=True, kw_only=True):
    """OCP microscaling floats of 4 or 8 bits: a power-of-two scale (e8m0, a byte) for every 32 inputs."""

    bits: int
    packing: Packing = Packing.MODELOPT


class Bnb4(Struct, frozen=True, kw_only=True):
    """bitsandbytes 4-bit: two to a byte, a scale for every 64 elements; double quantisation stores those scales in
    8 bits with an fp32 scale for every 256 of them. `quant_type` is nf4 or fp4.

    `dtype` is the unquantised type; its name stands in the JSON text that the checkpoint keeps for each matrix.
    """

    quant_type: str = "nf4"
    double_quant: bool = False
    dtype: DType = DType.BF16


class Bnb8(Struct, frozen=True, kw_only=True):
    """bitsandbytes LLM.int8(): 8-bit integers, an fp32 scale for each row, a byte naming the layout."""


class Ggml(Struct, frozen=True, kw_only=True):
    """GGML blocks along K."""

    type: GgmlType


WeightFormat = Dense | Fp8 | Int8 | GroupInt | Nvfp4 | Mxfp | Bnb4 | Bnb8 | Ggml


class StoredPart(Struct, frozen=True):
    """One tensor of a stored matrix. `suffix` follows the module's path, its dot included."""

    suffix: str
    dtype: DType
    shape: Shape

    @property
    def size_bytes(self) -> int:
        return self.dtype.bytes_for(prod(self.shape))


def stored_parts(shape: Shape, kind: WeightFormat) -> tuple[StoredPart, ...]:
    """The tensors a checkpoint holds for a matrix (or stack) of `shape`.

    Raises UnknownFormat for a quantised format of a shape with fewer than two axes, and for GGML rows that are
    not whole blocks.
    """
    match kind:
        case Dense():
            return (StoredPart(".weight", kind.dtype, shape),)
        case Ggml():
            row, rows = (shape[-1], prod(shape[:-1])) if shape else (1, 1)
            return (StoredPart(".weight", DType.U8, (kind.type.bytes_for(row, rows),)),)
        case _:
            if len(shape) < 2:
                raise UnknownFormat(f"a tensor of shape {shape} has no matrix to quantise", shape=shape)
            stack, rows, columns = shape[:-2], shape[-2], shape[-1]
            parts = _matrix_parts(rows, columns, kind)
            return tuple(StoredPart(part.suffix, part.dtype, stack + part.shape) for part in parts)


@lru_cache(maxsize=16384)
def stored_bytes(shape: Shape, kind: WeightFormat) -> int:
    """Bytes of all the parts together. Raises as stored_parts does."""
    return sum(part.size_bytes for part in stored_parts(shape, kind))


def _matrix_parts(
    rows: int, columns: int, kind: Fp8 | Int8 | GroupInt | Nvfp4 | Mxfp | Bnb4 | Bnb8
) -> tuple[StoredPart, ...]:
    match kind:
        case Fp8():
            return _fp8(rows, columns, kind)
        case Int8():
            return _int8(rows, columns, kind)
        case GroupInt():
            return _GROUP_LAYOUTS[kind.packing](rows, columns, kind)
        case Nvfp4():
            return _nvfp4(rows, columns, kind)
        case Mxfp():
            return _mxfp(rows, columns, kind)
        case Bnb4():
            return _bnb4(rows, columns, kind)
        case Bnb8():
            return (
                StoredPart(".weight", DType.I8, (rows, columns)),
                StoredPart(".SCB", DType.F32, (rows,)),
                StoredPart(".weight_format", DType.U8, ()),
            )


def _scale_shape(rows: int, columns: int, scale: Granularity, block: tuple[int, int]) -> Shape:
    match scale:
        case Granularity.TENSOR:
            return ()
        case Granularity.CHANNEL:
            return (rows, 1)
        case Granularity.BLOCK:
            return (ceil_div(rows, block[0]), ceil_div(columns, block[1]))


def _fp8(rows: int, columns: int, kind: Fp8) -> tuple[StoredPart, ...]:
    parts = (
        StoredPart(".weight", DType.F8_E4M3, (rows, columns)),
        StoredPart(
            f".{kind.scale_name}", kind.scale_dtype, _scale_shape(rows, columns, kind.scale, kind.block)
        ),
    )
    return parts + ((StoredPart(".input_scale", kind.scale_dtype, ()),) if kind.static_input else ())


def _int8(rows: int, columns: int, kind: Int8) -> tuple[StoredPart, ...]:
    scale = _scale_shape(rows, columns, kind.scale, (1, 1))
    parts = [
        StoredPart(".weight", DType.I8, (rows, columns)),
        StoredPart(".weight_scale", kind.scale_dtype, scale),
    ]
    if kind.zero_points:
        parts.append(StoredPart(".weight_zero_point", DType.I8, scale))
    if kind.static_input:
        parts.append(StoredPart(".input_scale", kind.scale_dtype, ()))
    if kind.smooth:
        parts.append(StoredPart(".pre_quant_scale", DType.F16, (columns,)))
    return tuple(parts)


def _groups(columns: int, group_size: int) -> int:
    return 1 if group_size == -1 else ceil_div(columns, group_size)


def _gptq(rows: int, columns: int, kind: GroupInt) -> tuple[StoredPart, ...]:
    """AutoGPTQ and GPTQModel, `QuantLinear`: packed along K; zero points packed along N."""
    groups = _groups(columns, kind.group_size)
    parts = (
        StoredPart(".qweight", DType.I32, (ceil_div(columns * kind.bits, 32), rows)),
        StoredPart(".qzeros", DType.I32, (groups, ceil_div(rows * kind.bits, 32))),
        StoredPart(".scales", kind.scale_dtype, (groups, rows)),
        StoredPart(".g_idx", DType.I32, (columns,)),
    )
    return parts + ((StoredPart(".bias", kind.scale_dtype, (rows,)),) if kind.bias else ())


def _awq(rows: int, columns: int, kind: GroupInt) -> tuple[StoredPart, ...]:
    """AutoAWQ, `WQLinear_GEMM`: weights and zero points packed along N."""
    groups, packed = _groups(columns, kind.group_size), ceil_div(rows * kind.bits, 32)
    return (
        StoredPart(".qweight", DType.I32, (columns, packed)),
        StoredPart(".qzeros", DType.I32, (groups, packed)),
        StoredPart(".scales", kind.scale_dtype, (groups, rows)),
    )


def _compressed(rows: int, columns: int, kind: GroupInt) -> tuple[StoredPart, ...]:
    """compressed-tensors 0.20, compressors/pack_quantized/base.py."""
    groups = _groups(columns, kind.group_size)
    parts = [
        StoredPart(".weight_packed", DType.I32, (rows, ceil_div(columns * kind.bits, 32))),
        StoredPart(".weight_scale", kind.scale_dtype, (rows, groups)),
        StoredPart(".weight_shape", kind.shape_dtype, (2,)),
    ]
    if kind.zero_points:
        parts.append(StoredPart(".weight_zero_point", DType.I32, (ceil_div(rows * kind.bits, 32), groups)))
    if kind.act_order:
        parts.append(StoredPart(".weight_g_idx", DType.I32, (columns,)))
    return tuple(parts)


def _modelopt_int4(rows: int, columns: int, kind: GroupInt) -> tuple[StoredPart, ...]:
    """ModelOpt's INT4 AWQ export: two rows to a byte, and the smoothing vector over K."""
    groups = _groups(columns, kind.group_size)
    return (
        StoredPart(".weight", DType.U8, (ceil_div(rows, 2), columns)),
        StoredPart(".weight_scale", kind.scale_dtype, (rows, groups)),
        StoredPart(".pre_quant_scale", kind.scale_dtype, (columns,)),
    )


_GROUP_LAYOUTS: dict[Packing, Callable[[int, int, GroupInt], tuple[StoredPart, ...]]] = {
    Packing.GPTQ: _gptq,
    Packing.AWQ: _awq,
    Packing.COMPRESSED_TENSORS: _compressed,
    Packing.MODELOPT: _modelopt_int4,
}


def _nvfp4(rows: int, columns: int, kind: Nvfp4) -> tuple[StoredPart, ...]:
    """ModelOpt's unified checkpoint, or compressed-tensors' nvfp4-pack-quantized."""
    packed, scales = (rows, ceil_div(columns, 2)), (rows, ceil_div(columns, 16))
    one: Shape = ()
    if kind.packing is Packing.COMPRESSED_TENSORS:
        names, one = (".weight_packed", ".weight_scale", ".weight_global_scale", ".input_global_scale"), (1,)
    else:
        names = (".weight", ".weight_scale", ".weight_scale_2", ".input_scale")
    parts = [
        StoredPart(names[0], DType.U8, packed),
        StoredPart(names[1], DType.F8_E4M3, scales),
        StoredPart(names[2], DType.F32, one),
    ]
    if kind.input_scale:
        parts.append(StoredPart(names[3], DType.F32, one))
    if kind.smooth:
        parts.append(StoredPart(".pre_quant_scale", DType.F16, (columns,)))
    return tuple(parts)


def _mxfp(rows: int, columns: int, kind: Mxfp) -> tuple[StoredPart, ...]:
    groups = ceil_div(columns, 32)
    if kind.bits == 8:
        return (
            StoredPart(".weight", DType.F8_E4M3, (rows, columns)),
            StoredPart(".weight_scale", DType.U8, (rows, groups)),
        )
    packed = (rows, ceil_div(columns, 2))
    match kind.packing:
        case Packing.GPT_OSS:
            return (
                StoredPart("_blocks", DType.U8, (rows, groups, 16)),
                StoredPart("_scales", DType.U8, (rows, groups)),
            )
        case Packing.DEEPSEEK:
            return (
                StoredPart(".weight", DType.I8, packed),
                StoredPart(".scale", DType.F8_E8M0, (rows, groups)),
            )
        case Packing.COMPRESSED_TENSORS:
            return (
                StoredPart(".weight_packed", DType.U8, packed),
                StoredPart(".weight_scale", DType.U8, (rows, groups)),
            )
        case _:
            return (
                StoredPart(".weight", DType.U8, packed),
                StoredPart(".weight_scale", DType.U8, (rows, groups)),
            )


BNB_OFFSET_TEXT = 19
"""Characters of the one number in bitsandbytes' JSON text that depends on the weights: the mean scale as Python
prints it, "0." and 17 digits most often, one or two more or fewer at times."""


def _bnb4(rows: int, columns: int, kind: Bnb4) -> tuple[StoredPart, ...]:
    """bitsandbytes functional.py, `QuantState.as_dict(packed=True)`."""
    blocks = ceil_div(rows * columns, 64)
    text = f'{{"quant_type": "{kind.quant_type}", "blocksize": 64, "dtype": "{kind.dtype.value}", "shape": [{rows}, {columns}]'
    if kind.double_quant:
        text += (
            ', "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": ' + "0" * BNB_OFFSET_TEXT
        )
    parts = [
        StoredPart(".weight", DType.U8, (ceil_div(rows * columns, 2), 1)),
        StoredPart(".weight.absmax", DType.U8 if kind.double_quant else DType.F32, (blocks,)),
        StoredPart(".weight.quant_map", DType.F32, (16,)),
        StoredPart(f".weight.quant_state.bitsandbytes__{kind.quant_type}", DType.U8, (len(text) + 1,)),
    ]
    if kind.double_quant:
        parts.append(StoredPart(".weight.nested_absmax", DType.F32, (ceil_div(blocks, 256),)))
        parts.append(StoredPart(".weight.nested_quant_map", DType.F32, (256,)))
    return tuple(parts)


def format_label(kind: WeightFormat) -> str:
    """A format in a few words ("INT4 group 128 (awq)")."""
    match kind:
        case Dense():
            return kind.dtype.value
        case Fp8():
            return "FP8 " + (
                "x".join(map(str, kind.block)) + " tiles"
                if kind.scale is Granularity.BLOCK
                else f"per {kind.scale}"
            )
        case Int8():
            return f"INT8 per {kind.scale}"
        case GroupInt():
            group = "per channel" if kind.group_size == -1 else f"group {kind.group_size}"
            return f"INT{kind.bits} {group} ({kind.packing})"
        case Nvfp4():
            return "NVFP4" if kind.input_scale else "NVFP4 weight-only"
        case Mxfp():
            return f"MXFP{kind.bits}"
        case Bnb4():
            return f"bitsandbytes {kind.quant_type}" + (" double-quantised" if kind.double_quant else "")
        case Bnb8():
            return "bitsandbytes INT8"
        case Ggml():
            return kind.type.name
