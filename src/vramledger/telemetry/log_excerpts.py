"""Lines of logs with those around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from vramledger.telemetry.log_files import chunks_of
from vramledger.telemetry.log_prefixes import without_ansi
from vramledger.telemetry.log_tally import SourceTally

AROUND = 8
MOST_LINES = 2_000
LONGEST = 2_000
_MOST_HELD_BYTES = 8 * LONGEST


class Excerpt(Struct, frozen=True, kw_only=True):
    """Lines that follow each other; `first_line` is the number of the first, from 1."""

    file: str
    first_line: int
    lines: tuple[str, ...]


def excerpts(wanted: Iterable[tuple[str, int]], *, around: int = AROUND) -> list[Excerpt]:
    """The lines of these numbers with `around` before and after each, file by file; neighbours that meet are one excerpt. At most 2,000
    lines a file, each cut at 2,000 characters. What can be read only once (standard input, a pipe) is passed over.

    Raises SourceError for a file that cannot be read.
    """
    by_file: dict[str, set[int]] = defaultdict(set)
    for file, number in wanted:
        if number > 0 and Path(file).is_file():
            by_file[file].update(range(max(1, number - around), number + around + 1))
    found = []
    for file, numbers in sorted(by_file.items()):
        kept = set(sorted(numbers)[:MOST_LINES])
        found += list(_excerpts(file, kept))
    return found


def _excerpts(file: str, numbers: set[int]) -> Iterator[Excerpt]:
    first, lines = 0, list[str]()
    for number, text in _lines(file, numbers):
        if lines and number != first + len(lines):
            yield Excerpt(file=file, first_line=first, lines=tuple(lines))
            lines = []
        if not lines:
            first = number
        lines.append(text)
    if lines:
        yield Excerpt(file=file, first_line=first, lines=tuple(lines))


def _lines(file: str, numbers: set[int]) -> Iterator[tuple[int, str]]:
    """The lines of these numbers, in order. Holds one line, and of that only its beginning."""
    last = max(numbers)
    number, held = 1, b""
    for chunk in chunks_of(file, SourceTally(name=file)):
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            if number in numbers:
                yield number, _text(held + part)
            number, held = number + 1, b""
            if number > last:
                return
        held = (held + rest)[:_MOST_HELD_BYTES]
    if held and number in numbers:
        yield number, _text(held)


def _text(raw: bytes) -> str:
    return without_ansi(raw[:_MOST_HELD_BYTES].decode("utf-8", "replace")).rstrip("\r")[:LONGEST]
