"""Headers of safetensors files: which tensors, of which type and shape, and how many bytes; never their data.

A file is an unsigned 64-bit little-endian length, a JSON object of that many bytes, and the data. The object
maps a name to `dtype`, `shape` and `data_offsets` (begin and end in the data), and `__metadata__` to texts.
Limits and checks follow the safetensors crate 0.8 (tensor.rs: 100 MB of header, offsets in order, no overlap);
a gap, which that crate refuses, is noted here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from vramledger.errors import HeaderError
from vramledger.formats.dtypes import DType
from vramledger.models.sources.bounded_file import ReadAt, open_for_headers, quote, shown
from vramledger.models.sources.header_table import (
    HeaderFile,
    HeaderTable,
    RowBuilder,
    TensorEntry,
    build_rows,
    stored_twice,
)
from vramledger.models.sources.json_file import parse_json_object
from vramledger.models.sources.names import templates_of

MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 64

ELEMENT_TYPES: Mapping[str, DType] = {
    "BOOL": DType.BOOL,
    "F4": DType.F4,
    "F6_E2M3": DType.F6_E2M3,
    "F6_E3M2": DType.F6_E3M2,
    "U8": DType.U8,
    "I8": DType.I8,
    "F8_E5M2": DType.F8_E5M2,
    "F8_E4M3": DType.F8_E4M3,
    "F8_E8M0": DType.F8_E8M0,
    "U16": DType.U16,
    "I16": DType.I16,
    "F16": DType.F16,
    "BF16": DType.BF16,
    "U32": DType.U32,
    "I32": DType.I32,
    "F32": DType.F32,
    "U64": DType.U64,
    "I64": DType.I64,
    "F64": DType.F64,
}
"""The crate's names of types that this project knows as element types."""

_BITS = {code: dtype.bits for code, dtype in ELEMENT_TYPES.items()} | {
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "C64": 64,
}


class _Entry(msgspec.Struct, gc=False):
    """A tensor's entry; a default marks a field that is missing, or the metadata read as an entry."""

    dtype: str = ""
    shape: tuple[int, ...] | None = None
    data_offsets: tuple[int, int] | None = None


class _Metadata(msgspec.Struct):
    texts: msgspec.Raw = msgspec.field(name="__metadata__", default=msgspec.Raw(b"{}"))


_ENTRIES = msgspec.json.Decoder(dict[str, _Entry])
_METADATA = msgspec.json.Decoder(_Metadata)


def read_header(read_at: ReadAt, file_bytes: int | None, where: str) -> bytes:
    """The JSON text of a file's header, after its length has been checked.

    `read_at` is asked for the first 8 bytes and then for the header, nothing else. `file_bytes` is None
    where the file's size is not known. Raises HeaderError for a length that cannot be.
    """
    prefix = read_at(0, 8)
    if len(prefix) < 8:
        raise HeaderError(f"{where} has {len(prefix)} bytes, too few for a safetensors file", file=where)
    (length,) = struct.unpack("<Q", prefix)
    if prefix == b"version ":
        raise HeaderError(
            f"{where} is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`", file=where
        )
    if length > MAX_HEADER_BYTES:
        raise HeaderError(
            f"{where} states a header of {length} bytes, more than the {MAX_HEADER_BYTES} a safetensors file may have",
            file=where,
            value=length,
        )
    if file_bytes is not None and length + 8 > file_bytes:
        raise HeaderError(
            f"{where} is cut short: its header needs {length + 8} bytes and the file has {file_bytes}",
            file=where,
            value=length,
        )
    text = read_at(8, length)
    if len(text) < length:
        raise HeaderError(
            f"{where} is cut short: its header has {length} bytes and only {len(text)} could be read",
            file=where,
            value=length,
        )
    return text


