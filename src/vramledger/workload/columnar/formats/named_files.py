"""CSV, Parquet and JSON lines with named columns, among them Azure's, BurstGPT's and gateways' access logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramledger.errors import InputError
from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.json_lines import decoded, in_batches
from vramledger.workload.columnar.named import NamedColumns
from vramledger.workload.columnar.numbers import from_python, whole_numbers
from vramledger.workload.columnar.piece import Piece
from vramledger.workload.columnar.source import Source
from vramledger.workload.columnar.tables import csv_batches, csv_header, parquet_batches, parquet_names

BURSTGPT_UNITS = {"arrival": "s", "latency": "s"}


def csv_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of any CSV that names its columns."""
    yield from _csv(source, found)


def burstgpt_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """BurstGPT: `Timestamp` in seconds since the first day, lengths, and in its third part a session and the seconds that
    the answer took. Requests without output failed at the service that was recorded (so its README) and are left out.
    """
    yield from _csv(source, found, units=BURSTGPT_UNITS, zero_output_fails=True)


def _csv(
    source: Source,
    found: Findings,
    *,
    units: Mapping[str, str] | None = None,
    zero_output_fails: bool = False,
) -> Iterator[Piece]:
    names, delimiter = csv_header(source)
    named = NamedColumns(names, found, units=units, zero_output_fails=zero_output_fails)
    batches = csv_batches(
        source, list(dict.fromkeys(named.of.values())), found, names=names, delimiter=delimiter
    )
    yield from _pieces(named, batches, found)


def parquet_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of any Parquet file."""
    named = NamedColumns(parquet_names(source), found)
    yield from _pieces(named, parquet_batches(source, list(dict.fromkeys(named.of.values()))), found)


def json_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of JSON lines; names of columns are paths into each line's object."""
    named = NamedColumns(_paths_of(source), found)
    paths = {column: column.split(".") for column in named.of.values()}

    def batches() -> Iterator[tuple[dict[str, Any], Any]]:
        for rows, batch in in_batches(decoded(source, found, dict[str, Any])):
            yield (
                {column: from_python([_at(item, path) for item in batch]) for column, path in paths.items()},
                rows,
            )

    yield from _pieces(named, batches(), found)


def _pieces(
    named: NamedColumns, batches: Iterator[tuple[dict[str, Any], Any]], found: Findings
) -> Iterator[Piece]:
    found.has_pauses = "pause" in named.of
    for cells, rows in batches:
        if found.block_tokens is None and "blocks" in named.of:
            _find_block_tokens(named, cells, found)
        piece = named.piece(cells, rows)
        found.is_absolute = named.arrivals is not None and named.arrivals.is_absolute
        yield piece


def _find_block_tokens(named: NamedColumns, cells: Mapping[str, Any], found: Findings) -> None:
    column = named.of.get("block_tokens")
    if column is not None:
        cut = whole_numbers(cells[column])
        if cut.known.any() and (cut.values[cut.known] == cut.values[cut.known][0]).all():
            found.block_tokens = int(cut.values[cut.known][0])
    if not found.block_tokens or found.block_tokens < 1:
        raise InputError(
            f"{found.source_name} names blocks ({named.of['blocks']}) but not how many tokens each has: a column block_tokens "
            "says it, the same in every row",
            file=found.source_name,
            column=named.of["blocks"],
        )


def _paths_of(source: Source) -> list[str]:
    """Paths of the first lines' objects. Raises InputError where the first line is none."""
    lines = source.head(2**18).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    paths: dict[str, None] = {}
    for line in [source.first_line().removeprefix(b"\xef\xbb\xbf"), *lines[:-1]]:
        try:
            head = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            head = None
        if isinstance(head, dict):
            paths.update(dict.fromkeys(_paths(head)))
        elif not paths:
            raise InputError(f"{source.name}: the first line is no whole JSON object", file=source.name)
    return list(paths)


def _paths(value: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[str]:
    for name, inner in value.items():
        if isinstance(inner, dict) and depth < 4:
            yield from _paths(inner, f"{before}{name}.", depth + 1)
        else:
            yield f"{before}{name}"


def _at(item: Any, path: list[str]) -> Any:
    for name in path:
        if not isinstance(item, dict):
            return None
        item = item.get(name)
    return None if isinstance(item, dict) else item
