"""GGML's element types: how many elements make a block, and how many bytes a block takes.

Source: ggml.h (type numbers) and ggml-common.h (block structs) of llama.cpp. Types 4, 5, 31 to 33 and 36 to
38 have been removed and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from vramledger.errors import UnknownFormat


class GgmlType(Struct, frozen=True):
    """One type: its number in a GGUF header, its name, elements and bytes of one block."""

    number: int
    name: str
    block_elements: int
    block_bytes: int

    def bytes_for(self, row: int, rows: int) -> int:
        """Bytes of `rows` rows of `row` elements. A block never crosses a row.

        Raises UnknownFormat where a row is not a whole number of blocks, which GGML refuses too.
        """
        if row % self.block_elements:
            raise UnknownFormat(
                f"a row of {row} elements is not a whole number of {self.name} blocks of {self.block_elements}",
                ggml_type=self.name,
                row=row,
            )
        return row // self.block_elements * self.block_bytes * rows


GGML_TYPES: tuple[GgmlType, ...] = (
    GgmlType(0, "F32", 1, 4),
    GgmlType(1, "F16", 1, 2),
    GgmlType(2, "Q4_0", 32, 18),
    GgmlType(3, "Q4_1", 32, 20),
    GgmlType(6, "Q5_0", 32, 22),
    GgmlType(7, "Q5_1", 32, 24),
    GgmlType(8, "Q8_0", 32, 34),
    GgmlType(9, "Q8_1", 32, 36),
    GgmlType(10, "Q2_K", 256, 84),
    GgmlType(11, "Q3_K", 256, 110),
    GgmlType(12, "Q4_K", 256, 144),
    GgmlType(13, "Q5_K", 256, 176),
    GgmlType(14, "Q6_K", 256, 210),
    GgmlType(15, "Q8_K", 256, 292),
    GgmlType(16, "IQ2_XXS", 256, 66),
    GgmlType(17, "IQ2_XS", 256, 74),
    GgmlType(18, "IQ3_XXS", 256, 98),
    GgmlType(19, "IQ1_S", 256, 50),
    GgmlType(20, "IQ4_NL", 32, 18),
    GgmlType(21, "IQ3_S", 256, 110),
    GgmlType(22, "IQ2_S", 256, 82),
    GgmlType(23, "IQ4_XS", 256, 136),
    GgmlType(24, "I8", 1, 1),
    GgmlType(25, "I16", 1, 2),
    GgmlType(26, "I32", 1, 4),
    GgmlType(27, "I64", 1, 8),
    GgmlType(28, "F64", 1, 8),
    GgmlType(29, "IQ1_M", 256, 56),
    GgmlType(30, "BF16", 1, 2),
    GgmlType(34, "TQ1_0", 256, 54),
    GgmlType(35, "TQ2_0", 256, 66),
    GgmlType(39, "MXFP4", 32, 17),
    GgmlType(40, "NVFP4", 64, 36),
    GgmlType(41, "Q1_0", 128, 18),
)

_BY_NUMBER: Mapping[int, GgmlType] = MappingProxyType({kind.number: kind for kind in GGML_TYPES})
_BY_NAME: Mapping[str, GgmlType] = MappingProxyType({kind.name: kind for kind in GGML_TYPES})


def ggml_type(key: int | str) -> GgmlType:
    """The type with this number (as a GGUF header states it) or name ("Q4_K", any case).

    Raises UnknownFormat for one that GGML does not have or has removed.
    """
    found = _BY_NUMBER.get(key) if isinstance(key, int) else _BY_NAME.get(key.strip().upper())
    if found is None:
        raise UnknownFormat(f"GGML has no type {key!r}", ggml_type=key)
    return found
