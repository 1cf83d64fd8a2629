"""Workloads that `write_workload` wrote, checked as strictly as any other file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NoReturn

import msgspec
import numpy as np
from msgspec import Meta, Struct

from vramledger.errors import InputError
from vramledger.units import counted
from vramledger.workload.columnar.findings import Findings, too_long
from vramledger.workload.columnar.json_lines import BlockId, decoded, in_batches
from vramledger.workload.columnar.named import block_lists
from vramledger.workload.columnar.numbers import whole_numbers
from vramledger.workload.columnar.piece import LATEST_NS, MOST_TOKENS
from vramledger.workload.columnar.source import Source
from vramledger.workload.columnar.tables import csv_batches, parquet_batches, parquet_metadata, parquet_names
from vramledger.workload.columnar.writing import CSV_MARK, JSON_MARK, METADATA_KEY, VERSION, Written
from vramledger.workload.columns import (
    DEFAULTS,
    OPTIONAL,
    SCALARS,
    Ints,
    RequestColumns,
    Workload,
    columns_with,
    joined,
)
from vramledger.workload.request import WorkloadHeader

HELD_BYTES = 2**26
_Optional = Annotated[int, Meta(ge=0, le=LATEST_NS)] | None


class _Line(Struct):
    arrival_ns: Annotated[int, Meta(ge=0, le=LATEST_NS)]
    prompt_tokens: Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
    output_tokens: Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
    max_output_tokens: _Optional = None
    boundary: int = 0
    tenant: int = 0
    conversation: _Optional = None
    parent: _Optional = None
    pause_ns: Annotated[int, Meta(ge=0, le=LATEST_NS)] = 0
    branches: Annotated[int, Meta(ge=1, le=2**31)] = 1
    cancel_ns: _Optional = None
    first_token_deadline_ns: _Optional = None
    deadline_ns: _Optional = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    blocks: list[BlockId] = []


def is_own(source: Source, head: bytes) -> bool:
    """Whether a file was written by this program."""
    if head[:4] == b"PAR1":
        return METADATA_KEY in parquet_metadata(source)
    return head.startswith((CSV_MARK.encode(), f'{{"{JSON_MARK}":'.encode()))


def own_workload(source: Source, found: Findings) -> Workload:
    """The workload with the header that was written. Raises InputError for what this program would not have written."""
    header = _header(source)
    held: list[RequestColumns] | None = []
    most, longer = found.options.max_model_len, 0
    for batch in _checked(source, found, header):
        longer += 0 if most is None else int(np.count_nonzero(batch.prompt_tokens > most))
        if held is not None:
            held.append(batch)
            if sum(array.nbytes for part in held for array in part) > HELD_BYTES:
                held = None
    if most is not None and longer:
        note = f"{counted(longer, 'request')} {too_long(most)}"
        header = msgspec.structs.replace(header, notes=(*header.notes, note))
    if held is not None:
        return Workload.of(header, joined(held))
    return Workload(header, lambda: _checked(source, found, header))


def _header(source: Source) -> WorkloadHeader:
    head = source.head(4)
    if head == b"PAR1":
        text = parquet_metadata(source).get(METADATA_KEY, b"")
    else:
        text = source.first_line().removeprefix(CSV_MARK.encode())
    try:
        written = msgspec.json.decode(text, type=Written)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as problem:
        raise InputError(f"{source.name}: its header cannot be read: {problem}", file=source.name) from None
    if written.vramledger_workload != VERSION:
        raise InputError(
            f"{source.name} is a workload of version {written.vramledger_workload}; this program reads {VERSION}",
            file=source.name,
        )
    return written.header


def _batches(source: Source, found: Findings) -> Iterator[tuple[RequestColumns, Ints]]:
    head = source.head(len(CSV_MARK))
    if head[:4] == b"PAR1":
        _need(source, parquet_names(source))
        for cells, rows in parquet_batches(source, [*SCALARS, "blocks"]):
            yield _of_cells(cells, rows, found), rows
    elif head == CSV_MARK.encode():
        names = [*SCALARS, "blocks"]
        for cells, rows in csv_batches(source, names, found, names=names, skip_bytes=_header_bytes(source)):
            yield _of_cells(cells, rows, found), rows
    else:
        lines = decoded(source, found, _Line, skip_first=True)
        for rows, batch in in_batches(lines, lambda item: item.blocks):
            yield _of_lines(batch), rows


def _header_bytes(source: Source) -> int:
    """Of a CSV's header. Raises InputError where other columns follow it than those that are written."""
    size = len(source.first_line()) + 1
    names = ",".join((*SCALARS, "blocks")).encode()
    with source.open() as file:
        file.read(size)
        line = file.read(len(names) + 1)
    if line.rstrip() != names:
        raise InputError(
            f"{source.name}: its second line does not name the columns of a workload", file=source.name
        )
    return size


