"""The format of one module, from its parts as a header types them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from vramledger.errors import UnknownFormat
from vramledger.formats.detect import detect_format
from vramledger.formats.dtypes import DType
from vramledger.formats.ggml import ggml_type
from vramledger.formats.weights import Bnb4, Dense, Ggml, GroupInt, Shape, WeightFormat
from vramledger.models.sources.safetensors import ELEMENT_TYPES

CodedParts = Mapping[str, tuple[str, Shape]]
"""Type (the file format's own name) and shape of each part of one matrix."""

ReadFormat = Callable[[CodedParts, int | None, WeightFormat], WeightFormat]
"""From parts, K and the format that the config implies to the stored one; UnknownFormat where none has such parts."""

# AMD's variants of the 8-bit floats take the same bytes.
_ALIKE = {"F8_E4M3FNUZ": DType.F8_E4M3, "F8_E5M2FNUZ": DType.F8_E5M2}

_PLAIN_GGML = {
    "F64": DType.F64, "F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16, "I8": DType.I8, "I16": DType.I16,
    "I32": DType.I32, "I64": DType.I64,
}  # fmt: skip


def element_type(code: str) -> DType:
    """A safetensors type name. Raises UnknownFormat for one that is no element type here."""
    found = ELEMENT_TYPES.get(code) or _ALIKE.get(code)
    if found is None:
        raise UnknownFormat(f"the element type {code[:40]!r} is not one this project knows", dtype=code)
    return found


def read_safetensors(parts: CodedParts, columns: int | None, assumed: WeightFormat) -> WeightFormat:
    """The detected format, with what parts cannot tell (GPTQ's order of activation, bitsandbytes' type name) as assumed."""
    typed = {suffix: (element_type(code), shape) for suffix, (code, shape) in parts.items()}
    try:
        found = detect_format(typed, columns=columns)
    except UnknownFormat:
        if columns is None:
            raise
        found = detect_format(typed)
    if isinstance(found, GroupInt) and isinstance(assumed, GroupInt) and found.packing is assumed.packing:
        return replace(found, act_order=found.act_order or assumed.act_order)
    if isinstance(found, Bnb4):
        return replace(found, dtype=assumed.dtype if isinstance(assumed, Bnb4 | Dense) else found.dtype)
    return found


def read_gguf(parts: CodedParts, _columns: int | None, _assumed: WeightFormat) -> WeightFormat:
    """GGML's block type, or a plain element type."""
    code, _ = parts[".weight"]
    plain = _PLAIN_GGML.get(code)
    return Ggml(type=ggml_type(code)) if plain is None else Dense(dtype=plain)
