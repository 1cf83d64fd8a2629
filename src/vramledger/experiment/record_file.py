"""Records of a stage in a Parquet file, a row a request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import msgspec

from vramledger.errors import InputError, shorter
from vramledger.experiment.result import Stage
from vramledger.experiment.served import Served
from vramledger.models.sources.bounded_file import path_of, regular_file_bytes, shown
from vramledger.simulation.settings import Slo
from vramledger.whole_file import unwritten, whole_file

LARGEST_BYTES = 1 << 30
MOST_ROWS = 5_000_000
LONGEST_TEXT = 1024
_GROUP = 65_536


def write_records(path: str | Path, served: Iterable[Served]) -> None:
    """All rows, in their order; the file is there whole or not at all.

    Raises InputError without pyarrow, OutputError where it cannot be written.
    """
    arrow = _pyarrow()
    path = Path(path)
    rows = list(served)
    schema = _schema(arrow)
    columns = {name: [getattr(one, name) for one in rows] for name in schema.names}
    try:
        with whole_file(path) as file:
            arrow.parquet.write_table(
                arrow.table(columns, schema=schema), file, row_group_size=_GROUP, compression="zstd"
            )
    except (OSError, ValueError) as problem:
        raise unwritten(path, problem) from None


def read_records(path: str | Path) -> tuple[Served, ...]:
    """The rows of a file. Columns that a later version added are passed over.

    Raises SourceError where it cannot be read, InputError where it holds no records or more than MOST_ROWS, and without pyarrow.
    """
    arrow = _pyarrow()
    path = path_of(str(path))
    where = shown(path)
    if regular_file_bytes(path) > LARGEST_BYTES:
        raise InputError(f"{where} has more than {LARGEST_BYTES:,} bytes", file=where)
    rows: list[Served] = []
    try:
        with arrow.parquet.ParquetFile(path) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise InputError(f"{where} has more than {MOST_ROWS:,} rows", file=where)
            known = [name for name in Served.__struct_fields__ if name in file.schema_arrow.names]
            for name in Served.__struct_fields__:
                if name not in known and name in _REQUIRED:
                    raise InputError(
                        f"{where} holds no records: it has no column {name}", file=where, column=name
                    )
            for batch in file.iter_batches(batch_size=4096, columns=known):
                rows.extend(_row(row, where) for row in batch.to_pylist())
                if len(rows) > MOST_ROWS:
                    raise InputError(f"{where} has more than {MOST_ROWS:,} rows", file=where)
    except (arrow.ArrowException, OSError, ValueError, OverflowError, MemoryError) as problem:
        reason = str(problem).partition("\n")[0][:200]
        raise InputError(f"{where} cannot be read as Parquet ({reason})", file=where) from None
    return tuple(rows)


def records_of(folder: Path, stage: Stage, slo: Slo) -> tuple[Served, ...]:
    """The rows of a stage of the experiment in `folder`. Raises InputError also where they are not those that it was summed up from: a file
    that was changed, or is another stage's, tells nothing of it."""
    path = folder / stage.records
    if Path(stage.records) != Path("records") / Path(stage.records).name or "\0" in stage.records:
        raise InputError(
            f"{shown(folder)}: stage {shorter(stage.name)} names no file of records", file=shown(folder)
        )
    rows = read_records(path)
    told = (stage.measured.offered, stage.measured.good)
    found = (len(rows), sum(row.is_good(slo) for row in rows))
    if found != told:
        raise InputError(
            f"{shown(path)} has {found[0]:,} requests, {found[1]:,} within the aims; stage {shorter(stage.name)} had {told[0]:,}, {told[1]:,} "
            "within them: it is not the file that was written. Begin anew with --fresh, which keeps what is there",
            file=shown(path),
        )
    return rows


def _row(row: dict[str, Any], where: str) -> Served:
    try:
        served = msgspec.convert({name: value for name, value in row.items() if value is not None}, Served)
    except msgspec.ValidationError as problem:
        raise InputError(f"{where} has a row that is no record: {problem}", file=where) from None
    if any(len(getattr(served, name)) > LONGEST_TEXT for name in _TEXTS):
        raise InputError(f"{where} has a row with a text of more than {LONGEST_TEXT} characters", file=where)
    return served


def _kinds() -> dict[str, tuple[type, bool]]:
    """Of each field its type, and whether it may be None."""
    hints = get_type_hints(Served)
    kinds = {}
    for name in Served.__struct_fields__:
        hint = hints[name]
        parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        (kind,) = (part for part in parts if part is not type(None))
        kinds[name] = (kind, type(None) in parts)
    return kinds


_KINDS = _kinds()
_TEXTS = tuple(name for name, (kind, _) in _KINDS.items() if kind is str)
_REQUIRED = frozenset(
    info.name for info in msgspec.structs.fields(Served) if info.default is msgspec.NODEFAULT
)


def _schema(arrow: Any) -> Any:
    types = {int: arrow.int64(), str: arrow.string(), bool: arrow.bool_()}
    return arrow.schema(
        [arrow.field(name, types[kind], nullable=optional) for name, (kind, optional) in _KINDS.items()]
    )


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "records of requests need pyarrow, which is not installed: pip install 'vramledger[experiment]'",
            library="pyarrow",
        ) from None
    return pyarrow
