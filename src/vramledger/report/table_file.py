"""Rows of a sweep as a file: CSV, JSON lines, the published JSON document, or Parquet. It appears whole or not at all."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from vramledger.documents.plan import SCHEMA_VERSION
from vramledger.errors import FlagError, InputError
from vramledger.search.rows import COLUMNS, Row
from vramledger.whole_file import whole_file

PARQUET_ROWS = 65_536
"""Rows of a row group."""


class TableFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"
    PARQUET = "parquet"


def format_of(path: Path) -> TableFormat:
    """The format a name ends in. Raises FlagError for another."""
    end = path.suffix.lstrip(".").lower()
    if end not in set(TableFormat):
        raise FlagError(
            f"--out {path.name!r} ends in none of .csv, .json, .jsonl, .parquet", flag="out", value=path.name
        )
    return TableFormat(end)


def check_format(kind: TableFormat) -> None:
    """Raises InputError where the format's library is not installed."""
    if kind is TableFormat.PARQUET:
        _pyarrow()


def write_table(path: Path, parts: Iterable[list[Row]]) -> None:
    """Write rows as they come. Raises OSError where the file cannot be written, and leaves nothing behind then."""
    writer = _WRITERS[format_of(path)]
    with whole_file(path) as file:
        writer(file, parts)


def table_text(kind: TableFormat, parts: Iterable[list[Row]]) -> Iterator[str]:
    """The file's text piece by piece. Raises ValueError for a format that is not text."""
    match kind:
        case TableFormat.CSV:
            return _csv(parts)
        case TableFormat.JSONL:
            return _json_lines(parts)
        case TableFormat.JSON:
            return _json(parts)
        case TableFormat.PARQUET:
            raise ValueError("Parquet is not text")


def _csv(parts: Iterable[list[Row]]) -> Iterator[str]:
    """A header, then a line a row (RFC 4180); null is empty, truth is true and false."""
    yield ",".join(COLUMNS) + "\r\n"
    for rows in parts:
        buffer = StringIO()
        csv.writer(buffer).writerows([_cell(getattr(row, name)) for name in COLUMNS] for row in rows)
        yield buffer.getvalue()


def _cell(value: object) -> object:
    return ("false", "true")[value] if isinstance(value, bool) else value


def _json_lines(parts: Iterable[list[Row]]) -> Iterator[str]:
    encode = msgspec.json.Encoder().encode
    for rows in parts:
        yield "".join(f"{encode(row).decode()}\n" for row in rows)


def _json(parts: Iterable[list[Row]]) -> Iterator[str]:
    """The document of `schema/sweep-v1.schema.json`, a row a line."""
    yield f'{{"schema_version":"{SCHEMA_VERSION}","kind":"sweep","rows":['
    encode = msgspec.json.Encoder().encode
    lead = "\n"
    for rows in parts:
        for row in rows:
            yield lead + encode(row).decode()
            lead = ",\n"
    yield "\n]}\n"


def _text_writer(kind: TableFormat) -> Callable[[BinaryIO, Iterable[list[Row]]], None]:
    def write(file: BinaryIO, parts: Iterable[list[Row]]) -> None:
        for text in table_text(kind, parts):
            file.write(text.encode())

    return write


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "a Parquet file needs pyarrow, which is not installed: pip install 'vramledger[parquet]'; CSV and JSON "
            "need nothing",
            library="pyarrow",
        ) from None
    return pyarrow


def _write_parquet(file: BinaryIO, parts: Iterable[list[Row]]) -> None:
    arrow = _pyarrow()
    schema = arrow.schema(
        [
            arrow.field(name, _arrow_type(arrow, kind), metadata={"description": text} if text else None)
            for name, kind, text in column_facts()
        ]
    )
    with arrow.parquet.ParquetWriter(file, schema) as writer:
        waiting: list[Row] = []
        for rows in parts:
            waiting += rows
            while len(waiting) >= PARQUET_ROWS:
                writer.write_table(_table(arrow, schema, waiting[:PARQUET_ROWS]))
                del waiting[:PARQUET_ROWS]
        if waiting:
            writer.write_table(_table(arrow, schema, waiting))


def _table(arrow: Any, schema: Any, rows: list[Row]) -> Any:
    values = {name: [_plain(getattr(row, name)) for row in rows] for name in COLUMNS}
    return arrow.table(values, schema=schema)


def _plain(value: object) -> object:
    return value.value if isinstance(value, StrEnum) else value


def _arrow_type(arrow: Any, kind: str) -> Any:
    return {
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "boolean": arrow.bool_(),
        "string": arrow.string(),
    }[kind]


def column_facts() -> Iterator[tuple[str, str, str]]:
    """Each column's name, its JSON type, and what it holds."""
    schema = msgspec.json.schema(Row)
    defs = schema["$defs"]
    for name, facts in defs["Row"]["properties"].items():
        kinds = [part for part in facts.get("anyOf", [facts]) if part.get("type") != "null"]
        target = kinds[0]
        while "$ref" in target:
            target = defs[target["$ref"].rpartition("/")[2]]
        yield name, target.get("type", "string"), facts.get("description", "")


_WRITERS: dict[TableFormat, Callable[[BinaryIO, Iterable[list[Row]]], None]] = {
    TableFormat.CSV: _text_writer(TableFormat.CSV),
    TableFormat.JSON: _text_writer(TableFormat.JSON),
    TableFormat.JSONL: _text_writer(TableFormat.JSONL),
    TableFormat.PARQUET: _write_parquet,
}
