"""Lines of JSON, decoded by type, and the pieces that traces with block ids make of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.numbers import scaled_floats
from vramledger.workload.columnar.piece import LATEST_NS, MOST_BLOCK_IDS, MOST_TOKENS, Piece, kept
from vramledger.workload.columnar.source import Source
from vramledger.workload.columns import BATCH, Ints, columns_with

T = TypeVar("T")
Tokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
BlockId = Annotated[int, Meta(ge=0, lt=2**62)]
BOM = b"\xef\xbb\xbf"


def decoded(
    source: Source, found: Findings, kind: type[T], *, skip_first: bool = False
) -> Iterator[tuple[int, T]]:
    """(line number, object) of every line that is not blank; lines that are not of `kind` are bad rows."""
    decode = msgspec.json.Decoder(kind).decode
    for first, lines in source.line_blocks():
        for number, text in enumerate(lines, start=first):
            line = text.removeprefix(BOM) if number == 1 else text
            if not line or line.isspace() or (skip_first and number == 1):
                continue
            try:
                yield number, decode(line)
            except msgspec.ValidationError as problem:
                found.bad(number, _words(problem))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
                found.bad(number, f"is no whole JSON object ({_words(problem)})")


def _words(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200]


def in_batches(items: Iterator[tuple[int, T]], ids: Any = None) -> Iterator[tuple[Ints, list[T]]]:
    """(line numbers, objects) of so many at a time as a batch may hold; `ids(object)` is what it holds of block ids."""
    numbers: list[int] = []
    batch: list[T] = []
    weight = 0
    for number, item in items:
        numbers.append(number)
        batch.append(item)
        weight += len(ids(item)) if ids is not None else 0
        if len(batch) >= BATCH or weight >= MOST_BLOCK_IDS:
            yield np.array(numbers, dtype=np.int64), batch
            numbers, batch, weight = [], [], 0
    if batch:
        yield np.array(numbers, dtype=np.int64), batch


def checked_piece(
    found: Findings,
    rows: Ints,
    *,
    arrival_ns: Any,
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
    blocks: Sequence[Sequence[int]] | None = None,
    ids: list[object] | None = None,
    parent_ids: list[object] | None = None,
    ends_ns: Ints | None = None,
    **more: Any,
) -> Piece:
    """Rows that a format's own types have let through, without prompts of no tokens and of more blocks than tokens."""
    prompts = np.array(prompt_tokens, dtype=np.int64)
    outputs = np.array(output_tokens, dtype=np.int64)
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    flat = np.empty(0, dtype=np.int64)
    if blocks is not None:
        np.cumsum(np.fromiter(map(len, blocks), dtype=np.int64, count=len(blocks)), out=offsets[1:])
        flat = np.fromiter(chain.from_iterable(blocks), dtype=np.int64, count=int(offsets[-1]))
    good = prompts > 0
    for place in np.flatnonzero(~good).tolist():
        found.bad(int(rows[place]), "has a prompt of no tokens")
    if blocks is not None and found.block_tokens:
        over = good & (np.diff(offsets) > -(-prompts // found.block_tokens))
        for place in np.flatnonzero(over).tolist():
            found.bad(
                int(rows[place]),
                f"names more blocks of {found.block_tokens} tokens than its prompt has",
                value=len(blocks[place]),
            )
        good &= ~over
    nothing = (outputs == 0) & good
    if nothing.any():
        found.count("with an output of no tokens, counted as 1: engines make one", rows[nothing].tolist())
    columns = columns_with(
        block_offsets=offsets,
        block_ids=flat,
        arrival_ns=arrival_ns,
        prompt_tokens=prompts,
        output_tokens=np.maximum(outputs, 1),
        **more,
    )
    return kept(Piece(columns, rows, ids=ids, parent_ids=parent_ids, ends_ns=ends_ns), good)


def serial_ns(values: Sequence[int | float], unit_ns: int, rows: Ints, found: Findings) -> Ints:
    """Times of JSON in nanoseconds: whole numbers exactly, fractions rounded.

    Raises InputError for one that is too far away in its unit.
    """
    most = LATEST_NS // unit_ns
    for place, value in enumerate(values):
        if value > most:
            found.refuse(int(rows[place]), "has a time that is too far away for its unit", value=value)
    if all(type(value) is int for value in values):
        return np.array([value * unit_ns for value in values], dtype=np.int64)
    return scaled_floats(np.array(values, dtype=np.float64), unit_ns)
