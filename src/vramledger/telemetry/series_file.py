"""A time series as a file: JSON lines, or Parquet (the extra `parquet`).

One row is one Sample: at_s, source, name, value, rank, pid, phase, label. Rows go to `.NAME.PID.part` as JSON lines while they
are taken, and the file appears under its name when the series ends. A Parquet file cannot be read without the footer that
is written last, so that a series that is killed would be lost; lines of JSON can be read as far as they go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from vramledger.errors import FlagError, InputError, SourceError
from vramledger.ledger import Phase
from vramledger.models.sources.bounded_file import regular_file_bytes, shown
from vramledger.observation import Sample
from vramledger.whole_file import unwritten

ROWS_OF_A_GROUP = 65_536
LONGEST_LINE_BYTES = 16_384
LARGEST = 2.0**63
"""Of a value; sums and means of larger ones are no numbers any more."""
LATEST_S = 1e11
_PARQUET_MAGIC = b"PAR1"
_COLUMNS = ("at_s", "source", "name", "value", "rank", "pid", "phase", "label")
_DESCRIPTIONS = {
    "at_s": "Unix time in seconds.",
    "source": "The probe and what it asked.",
    "name": "The quantity; it ends in its unit. mark_count rows begin a span.",
    "value": "Whole numbers up to 2**53 are exact.",
    "rank": "World rank where the source tells it.",
    "pid": "Process where the quantity is of one.",
    "phase": "Phase of the ledger the instance was in.",
    "label": "What tells quantities of one name apart; of a mark, what it begins.",
}


def series_format(path: Path) -> str:
    """ "parquet" or "jsonl" by the name's end. Raises FlagError for another, InputError where Parquet's library is missing."""
    end = path.suffix.lower()
    if end not in (".parquet", ".jsonl"):
        raise FlagError(f"{shown(path)} ends in neither .parquet nor .jsonl", flag="file", value=shown(path))
    if end == ".parquet":
        _pyarrow()
    return end[1:]


class SeriesWriter:
    """Writes rows as they come; use as a context. Each `write` is on disk as far as the system takes it.

    On leaving, the file takes its name, also after an error or Ctrl-C: what was sampled is kept. Raises OutputError where it
    cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._format = series_format(path)
        self._beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._encode = msgspec.json.Encoder().encode
        try:
            self._file: BinaryIO = self._beside.open("xb", buffering=0)
        except OSError as problem:
            raise unwritten(path, problem) from None

    def __enter__(self) -> SeriesWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, samples: Iterable[Sample]) -> None:
        """Append rows."""
        lines = [self._encode(sample) + b"\n" for sample in samples]
        data = memoryview(b"".join(lines))
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as problem:
            raise unwritten(self.path, problem) from None
        self.rows += len(lines)

    def close(self) -> None:
        """Give the file its name; once."""
        if self._file.closed:
            return
        try:
            os.fsync(self._file.fileno())
            self._file.close()
            if self._format == "parquet":
                _convert(self._beside, self.path)
            else:
                self._beside.replace(self.path)
        except OSError as problem:
            raise unwritten(self.path, problem) from None


def read_series(path: Path) -> Iterator[Sample]:
    """The rows of a series, streamed; its kind is told from its beginning, not from its name.

    The last line of a file that was cut is left out where it is not whole; whether a series was ended is told by its last row, a
    mark "end". Raises SourceError for what cannot be read, and InputError, naming line and column, for what is no series.
    """
    for sample in _rows(path):
        if not is_possible(sample):
            raise InputError(
                f"{shown(path)} has a row that cannot be reckoned with: {sample.name[:80]!a} {sample.value:g} at {sample.at_s:g} s",
                file=shown(path),
            )
        yield sample


def _rows(path: Path) -> Iterator[Sample]:
    regular_file_bytes(path)
    try:
        with path.open("rb") as file:
            if file.read(4) == _PARQUET_MAGIC:
                yield from _read_parquet(path)
                return
            file.seek(0)
            yield from read_series_lines(file, shown(path))
    except OSError as problem:
        raise SourceError(f"{shown(path)} cannot be read: {problem.strerror}", file=shown(path)) from None


