"""A workload as a file that reads back equal: Parquet, CSV or JSON lines, each with the header inside.

Parquet keeps the header in its schema's metadata, CSV in a first line that begins with "#", JSON lines in a first object.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from vramledger.errors import FlagError
from vramledger.models.sources.bounded_file import shown
from vramledger.whole_file import unwritten, whole_file
from vramledger.workload.columns import DEFAULTS, OPTIONAL, SCALARS, Ints, RequestColumns, Workload
from vramledger.workload.request import WorkloadHeader

METADATA_KEY = b"vramledger.workload"
CSV_MARK = "# vramledger workload "
JSON_MARK = "vramledger_workload"
VERSION = 1
_UNSAID = dict.fromkeys(OPTIONAL, -1) | DEFAULTS
ENDINGS = (".parquet", ".csv", ".jsonl", ".csv.gz", ".jsonl.gz")


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The header as it stands in a file."""

    vramledger_workload: int
    header: WorkloadHeader


def ending_of(path: Path) -> str:
    """The ending that decides the form. Raises FlagError for another."""
    name = path.name.lower()
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if name.endswith(ending):
            return ending
    raise FlagError(f"{shown(path)} ends in none of {', '.join(ENDINGS)}", flag="output", value=shown(path))


def write_workload(workload: Workload, path: str | Path) -> None:
    """Write all requests, a batch at a time; the file appears whole or not at all.

    Raises FlagError for a name that ends in nothing known, OutputError where it cannot be written.
    """
    target = Path(path)
    ending = ending_of(target)
    try:
        with whole_file(target) as file:
            if ending == ".parquet":
                _write_parquet(workload, file)
            elif ending.endswith(".gz"):
                with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=6) as packed:
                    _write_text(workload, packed, ending)
            else:
                _write_text(workload, file, ending)
    except (OSError, ValueError) as problem:
        raise unwritten(target, problem) from None


def _write_text(workload: Workload, file: Any, ending: str) -> None:
    if ending.startswith(".csv"):
        _write_csv(workload, file)
    else:
        _write_json_lines(workload, file)


def _mark(workload: Workload) -> bytes:
    return msgspec.json.encode(Written(vramledger_workload=VERSION, header=workload.header))


def _write_parquet(workload: Workload, file: BinaryIO) -> None:
    schema = pa.schema(
        [*(pa.field(name, pa.int64()) for name in SCALARS), pa.field("blocks", pa.list_(pa.int64()))],
        metadata={METADATA_KEY: _mark(workload)},
    )
    with pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in workload.batches():
            writer.write_batch(pa.record_batch([*_arrays(batch), _lists(batch)], schema=schema))


def _arrays(batch: RequestColumns) -> list[Any]:
    return [_array(name, getattr(batch, name)) for name in SCALARS]


def _array(name: str, values: Ints) -> Any:
    return pa.array(values, mask=values < 0) if name in OPTIONAL else pa.array(values)


def _lists(batch: RequestColumns) -> Any:
    return pa.LargeListArray.from_arrays(batch.block_offsets, batch.block_ids).cast(pa.list_(pa.int64()))


def _write_csv(workload: Workload, file: Any) -> None:
    file.write(CSV_MARK.encode() + _mark(workload) + b"\n")
    schema = pa.schema([*(pa.field(name, pa.int64()) for name in SCALARS), pa.field("blocks", pa.string())])
    # Arrow would write the names in quotes.
    file.write((",".join(schema.names) + "\n").encode())
    no_header = pa.csv.WriteOptions(include_header=False, quoting_style="none")
    for batch in workload.batches():
        table = pa.record_batch(
            [*_arrays(batch), pa.array(list(_block_texts(batch)), pa.string())], schema=schema
        )
        pa.csv.write_csv(table, file, no_header)


def _block_texts(batch: RequestColumns) -> Iterator[str | None]:
    offsets = batch.block_offsets.tolist()
    for start, stop in pairwise(offsets):
        yield " ".join(map(str, batch.block_ids[start:stop].tolist())) if stop > start else None


def _write_json_lines(workload: Workload, file: Any) -> None:
    file.write(_mark(workload) + b"\n")
    encode = msgspec.json.Encoder().encode
    for batch in workload.batches():
        offsets, ids = batch.block_offsets.tolist(), batch.block_ids
        columns = {name: getattr(batch, name).tolist() for name in SCALARS}
        lines = []
        for place in range(batch.rows):
            fields: dict[str, Any] = {
                name: values[place] for name, values in columns.items() if values[place] != _UNSAID.get(name)
            }
            if offsets[place + 1] > offsets[place]:
                fields["blocks"] = ids[offsets[place] : offsets[place + 1]].tolist()
            lines.append(encode(fields))
        if lines:
            file.write(b"\n".join(lines) + b"\n")
