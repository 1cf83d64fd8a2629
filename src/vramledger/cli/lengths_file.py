"""Lengths of requests from a file: a trace as CSV or JSON lines, gzip or not."""

from __future__ import annotations

import csv
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from vramledger.cli.token_counts import MOST_TOKENS
from vramledger.errors import FlagError
from vramledger.models.sources.bounded_file import quote, read_whole, shown

LARGEST_BYTES = 2**28
MOST_REQUESTS = 5_000_000
PROMPT_NAMES = ("prompt", "prompt_tokens", "prompt_len", "input", "input_tokens", "input_length", "input_len",
                "num_prefill_tokens", "contexttokens")  # fmt: skip
OUTPUT_NAMES = ("output", "output_tokens", "output_length", "output_len", "completion_tokens", "num_decode_tokens",
                "generatedtokens")  # fmt: skip


def read_lengths(path: Path) -> Counter[tuple[int, int]]:
    """How many requests have which tokens of prompt and output.

    A CSV names its columns in its first line or has just the two; JSON lines are objects with such keys
    (PROMPT_NAMES, OUTPUT_NAMES, in any case). Raises SourceError for a file that cannot be read and FlagError for one
    that is too large or says something else, naming the line.
    """
    text = _text(path)
    lines = (line for line in text.splitlines() if line.strip())
    rows = _json_rows(lines, path) if text.lstrip()[:1] in ("{", "[") else _csv_rows(lines, path)
    counted: Counter[tuple[int, int]] = Counter()
    for number, (prompt, output) in enumerate(rows, start=1):
        if number > MOST_REQUESTS:
            raise _bad(path, f"has more than {MOST_REQUESTS:,} requests")
        counted[_tokens(prompt, path, number), _tokens(output, path, number)] += 1
    if not counted:
        raise _bad(path, "has no request")
    return counted


def _text(path: Path) -> str:
    data = read_whole(path, LARGEST_BYTES, FlagError)
    if data[:2] == b"\x1f\x8b":
        reader = zlib.decompressobj(wbits=31)
        try:
            data = reader.decompress(data, LARGEST_BYTES)
        except zlib.error:
            raise _bad(path, "is not whole gzip") from None
        if reader.unconsumed_tail or not reader.eof:
            raise _bad(path, f"is not whole gzip of at most {LARGEST_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _bad(path, "is not text in UTF-8") from None


def _csv_rows(lines: Iterable[str], path: Path) -> Iterator[tuple[object, object]]:
    rows = csv.reader(lines)
    try:
        first = next(rows, [])
        plain = [name.strip().lower() for name in first]
        if len(first) == 2 and all(cell.isdecimal() for cell in plain):
            columns = (0, 1)
            yield first[0], first[1]
        else:
            columns = (_column(plain, PROMPT_NAMES, path), _column(plain, OUTPUT_NAMES, path))
        for row in rows:
            yield tuple(row[index] if index < len(row) else "" for index in columns)  # type: ignore[misc]
    except csv.Error as problem:
        raise _bad(path, f"is not CSV: {problem}") from None


def _column(names: list[str], known: tuple[str, ...], path: Path) -> int:
    found = [index for index, name in enumerate(names) if name in known]
    if not found:
        raise _bad(
            path, f"has no column named {' or '.join(known[:4])}; its first line is {quote(','.join(names))}"
        )
    return found[0]


def _json_rows(lines: Iterable[str], path: Path) -> Iterator[tuple[object, object]]:
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise _bad(path, f"line {number} is not JSON") from None
        if not isinstance(row, Mapping):
            raise _bad(path, f"line {number} is not a JSON object")
        found = {str(name).lower(): value for name, value in row.items()}
        yield _value(found, PROMPT_NAMES, path, number), _value(found, OUTPUT_NAMES, path, number)


def _value(row: Mapping[str, object], names: tuple[str, ...], path: Path, number: int) -> object:
    for name in names:
        if name in row:
            return row[name]
    raise _bad(path, f"line {number} has no {' or '.join(names[:4])}")


def _tokens(value: object, path: Path, number: int) -> int:
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.isdecimal() and len(text) <= 12:
        text = int(text)
    if type(text) is not int or not 0 <= text <= MOST_TOKENS:
        raise _bad(path, f"request {number}: {quote(value)} is no number of tokens")
    return text


def _bad(path: Path, why: str) -> FlagError:
    return FlagError(f"--lengths {shown(path)} {why}", flag="lengths", value=shown(path))