def read_series_lines(file: BinaryIO, where: str) -> Iterator[Sample]:
    """The rows of JSON lines, as `read_series` reads them."""
    decoder = msgspec.json.Decoder(Sample)
    number = 0
    while line := file.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        whole = line.endswith(b"\n")
        if len(line) > LONGEST_LINE_BYTES:
            raise InputError(
                f"{where}:{number} is longer than the {LONGEST_LINE_BYTES:,} bytes a row of a series has",
                file=where,
                line=number,
            )
        if not line.strip():
            continue
        try:
            sample = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            if not whole and number > 1:
                return
            raise InputError(
                f"{where}:{number} is no row of a series: {problem}", file=where, line=number
            ) from None
        yield sample


def is_possible(sample: Sample) -> bool:
    """Whether its value and its time are such that they can be reckoned with."""
    return abs(sample.value) <= LARGEST and 0 <= sample.at_s <= LATEST_S


def looks_like_series(head: bytes) -> bool:
    """Whether a file that begins so is a series."""
    if head.startswith(_PARQUET_MAGIC):
        return True
    try:
        msgspec.json.decode(head.partition(b"\n")[0], type=Sample)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "a Parquet file needs pyarrow, which is not installed: pip install 'vramledger[parquet]'; JSON lines "
            "(.jsonl) need nothing",
            library="pyarrow",
        ) from None
    return pyarrow


def _schema(arrow: Any) -> Any:
    kinds = {
        "at_s": arrow.float64(),
        "value": arrow.float64(),
        "rank": arrow.int32(),
        "pid": arrow.int64(),
    }
    return arrow.schema(
        [
            arrow.field(
                name,
                kinds.get(name, arrow.string()),
                nullable=name in ("rank", "pid", "phase"),
                metadata={"description": _DESCRIPTIONS[name]},
            )
            for name in _COLUMNS
        ]
    )


def _convert(lines: Path, path: Path) -> None:
    """JSON lines into a Parquet file, a group of rows at a time; the lines go when it is whole."""
    arrow = _pyarrow()
    schema = _schema(arrow)
    beside = lines.with_suffix(".parquet-part")
    try:
        with lines.open("rb") as file, arrow.parquet.ParquetWriter(beside, schema) as writer:
            rows: list[Sample] = []
            for sample in read_series_lines(file, shown(lines)):
                rows.append(sample)
                if len(rows) >= ROWS_OF_A_GROUP:
                    writer.write_table(_table(arrow, schema, rows))
                    rows.clear()
            writer.write_table(_table(arrow, schema, rows))
        beside.replace(path)
        lines.unlink()
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _table(arrow: Any, schema: Any, rows: list[Sample]) -> Any:
    values = {name: [_plain(getattr(row, name)) for row in rows] for name in _COLUMNS}
    values["value"] = [float(value) for value in values["value"]]
    return arrow.table(values, schema=schema)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Phase) else value


def _read_parquet(path: Path) -> Iterator[Sample]:
    arrow = _pyarrow()
    where = shown(path)
    try:
        file = arrow.parquet.ParquetFile(path)
        missing = [
            name for name in ("at_s", "source", "name", "value") if name not in file.schema_arrow.names
        ]
        if missing:
            raise InputError(f"{where} is no series: it has no column {missing[0]}", file=where)
        there = [name for name in _COLUMNS if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=4_096, columns=there):
            for row in batch.to_pylist():
                yield _row(row, where)
    except (arrow.ArrowException, OSError, ValueError) as problem:
        reason = str(problem).partition("\n")[0][:200]
        raise InputError(
            f"{where} cannot be read as Parquet ({reason}); of a series that was cut the rows are in the hidden "
            ".part file beside it",
            file=where,
        ) from None


def _row(row: dict[str, Any], where: str) -> Sample:
    value = row["value"]
    if any(isinstance(row[name], float) and not isfinite(row[name]) for name in ("at_s", "value")):
        raise InputError(f"{where} has a row whose time or value is no number", file=where)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 and not _is_ratio(row["name"]):
        row["value"] = int(value)
    row = {name: item for name, item in row.items() if item is not None}
    try:
        return msgspec.convert(row, Sample)
    except msgspec.ValidationError as problem:
        raise InputError(f"{where} has a row that is no sample: {problem}", file=where) from None


def _is_ratio(name: object) -> bool:
    return isinstance(name, str) and name.endswith(("_ratio", "_s"))
