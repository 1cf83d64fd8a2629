"""CSV and Parquet as batches of the columns that are wanted."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from vramledger.errors import InputError
from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.source import Source
from vramledger.workload.columns import BATCH, Ints

CSV_BLOCK_BYTES = 2**22
_LINE_END = re.compile(r"\r\n|\n|\r")
HEAD_BYTES = 2**16
MOST_COLUMNS = 2_000
# What Arrow raises for files that are not what they say; a text that is no UTF-8 is a ValueError.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)
Batches = Iterator[tuple[dict[str, Any], Ints]]


def csv_header(source: Source) -> tuple[list[str], str]:
    """(names of columns, delimiter) of a CSV's first line. Raises InputError where there is none."""
    text = source.head(HEAD_BYTES).decode("utf-8-sig", "replace")
    # Not splitlines, which also ends lines where CSV does not.
    first = _LINE_END.split(text, maxsplit=1)[0]
    if not first.strip():
        raise InputError(f"{source.name} is empty, or its first line is", file=source.name)
    delimiter = max(",;\t|", key=first.count)
    try:
        names = next(csv.reader(io.StringIO(first), delimiter=delimiter))
    except csv.Error as problem:
        raise InputError(f"{source.name}: its first line is no CSV: {problem}", file=source.name) from None
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{source.name} has more than {MOST_COLUMNS:,} columns", file=source.name)
    return [name.strip() for name in names], delimiter


def csv_batches(
    source: Source,
    wanted: Sequence[str],
    found: Findings,
    *,
    names: Sequence[str],
    delimiter: str = ",",
    skip_bytes: int = 0,
) -> Batches:
    """(cells by column as text, row numbers from 1 below the header).

    `names` are those of the first line, or of the one after `skip_bytes`. Lines with too many or too few cells are bad
    rows.
    """
    twice = sorted(name for name in set(wanted) if names.count(name) > 1)
    if twice:
        raise InputError(
            f"{source.name} has two columns named {twice[0]!r}", file=source.name, column=twice[0]
        )
    broken: list[tuple[int, str]] = []
    row = 1
    try:
        with source.open() as file:
            skipped = 0
            while skipped < skip_bytes and (past := file.read(min(skip_bytes - skipped, CSV_BLOCK_BYTES))):
                skipped += len(past)
            reader = pa.csv.open_csv(
                pa.PythonFile(io.BufferedReader(_Utf8(file), CSV_BLOCK_BYTES), mode="r"),
                read_options=pa.csv.ReadOptions(
                    use_threads=False,
                    block_size=CSV_BLOCK_BYTES,
                    column_names=[f"{index}:{name}" for index, name in enumerate(names)],
                    skip_rows=1,
                ),
                parse_options=pa.csv.ParseOptions(
                    delimiter=delimiter,
                    newlines_in_values=b'"' in source.head(HEAD_BYTES),
                    invalid_row_handler=_handler(broken, found),
                ),
                convert_options=pa.csv.ConvertOptions(
                    include_columns=[f"{names.index(name)}:{name}" for name in wanted],
                    column_types={f"{index}:{name}": pa.string() for index, name in enumerate(names)},
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            )
            for batch in reader:
                rows = _numbers(row, batch.num_rows, broken)
                row = int(rows[-1]) + 1 if len(rows) else row
                while broken and broken[0][0] < row:
                    found.bad(*broken.pop(0))
                for start in range(0, batch.num_rows, BATCH):
                    part = batch.slice(start, BATCH)
                    yield (
                        {name: part.column(place) for place, name in enumerate(wanted)},
                        rows[start : start + BATCH],
                    )
    except pa.ArrowException as problem:
        if broken:
            found.refuse(*broken[-1])
        if row == 1 and "Empty CSV" in str(problem):
            return
        raise InputError(
            f"{source.name} is no CSV that can be read, after row {row - 1:,}: {str(problem)[:200]}",
            file=source.name,
        ) from None
    for number, why in broken:
        found.bad(number, why)


class _Utf8(io.RawIOBase):
    """A file's bytes with marks in place of what is no UTF-8: Arrow tells of such lines on stderr, past every caller."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            data = self._file.read(CSV_BLOCK_BYTES)
            is_plain = data.isascii() and not self._decoder.getstate()[0]
            self._left = data if is_plain else self._decoder.decode(data, final=not data).encode()
            if not data:
                break
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _numbers(first: int, count: int, broken: list[tuple[int, str]]) -> Ints:
    """Numbers of the next rows, those of lines that were left out passed over."""
    left_out = [number for number, _ in broken]
    numbers = np.arange(first, first + count + len(left_out), dtype=np.int64)
    return numbers[~np.isin(numbers, left_out)][:count] if left_out else numbers


def _handler(broken: list[tuple[int, str]], found: Findings) -> Callable[[Any], str]:
    def judge(row: Any) -> str:
        broken.append((row.number - 1, f"has {row.actual_columns} cells instead of {row.expected_columns}"))
        return "skip" if found.options.on_bad_row == "skip" else "error"

    return judge


def parquet_names(source: Source) -> list[str]:
    """Names of a Parquet file's columns."""
    with _parquet(source) as file:
        names: list[str] = file.schema_arrow.names
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{source.name} has more than {MOST_COLUMNS:,} columns", file=source.name)
    return names


def parquet_metadata(source: Source) -> dict[bytes, bytes]:
    """What the file's schema says beside its columns."""
    with _parquet(source) as file:
        return dict(file.schema_arrow.metadata or {})


def parquet_batches(source: Source, wanted: Sequence[str]) -> Batches:
    """(cells by column, row numbers from 1)."""
    row = 1
    with _parquet(source) as file:
        batches = file.iter_batches(batch_size=BATCH, columns=list(wanted), use_threads=False)
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                cells = {name: batch.column(batch.schema.get_field_index(name)) for name in wanted}
            except _UNREADABLE as problem:
                raise _damaged(source, problem, after=row - 1) from None
            rows = np.arange(row, row + batch.num_rows, dtype=np.int64)
            row += batch.num_rows
            yield cells, rows


@contextmanager
def _parquet(source: Source) -> Iterator[Any]:
    if source.is_gzip:
        raise InputError(f"{source.name} is Parquet inside gzip; decompress it first", file=source.name)
    source.open().close()
    try:
        file = pa.parquet.ParquetFile(source.path, memory_map=False, buffer_size=2**22)
        file.schema_arrow.names  # noqa: B018 - a damaged schema shows here
    except _UNREADABLE as problem:
        raise _damaged(source, problem, after=0) from None
    with file:
        yield file


def _damaged(source: Source, problem: Exception, *, after: int) -> InputError:
    where = f" after row {after:,}" if after else ""
    return InputError(
        f"{source.name} is cut or damaged Parquet{where}: {' '.join(str(problem).split())[:200]}",
        file=source.name,
    )
