"""A minimal GGUF writer for tests: header in full, data as a hole of the right size."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from vramledger.formats.ggml import ggml_type

CODES = {
    "u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"),
    "f32": (6, "f"), "bool": (7, "B"), "str": (8, ""), "arr": (9, ""), "u64": (10, "Q"), "i64": (11, "q"),
    "f64": (12, "d"),
}  # fmt: skip


class GgufWriter(Struct):
    """`keys` are (name, type, value); an array's value is (item type, list); tensors (name, dims, type name)."""

    keys: list[tuple[str, str, Any]] = field(default_factory=list)
    tensors: list[tuple[str, list[int], str]] = field(default_factory=list)
    version: int = 3
    order: str = "<"
    alignment: int = 32
    tensor_count: int | None = None
    key_count: int | None = None

    def text(self, value: str) -> bytes:
        raw = value.encode()
        return struct.pack(self.order + "Q", len(raw)) + raw

    def item(self, kind: str, value: Any) -> bytes:
        if kind == "str":
            return self.text(value)
        if kind == "arr":
            inner, items = value
            head = struct.pack(self.order + "IQ", CODES[inner][0], len(items))
            return head + b"".join(self.item(inner, item) for item in items)
        return struct.pack(self.order + CODES[kind][1], value)

    def header(self) -> bytes:
        out = [b"GGUF", struct.pack(self.order + "I", self.version)]
        counts = (
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.keys) if self.key_count is None else self.key_count,
        )
        out.append(struct.pack(self.order + "QQ", *counts))
        for name, kind, value in self.keys:
            out.append(
                self.text(name) + struct.pack(self.order + "I", CODES[kind][0]) + self.item(kind, value)
            )
        for (name, dims, type_name), offset in zip(self.tensors, self.offsets(), strict=True):
            out.append(self.text(name) + struct.pack(f"{self.order}I{len(dims)}Q", len(dims), *dims))
            out.append(struct.pack(self.order + "IQ", ggml_type(type_name).number, offset))
        raw = b"".join(out)
        return raw + bytes(-len(raw) % self.alignment)

    def sizes(self) -> list[int]:
        return [ggml_type(kind).bytes_for(dims[0], prod(dims[1:])) for _, dims, kind in self.tensors]

    def offsets(self) -> list[int]:
        at, out = 0, []
        for size in self.sizes():
            out.append(at)
            at += size + -size % self.alignment
        return out

    def write(self, path: Path) -> Path:
        raw = self.header()
        end = max((at + size for at, size in zip(self.offsets(), self.sizes(), strict=True)), default=0)
        with path.open("wb") as file:
            file.write(raw)
            file.truncate(len(raw) + end)
        return path


def llama(name: str = "llama", layers: int = 3, *, tied: bool = False, **extra: Any) -> GgufWriter:
    """A small model of Llama's tensors: width 64, 4 heads of 16, 2 KV heads, MLP 96, 160 tokens."""
    writer = GgufWriter(
        keys=[
            ("general.architecture", "str", name),
            (f"{name}.block_count", "u32", layers),
            (f"{name}.context_length", "u32", 2048),
            (f"{name}.embedding_length", "u32", 64),
            (f"{name}.feed_forward_length", "u32", 96),
            (f"{name}.attention.head_count", "u32", 4),
            (f"{name}.attention.head_count_kv", "u32", 2),
            (f"{name}.rope.freq_base", "f32", 10000.0),
            ("tokenizer.ggml.tokens", "arr", ("str", [f"t{number}" for number in range(160)])),
        ],
        **extra,
    )
    writer.tensors.append(("token_embd.weight", [64, 160], "Q8_0"))
    writer.tensors.append(("output_norm.weight", [64], "F32"))
    if not tied:
        writer.tensors.append(("output.weight", [64, 160], "Q4_0"))
    for layer in range(layers):
        for part, dims in {
            "attn_q": [64, 64], "attn_k": [64, 32], "attn_v": [64, 32], "attn_output": [64, 64],
            "ffn_gate": [64, 96], "ffn_up": [64, 96], "ffn_down": [96, 64],
        }.items():  # fmt: skip
            writer.tensors.append((f"blk.{layer}.{part}.weight", dims, "Q4_0"))
        writer.tensors.append((f"blk.{layer}.attn_norm.weight", [64], "F32"))
        writer.tensors.append((f"blk.{layer}.ffn_norm.weight", [64], "F32"))
    return writer