def read_table(paths: list[Path]) -> HeaderTable:
    """The tensors of local safetensors files, in one table.

    Raises HeaderError for a header that cannot be, SourceError for a file that cannot be read.
    """
    builder = HeaderTableBuilder()
    for path in paths:
        with open_for_headers(path) as (read_at, size_bytes):
            where = shown(path)
            builder.add(path.name, where, read_header(read_at, size_bytes, where), size_bytes)
    return builder.build()


def iter_entries(path: Path) -> Iterator[TensorEntry]:
    """Every tensor of one local file, in the header's order. Errors as `read_table`."""
    with open_for_headers(path) as (read_at, size_bytes):
        where = shown(path)
        text = read_header(read_at, size_bytes, where)
    HeaderTableBuilder().add(path.name, where, text, size_bytes)
    for name, entry in _decode(text, where)[0].items():
        if entry.shape is not None and entry.data_offsets is not None:
            begin, end = entry.data_offsets
            yield TensorEntry(name=name, dtype=entry.dtype, shape=entry.shape, begin=begin, end=end)


class HeaderTableBuilder:
    """Takes one header after the other and keeps only rows: a file's names are gone when the next one comes."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, tuple[int, ...]], RowBuilder] = {}
        self._files: list[HeaderFile] = []
        self._notes: list[str] = []

    def add(self, name: str, where: str, text: bytes, file_bytes: int | None) -> None:
        """Check the header `text` of the file `name` and count its tensors.

        Raises HeaderError naming `where` and the tensor.
        """
        entries, metadata = _decode(text, where)
        data_limit = None if file_bytes is None else file_bytes - 8 - len(text)
        expected = 0
        in_order = True
        rows = self._rows
        for (tensor, entry), template in zip(entries.items(), templates_of(list(entries)), strict=True):
            shape, offsets = entry.shape, entry.data_offsets
            if shape is None or offsets is None or not entry.dtype:
                raise _fail(where, tensor, "lacks dtype, shape or data_offsets")
            key = (template, entry.dtype, shape)
            row = rows.get(key)
            if row is None:
                size_bytes = _tensor_bytes(where, tensor, entry.dtype, shape)
                row = rows[key] = RowBuilder(tensor, template, size_bytes)
            begin, end = offsets
            if end - begin != row.tensor_bytes:
                raise _fail(
                    where,
                    tensor,
                    f"takes bytes {quote(begin)} to {quote(end)}, but {entry.dtype} of shape {quote(list(shape))}"
                    f" has {row.tensor_bytes} bytes",
                )
            if begin != expected:
                in_order = False
            expected = end
            row.add(tensor)
        if not in_order:
            expected = self._check_spans(where, entries)
        if data_limit is not None and expected > data_limit:
            raise HeaderError(
                f"{where} is cut short: its tensors end at byte {quote(expected)} of the data and the file holds {data_limit}",
                file=where,
                value=expected,
            )
        if data_limit is not None and expected < data_limit:
            self._notes.append(f"{where} has {data_limit - expected} bytes after its last tensor")
        self._files.append(
            HeaderFile(
                name=name,
                file_bytes=file_bytes,
                header_bytes=len(text) + 8,
                data_bytes=expected if data_limit is None else data_limit,
                tensor_count=len(entries),
                metadata=tuple(metadata.items()),
            )
        )

    def build(self) -> HeaderTable:
        """The table of everything added so far."""
        rows = build_rows(self._rows)
        notes = (*self._notes, *stored_twice(rows))
        return HeaderTable(rows=rows, files=tuple(self._files), notes=notes)

    def _check_spans(self, where: str, entries: Mapping[str, _Entry]) -> int:
        """Where the last tensor ends; tensors may be listed in any order but must not overlap."""
        spans = sorted((entry.data_offsets, name) for name, entry in entries.items() if entry.data_offsets)
        end = gaps = 0
        before = ""
        for (begin, stop), name in spans:
            if begin < 0:
                raise _fail(where, name, f"begins at byte {quote(begin)}")
            if begin < end and stop > begin:
                raise _fail(
                    where, name, f"begins at byte {begin}, inside {quote(before)} which ends at {quote(end)}"
                )
            gaps += max(0, begin - end)
            if stop >= end:
                end, before = stop, name
        if gaps:
            self._notes.append(f"{where} has {quote(gaps)} bytes between tensors that belong to none")
        return end


def _tensor_bytes(where: str, tensor: str, dtype: str, shape: tuple[int, ...]) -> int:
    bits = _BITS.get(dtype)
    if bits is None:
        raise _fail(where, tensor, f"has the element type {quote(dtype)}, which safetensors does not know")
    if len(shape) > MAX_DIMENSIONS:
        raise _fail(where, tensor, f"has {len(shape)} dimensions")
    if any(size < 0 or size >= 2**63 for size in shape):
        raise _fail(where, tensor, f"has the shape {quote(list(shape))}")
    total_bits = prod(shape) * bits
    if total_bits % 8:
        raise _fail(where, tensor, f"of {dtype} and shape {quote(list(shape))} does not fill whole bytes")
    if total_bits >= 2**66:
        raise _fail(where, tensor, f"has the shape {quote(list(shape))}, larger than any file")
    return total_bits // 8


def _decode(text: bytes, where: str) -> tuple[dict[str, _Entry], dict[str, str]]:
    """Entries and metadata. The quick way is taken only where it cannot have hidden a duplicate key.

    Without an escape in the text an entry of the three fields has ten quotes, its name's included. Whatever else is
    there, such as a field or a name for a second time, leaves quotes over.
    """
    if not text.startswith(b"{"):
        raise HeaderError(f"{where}: the header does not start with an object", file=where, value=text[:1])
    try:
        entries = _ENTRIES.decode(text)
        marker = entries.pop("__metadata__", None)
        raw = b"{}"
        quotes = 10 * len(entries)
        if marker is not None:
            raw = bytes(_METADATA.decode(text).texts)
            quotes += 2 + raw.count(b'"')
        if text.count(b'"') == quotes and b"\\" not in text:
            return entries, _metadata(parse_json_object(raw, f"{where}: __metadata__", HeaderError), where)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # the exact way below says what is wrong, by name
    return _decode_exactly(text, where)


def _decode_exactly(text: bytes, where: str) -> tuple[dict[str, _Entry], dict[str, str]]:
    parsed = parse_json_object(text, where, HeaderError)
    metadata = _metadata(parsed.pop("__metadata__", {}), where)
    return {name: _entry(where, name, value) for name, value in parsed.items()}, metadata


def _entry(where: str, name: str, value: Any) -> _Entry:
    if not isinstance(value, dict):
        raise _fail(where, name, f"must be an object, not {quote(value)}")
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        raise _fail(where, name, f"has the dtype {quote(dtype)}")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise _fail(where, name, f"has the shape {quote(shape)}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(at) is int for at in offsets):
        raise _fail(where, name, f"has the data_offsets {quote(offsets)}")
    return _Entry(dtype=dtype, shape=tuple(shape), data_offsets=(offsets[0], offsets[1]))


def _metadata(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise HeaderError(f"{where}: __metadata__ must map texts to texts", file=where, key="__metadata__")
    return value


def _fail(where: str, tensor: str, problem: str) -> HeaderError:
    return HeaderError(f"{where}: tensor {quote(tensor, 120)} {problem}", file=where, key=tensor)


def checkpoint_files(folder_files: list[str]) -> list[str]:
    """The safetensors files among a folder's names that make up one model when no index file says so.

    `consolidated*` files beside others hold the same weights once more under Mistral's own names, and adapters and
    training state are no model weights, so these are left out.
    """
    names = sorted(name for name in folder_files if name.endswith(".safetensors") and "/" not in name)
    names = [name for name in names if not name.startswith(("adapter_", "optimizer", "training_"))]
    split = [name for name in names if not name.startswith("consolidated")]
    return split or names