def _need(source: Source, names: list[str]) -> None:
    missing = [name for name in (*SCALARS, "blocks") if name not in names]
    if missing:
        raise InputError(f"{source.name} has no column {missing[0]!r}", file=source.name, column=missing[0])


def _of_cells(cells: dict[str, Any], rows: Ints, found: Findings) -> RequestColumns:
    columns: dict[str, Ints] = {}
    for name in SCALARS:
        cut = whole_numbers(cells[name])
        for place, why, value in cut.bad:
            found.refuse(int(rows[place]), why, column=name, value=value)
        if name not in OPTIONAL and not cut.known.all():
            found.refuse(int(rows[np.argmin(cut.known)]), "is empty", column=name)
        columns[name] = np.where(cut.known, cut.values, -1)
    offsets, ids = block_lists(cells["blocks"], rows, "blocks", found)
    return columns_with(block_offsets=offsets, block_ids=ids, **columns)


def _of_lines(batch: list[_Line]) -> RequestColumns:
    columns = {
        name: np.array(
            [-1 if (value := getattr(item, name)) is None else value for item in batch], dtype=np.int64
        )
        for name in SCALARS
    }
    offsets = np.zeros(len(batch) + 1, dtype=np.int64)
    np.cumsum([len(item.blocks) for item in batch], out=offsets[1:])
    ids = np.fromiter(
        (block for item in batch for block in item.blocks), dtype=np.int64, count=int(offsets[-1])
    )
    return columns_with(block_offsets=offsets, block_ids=ids, **columns)


def _checked(source: Source, found: Findings, header: WorkloadHeader) -> Iterator[RequestColumns]:
    place, latest = 0, 0
    least = {
        "prompt_tokens": 1,
        "output_tokens": 1,
        "arrival_ns": 0,
        "branches": 1,
        "pause_ns": 0,
        "tenant": 0,
        "boundary": 0,
    }
    most = {"tenant": len(header.tenants) - 1, "boundary": len(header.boundaries) - 1}
    for columns, rows in _batches(source, found):
        for name in SCALARS:
            values = getattr(columns, name)
            low, high = least.get(name, DEFAULTS.get(name, -1)), most.get(name, LATEST_NS)
            wrong = (values < low if name != "priority" else np.zeros(len(values), dtype=np.bool_)) | (
                values > high
            )
            if wrong.any():
                at = int(np.argmax(wrong))
                _refuse(found, rows, at, "is out of range", name, values)
        arrivals = columns.arrival_ns
        if len(arrivals):
            late = np.diff(arrivals, prepend=latest) < 0
            if late.any():
                _refuse(
                    found,
                    rows,
                    int(np.argmax(late)),
                    "comes before the request above it",
                    "arrival_ns",
                    arrivals,
                )
            latest = int(arrivals[-1])
        ahead = columns.parent >= np.arange(place, place + columns.rows)
        if ahead.any():
            _refuse(found, rows, int(np.argmax(ahead)), "is not a request above it", "parent", columns.parent)
        place += columns.rows
        yield columns


def _refuse(found: Findings, rows: Ints, at: int, why: str, name: str, values: Ints) -> NoReturn:
    found.refuse(int(rows[at]), why, column=name, value=int(values[at]))
