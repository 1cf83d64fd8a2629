"""The index of a sharded checkpoint (`model.safetensors.index.json`, `pytorch_model.bin.index.json`).

It names every tensor and the shard it lies in, without shapes; `metadata.total_size` is what whoever wrote
the file claims the tensors take.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from vramledger.errors import ConfigError
from vramledger.models.sources.bounded_file import quote, read_whole, shown
from vramledger.models.sources.header_table import RowBuilder
from vramledger.models.sources.json_file import parse_json_object
from vramledger.models.sources.names import compress, templates_of

INDEX_LIMIT_BYTES = 256 * 2**20
MAX_SHARDS = 100_000
NAMES_AT_ONCE = 65_536
SAFETENSORS_INDEX = "model.safetensors.index.json"
PYTORCH_INDEX = "pytorch_model.bin.index.json"

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@ -]{0,254}")


class IndexRow(Struct, frozen=True, kw_only=True):
    """Names that differ only in their indices; `layers` holds the values of the first index."""

    template: str
    count: int
    layers: tuple[range, ...]


class IndexInfo(Struct, frozen=True, kw_only=True):
    """What an index says. `shards` are plain file names; `total_size_bytes` is None where it is not stated."""

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


def read_index(path: Path) -> IndexInfo:
    """The index in a local file.

    Raises SourceError for a file that cannot be read, ConfigError for one that is no index or names a
    shard outside its folder.
    """
    return parse_index(read_whole(path, INDEX_LIMIT_BYTES, ConfigError), shown(path))


def parse_index(data: bytes, where: str) -> IndexInfo:
    """The index in `data`; `where` names the file in messages. Errors as `read_index`."""
    weight_map, metadata = _decode(data, where)
    if not weight_map:
        raise ConfigError(f"{where}: weight_map names no tensor", file=where, key="weight_map")
    shards = sorted(set(weight_map.values()))
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
    return IndexInfo(
        file=where,
        shards=tuple(shards),
        tensor_count=len(weight_map),
        rows=_rows(weight_map),
        total_size_bytes=total,
        notes=notes,
    )


def _rows(weight_map: dict[str, str]) -> tuple[IndexRow, ...]:
    rows: dict[str, RowBuilder] = {}
    names = iter(weight_map)
    while group := list(islice(names, NAMES_AT_ONCE)):
        for name, template in zip(group, templates_of(group), strict=True):
            row = rows.get(template)
            if row is None:
                row = rows[template] = RowBuilder(name, template)
            row.add(name)
    return tuple(
        IndexRow(template=template, count=row.count, layers=compress(row.indices))
        for template, row in sorted(rows.items())
    )


def _total_size(value: Any, where: str) -> tuple[int | None, tuple[str, ...]]:
    """Transformers has written whole numbers and floats; anything else is no size and is noted."""
    if value is None:
        return None, (f"{where} states no total_size",)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 < value < 2**60:
        return None, (f"{where}: total_size is {quote(value)}, not a number of bytes; it is not used",)
    return value, ()


def _decode(data: bytes, where: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The quick way where it cannot have hidden a duplicate key.

    Without escapes, each name and each shard accounts for two quotes, and the rest of the file for those of its
    own few keys; a pair more than there are names would leave four quotes over.
    """
    try:
        index = _INDEX.decode(data)
        names = _WEIGHT_MAP.decode(index.weight_map)
        metadata = bytes(index.metadata)
        quotes = 4 * len(names) + 2 + (2 + metadata.count(b'"') if metadata else 0)
        if b"\\" not in data and data.count(b'"') == quotes:
            return names, parse_json_object(b"{}" if metadata in (b"", b"null") else metadata, where)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # the exact way below says what is wrong
    parsed = parse_json_object(data, where)
    exact, metadata_object = parsed.get("weight_map"), parsed.get("metadata") or {}
    if not isinstance(exact, dict) or not all(isinstance(shard, str) for shard in exact.values()):
        raise ConfigError(f"{where}: weight_map must map tensor names to files", file=where, key="weight_map")
    if not isinstance(metadata_object, dict):
        raise ConfigError(f"{where}: metadata must be an object", file=where, key="metadata")
    return exact, metadata_object
