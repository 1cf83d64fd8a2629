"""Headers of GGUF files: metadata, and every tensor's name, shape, type and size; never the data.

Layout: ggml's docs/gguf.md, versions 2 and 3, little and big endian. A tensor's dimensions are listed fastest
first. A model split over files (`-00001-of-00003.gguf`) is read as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from vramledger.errors import HeaderError, UnknownFormat
from vramledger.formats.ggml import ggml_type
from vramledger.models.sources.bounded_file import open_for_headers, quote, shown
from vramledger.models.sources.gguf_reader import GgufReader, GgufValue
from vramledger.models.sources.header_table import HeaderFile, HeaderTable, RowBuilder, build_rows
from vramledger.models.sources.names import template_of
from vramledger.units import round_up

MAX_TENSORS = 200_000
MAX_KEYS = 65_536
MAX_DIMENSIONS = 4
MAX_PARTS = 4096
DEFAULT_ALIGNMENT = 32

_SPLIT_NAME = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")


class GgufTensor(Struct, frozen=True, kw_only=True):
    """One tensor. `dims` are in the file's order, fastest first; `type` is GGML's name; `offset` is into the data."""

    name: str
    dims: tuple[int, ...]
    type: str
    tensor_bytes: int
    offset: int


class GgufInfo(Struct, frozen=True, kw_only=True):
    """A model's GGUF headers. `metadata` is the first file's; long arrays and texts are kept as their length only."""

    files: tuple[HeaderFile, ...]
    version: int
    big_endian: bool
    alignment: int
    metadata: Mapping[str, GgufValue]
    tensors: tuple[GgufTensor, ...]
    notes: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """`general.architecture`; "" where it is missing."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else ""

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors, without padding."""
        return sum(tensor.tensor_bytes for tensor in self.tensors)

    @property
    def total_elements(self) -> int:
        return sum(prod(tensor.dims) for tensor in self.tensors)

    @property
    def file_bytes(self) -> int:
        """Bytes of the files on disk."""
        return sum(file.file_bytes or 0 for file in self.files)

    def bytes_by_type(self) -> dict[str, int]:
        """Bytes of each GGML type, largest first."""
        sums: dict[str, int] = {}
        for tensor in self.tensors:
            sums[tensor.type] = sums.get(tensor.type, 0) + tensor.tensor_bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def tensor(self, name: str) -> GgufTensor | None:
        return next((tensor for tensor in self.tensors if tensor.name == name), None)

    def table(self) -> HeaderTable:
        """The tensors as a table like that of safetensors: shapes slowest first, `dtype` GGML's name."""
        rows: dict[tuple[str, str, tuple[int, ...]], RowBuilder] = {}
        for tensor in self.tensors:
            key = (template_of(tensor.name), tensor.type, tensor.dims[::-1])
            row = rows.setdefault(key, RowBuilder(tensor.name, key[0], tensor.tensor_bytes))
            row.add(tensor.name)
        return HeaderTable(rows=build_rows(rows), files=self.files, notes=self.notes)


def read_gguf(path: Path) -> GgufInfo:
    """The headers of a GGUF file, and of the files beside it where the model is split.

    Raises SourceError for a file that cannot be read or is missing from a split, HeaderError for a header
    that cannot be, UnknownFormat for a tensor type GGML does not have.
    """
    parts = [path.with_name(name) for name in gguf_parts(path.name)]
    return _checked_split([_read_one(part) for part in parts], shown(path))


def gguf_parts(name: str) -> list[str]:
    """The file names of a split model from the name of any part; the name itself where it is not split.

    Raises HeaderError for a part number that cannot be.
    """
    match = _SPLIT_NAME.fullmatch(name)
    if match is None:
        return [name]
    total = int(match.group(3))
    if not 1 <= int(match.group(2)) <= total <= MAX_PARTS:
        raise HeaderError(
            f"{shown(name)}: part {match.group(2)} of {match.group(3)} cannot be", file=shown(name)
        )
    return [f"{match.group(1)}-{number:05d}-of-{total:05d}.gguf" for number in range(1, total + 1)]


