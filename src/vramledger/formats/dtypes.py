"""Element types and their widths in bits."""

from __future__ import annotations

from enum import StrEnum

from vramledger.errors import UnknownFormat
from vramledger.units import ceil_div


class DType(StrEnum):
    """Element types of tensors, in the names PyTorch uses; `fp4` is two to a byte."""

    F64 = "float64"
    F32 = "float32"
    F16 = "float16"
    BF16 = "bfloat16"
    F8_E4M3 = "float8_e4m3fn"
    F8_E5M2 = "float8_e5m2"
    F8_E8M0 = "float8_e8m0fnu"
    F6_E2M3 = "float6_e2m3"
    F6_E3M2 = "float6_e3m2"
    F4 = "float4_e2m1"
    I64 = "int64"
    I32 = "int32"
    I16 = "int16"
    I8 = "int8"
    I4 = "int4"
    U64 = "uint64"
    U32 = "uint32"
    U16 = "uint16"
    U8 = "uint8"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        return _BITS[self]

    def bytes_for(self, elements: int) -> int:
        """Bytes of `elements` packed elements, rounded up to a whole byte."""
        return ceil_div(elements * _BITS[self], 8)


_BITS = {
    DType.F64: 64,
    DType.F32: 32,
    DType.F16: 16,
    DType.BF16: 16,
    DType.F8_E4M3: 8,
    DType.F8_E5M2: 8,
    DType.F8_E8M0: 8,
    DType.F6_E2M3: 6,
    DType.F6_E3M2: 6,
    DType.F4: 4,
    DType.I64: 64,
    DType.I32: 32,
    DType.I16: 16,
    DType.I8: 8,
    DType.I4: 4,
    DType.U64: 64,
    DType.U32: 32,
    DType.U16: 16,
    DType.U8: 8,
    DType.BOOL: 8,
}

_ALIASES = {
    "half": DType.F16,
    "float": DType.F32,
    "fp32": DType.F32,
    "fp16": DType.F16,
    "bf16": DType.BF16,
    "double": DType.F64,
}


def parse_dtype(name: str) -> DType:
    """The element type a config or a flag names ("bfloat16", "torch.float16", "half").

    Raises UnknownFormat for a name PyTorch does not have.
    """
    plain = name.strip().lower().removeprefix("torch.")
    if plain in _ALIASES:
        return _ALIASES[plain]
    try:
        return DType(plain)
    except ValueError:
        raise UnknownFormat(f"{name!r} is not an element type this project knows", dtype=name) from None
