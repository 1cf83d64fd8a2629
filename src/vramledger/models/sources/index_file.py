"""The index of a sharded checkpoint (`model.safetensors.index.json`, `pytorch_model.bin.index.json`).

It names every tensor and the shard it lies in, without shapes; `metadata.total_size` is what whoever wrote
the file claims the tensors take. That of a model with its experts one by one has more bytes than all its headers, so
it is read piece by piece.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from vramledger.errors import ConfigError
from vramledger.models.sources.bounded_file import ReadAt, open_for_headers, quote, read_whole, shown
from vramledger.models.sources.header_table import RowBuilder
from vramledger.models.sources.json_file import parse_json_object
from vramledger.models.sources.names import compress, templates_of

INDEX_LIMIT_BYTES = 256 * 2**20
MAX_SHARDS = 100_000
PIECE_BYTES = 4 * 2**20
SAFETENSORS_INDEX = "model.safetensors.index.json"
PYTORCH_INDEX = "pytorch_model.bin.index.json"

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@ -]{0,254}")
_HEAD = re.compile(rb'\s*\{\s*(?:"metadata"\s*:\s*(\{[^{}]*\})\s*,\s*)?"weight_map"\s*:\s*\{')
_BUCKETS = 64


class IndexRow(Struct, frozen=True, kw_only=True):
    """Names that differ only in their indices; `layers` holds the values of the first index."""

    template: str
    count: int
    layers: tuple[range, ...]


class IndexInfo(Struct, frozen=True, kw_only=True):
    """What an index says. `shards` are plain file names; `total_size_bytes` is None where it is not stated.

    `rows` is empty where the names were not asked for.
    """

    file: str
    shards: tuple[str, ...]
    tensor_count: int
    rows: tuple[IndexRow, ...]
    total_size_bytes: int | None
    notes: tuple[str, ...] = ()

    def has(self, template: str) -> bool:
        """Whether a tensor of this name, or of names with this template, is listed."""
        return any(row.template == template for row in self.rows)


class _Index(msgspec.Struct):
    weight_map: msgspec.Raw
    metadata: msgspec.Raw = msgspec.Raw(b"")


_INDEX = msgspec.json.Decoder(_Index)
_WEIGHT_MAP = msgspec.json.Decoder(dict[str, str])


class _Irregular(Exception):
    """An index that is not laid out as the usual writers do, or that may hold a key twice."""


def read_index(path: Path, *, names: bool = True) -> IndexInfo:
    """The index in a local file; without `names` its rows are left out.

    Raises SourceError for a file that cannot be read, ConfigError for one that is no index or names a
    shard outside its folder.
    """
    where = shown(path)
    try:
        with open_for_headers(path) as (read_at, size_bytes):
            if size_bytes > INDEX_LIMIT_BYTES:
                raise _Irregular
            return _Reader(where, names=names).read(read_at, size_bytes)
    except _Irregular:
        return _read_exactly(read_whole(path, INDEX_LIMIT_BYTES, ConfigError), where, names=names)


def parse_index(data: bytes, where: str) -> IndexInfo:
    """The index in `data`; `where` names the file in messages. Errors as `read_index`."""
    try:
        return _Reader(where, names=True).read(lambda offset, size: data[offset : offset + size], len(data))
    except _Irregular:
        return _read_exactly(data, where, names=True)


class _Reader:
    """Counts what the pieces of one index name, and keeps no name."""

    def __init__(self, where: str, *, names: bool) -> None:
        self._where = where
        self._names = names
        self._count = 0
        self._shards: set[str] = set()
        self._rows: dict[str, RowBuilder] = {}
        self._hashes = [array("q") for _ in range(_BUCKETS)]

    def read(self, read_at: ReadAt, size_bytes: int) -> IndexInfo:
        """The index, read in pieces. Raises _Irregular where only the whole text can tell what it says."""
        metadata = b""
        try:
            for piece in _pieces(read_at, size_bytes):
                metadata = self._add(piece) or metadata
            said = parse_json_object(metadata or b"{}", self._where)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ConfigError):
            raise _Irregular from None
        # A hash that is there twice may be a name that is.
        if any(len(set(bucket)) != len(bucket) for bucket in self._hashes):
            raise _Irregular
        return self.result(said)

    def _add(self, piece: _Piece) -> bytes:
        """Take in a piece and return the metadata it holds.

        Without escapes, each name and each shard accounts for two quotes and the rest of the text for those of its own
        few keys; a name that is there twice leaves four quotes over.
        """
        text, metadata = piece.text, piece.metadata
        quotes = 0
        if piece.is_last:
            index = _INDEX.decode(text)
            found = _WEIGHT_MAP.decode(index.weight_map)
            after = bytes(index.metadata)
            quotes = 2 + (2 + after.count(b'"') if after else 0)
            if after and metadata:
                raise _Irregular
            metadata = metadata or after
        else:
            found = _WEIGHT_MAP.decode(text)
        if b"\\" in text or b"\\" in metadata or text.count(b'"') != 4 * len(found) + quotes:
            raise _Irregular
        self.take(found)
        return b"" if metadata == b"null" else metadata

    def take(self, found: dict[str, str]) -> None:
        """Count names and the shards they lie in."""
        self._count += len(found)
        self._shards.update(found.values())
        for value in map(hash, found):
            self._hashes[value % _BUCKETS].append(value)
        if not self._names:
            return
        names = list(found)
        rows = self._rows
        for name, template in zip(names, templates_of(names), strict=True):
            row = rows.get(template)
            if row is None:
                row = rows[template] = RowBuilder(name, template)
            row.add(name)

    def result(self, metadata: dict[str, Any]) -> IndexInfo:
        """What was counted, once shards have been checked."""
        where = self._where
        if not self._count:
            raise ConfigError(f"{where}: weight_map names no tensor", file=where, key="weight_map")
        shards = sorted(self._shards)
        if len(shards) > MAX_SHARDS:
            raise ConfigError(f"{where}: weight_map names {len(shards)} shards", file=where, key="weight_map")
        for shard in shards:
            if not _SAFE_NAME.fullmatch(shard):
                raise ConfigError(
                    f"{where}: weight_map names the shard {quote(shard)}, which is not a plain file name",
                    file=where,
                    key="weight_map",
                    value=shard,
                )
        total, notes = _total_size(metadata.get("total_size"), where)
        rows = tuple(
            IndexRow(template=template, count=row.count, layers=compress(row.indices))
            for template, row in sorted(self._rows.items())
        )
        return IndexInfo(
            file=where,
            shards=tuple(shards),
            tensor_count=self._count,
            rows=rows,
            total_size_bytes=total,
            notes=notes,
        )


class _Piece(Struct, frozen=True, kw_only=True):
    """A run of whole entries as an object; the last one is an index with what comes after the map.

    `metadata` is that of before the map, with the first piece.
    """

    text: bytes
    metadata: bytes = b""
    is_last: bool = False


def _pieces(read_at: ReadAt, size_bytes: int) -> Iterator[_Piece]:
    """Cut after a comma that follows a string. A cut inside a string leaves a text that is no JSON."""
    rest = read_at(0, PIECE_BYTES)
    at = len(rest)
    head = _HEAD.match(rest)
    if head is None:
        raise _Irregular
    metadata = head.group(1) or b""
    rest = rest[head.end() :]
    while at < size_bytes:
        more = read_at(at, PIECE_BYTES)
        if not more:
            break
        at += len(more)
        cut = rest.rfind(b'",')
        if cut >= 0:
            yield _Piece(text=b"{%s}" % rest[: cut + 1], metadata=metadata)
            metadata = b""
        rest = rest[cut + 2 if cut >= 0 else 0 :] + more
    yield _Piece(text=b'{"weight_map":{' + rest, metadata=metadata, is_last=True)


def _total_size(value: Any, where: str) -> tuple[int | None, tuple[str, ...]]:
    """Transformers has written whole numbers and floats; anything else is no size and is noted."""
    if value is None:
        return None, (f"{where} states no total_size",)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 < value < 2**60:
        return None, (f"{where}: total_size is {quote(value)}, not a number of bytes; it is not used",)
    return value, ()


def _read_exactly(data: bytes, where: str, *, names: bool) -> IndexInfo:
    """The whole text at once, which says what is wrong with it."""
    parsed = parse_json_object(data, where)
    weight_map, metadata = parsed.get("weight_map"), parsed.get("metadata") or {}
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise ConfigError(f"{where}: weight_map must map tensor names to files", file=where, key="weight_map")
    if not isinstance(metadata, dict):
        raise ConfigError(f"{where}: metadata must be an object", file=where, key="metadata")
    reader = _Reader(where, names=names)
    reader.take(weight_map)
    return reader.result(metadata)