def _checked_split(infos: list[GgufInfo], where: str) -> GgufInfo:
    first = infos[0]
    count = first.metadata.get("split.count", 1)
    if count not in (0, len(infos)):
        raise HeaderError(
            f"{where}: split.count is {quote(count)} and {len(infos)} file(s) go with this name; "
            "give the path of a part whose name ends in -00001-of-0000N.gguf",
            file=where,
            key="split.count",
            value=count,
        )
    tensors = tuple(tensor for info in infos for tensor in info.tensors)
    if len(infos) > 1 and len({tensor.name for tensor in tensors}) != len(tensors):
        raise HeaderError(f"{where}: a tensor is in more than one part", file=where)
    stated = first.metadata.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise HeaderError(
            f"{where}: split.tensors.count is {quote(stated)} and the parts hold {len(tensors)}",
            file=where,
            key="split.tensors.count",
            value=stated,
        )
    return GgufInfo(
        files=tuple(file for info in infos for file in info.files),
        version=first.version,
        big_endian=first.big_endian,
        alignment=first.alignment,
        metadata=first.metadata,
        tensors=tensors,
        notes=tuple(note for info in infos for note in info.notes),
    )


def _read_one(path: Path) -> GgufInfo:
    where = shown(path)
    with open_for_headers(path) as (read_at, size_bytes):
        reader = GgufReader(read_at, size_bytes, where)
        version = reader.start()
        tensor_count, key_count = reader.u64(), reader.u64()
        # A tensor takes at least 24 bytes of header and a key 13.
        reader.check_count("tensors", tensor_count, MAX_TENSORS, 24)
        reader.check_count("metadata keys", key_count, MAX_KEYS, 13)
        metadata: dict[str, GgufValue] = {}
        for _ in range(key_count):
            key = reader.name("a metadata key")
            if key in metadata:
                raise HeaderError(f"{where}: the key {quote(key)} is there twice", file=where, key=key)
            metadata[key] = reader.value(key)
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 8 <= alignment <= 2**20 or alignment % 8:
            raise HeaderError(
                f"{where}: general.alignment is {quote(alignment)}, not a multiple of 8 up to {2**20}",
                file=where,
                key="general.alignment",
                value=alignment,
            )
        tensors = tuple(_tensor(reader, where) for _ in range(tensor_count))
        header_bytes = round_up(reader.position, alignment)
    notes = _check_tensors(tensors, alignment, max(0, size_bytes - header_bytes), where)
    file = HeaderFile(
        name=path.name,
        file_bytes=size_bytes,
        header_bytes=min(header_bytes, size_bytes),
        data_bytes=max(0, size_bytes - header_bytes),
        tensor_count=len(tensors),
    )
    return GgufInfo(
        files=(file,),
        version=version,
        big_endian=reader.big_endian,
        alignment=alignment,
        metadata=MappingProxyType(metadata),
        tensors=tensors,
        notes=notes,
    )


def _tensor(reader: GgufReader, where: str) -> GgufTensor:
    name = reader.name("a tensor's name")
    dimensions = reader.u32()
    if dimensions > MAX_DIMENSIONS:
        raise _fail(where, name, f"has {dimensions} dimensions, more than GGML's {MAX_DIMENSIONS}")
    dims = tuple(reader.u64() for _ in range(dimensions))
    number, offset = reader.u32(), reader.u64()
    if prod(dims) >= 2**63:
        raise _fail(where, name, f"has the dimensions {quote(list(dims))}, larger than any file")
    try:
        kind = ggml_type(number)
        row = dims[0] if dims else 1
        size_bytes = kind.bytes_for(row, prod(dims[1:]))
    except UnknownFormat as problem:
        raise UnknownFormat(
            f"{where}: tensor {quote(name, 120)}: {problem.message}", file=where, key=name, value=number
        ) from None
    return GgufTensor(name=name, dims=dims, type=kind.name, tensor_bytes=size_bytes, offset=offset)


def _check_tensors(
    tensors: tuple[GgufTensor, ...], alignment: int, data_bytes: int, where: str
) -> tuple[str, ...]:
    names: set[str] = set()
    end = padding = 0
    before = ""
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.tensor_bytes)):
        if tensor.name in names:
            raise _fail(where, tensor.name, "is there twice")
        names.add(tensor.name)
        if tensor.offset % alignment:
            raise _fail(where, tensor.name, f"begins at byte {tensor.offset}, not aligned to {alignment}")
        if tensor.offset < end and tensor.tensor_bytes:
            raise _fail(where, tensor.name, f"begins inside {quote(before)}")
        padding += max(0, tensor.offset - round_up(end, alignment))
        if tensor.offset + tensor.tensor_bytes >= end:
            end, before = tensor.offset + tensor.tensor_bytes, tensor.name
    if end > data_bytes:
        raise HeaderError(
            f"{where} is cut short: its tensors end at byte {end} of the data and the file holds {data_bytes}",
            file=where,
            value=end,
        )
    return (f"{where} has {padding} bytes between tensors that belong to none",) if padding else ()


def _fail(where: str, tensor: str, problem: str) -> HeaderError:
    return HeaderError(f"{where}: tensor {quote(tensor, 120)} {problem}", file=where, key=tensor)
