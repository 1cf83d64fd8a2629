"""Small safetensors files for tests: the header is real, the data is a hole of the right size."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path
from typing import Any

WIDTH_BITS = {
    "F32": 32,
    "BF16": 16,
    "F8_E4M3": 8,
    "U8": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F8_E8M0": 8,
    "I64": 64,
    "BOOL": 8,
}
Shapes = dict[str, tuple[str, list[int]]]


def header_object(tensors: Shapes, metadata: dict[str, str] | None = None) -> dict[str, Any]:
    out: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * WIDTH_BITS[dtype] // 8
        out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return out


def data_bytes(header: dict[str, Any]) -> int:
    return max(
        (entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0
    )


def write(path: Path, tensors: Shapes, metadata: dict[str, str] | None = None) -> Path:
    header = header_object(tensors, metadata)
    return write_raw(path, json.dumps(header).encode(), data_bytes(header))


def write_raw(path: Path, text: bytes, data: int, length: int | None = None) -> Path:
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text) if length is None else length) + text)
        file.truncate(8 + len(text) + data)
    return path
