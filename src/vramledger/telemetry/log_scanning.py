"""Chunks of bytes cut into lines, of which only those that may say something are looked at."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence

from vramledger.engines import find_log
from vramledger.engines.log_pattern import LinePattern
from vramledger.observation import Observation
from vramledger.telemetry.log_anchors import AnchorFinder, Span, anchor_finder
from vramledger.telemetry.log_joining import Joiner
from vramledger.telemetry.log_lines import LONGEST_LINE_BYTES
from vramledger.telemetry.log_matching import Matcher, Signs, Table
from vramledger.telemetry.log_past import Past
from vramledger.telemetry.log_pieces import PIECE_ANCHORS, PIECE_BYTES
from vramledger.telemetry.log_tally import SourceTally

# What a log in service repeats (steps, requests) is read whole up to here; then in windows, and before all else that is said.
WHOLE_BYTES = 8 * 2**20
WINDOW_EVERY_BYTES = 256 * 1024
WINDOW_BYTES = 2048
BEFORE_BYTES = 2048
_MARKS = (b"", b"\n", b"\r", b"\0")
_PARTS = re.compile(rb"[^\r\0]+")


class Scanner:
    """One reading of a log over all its sources.

    A line ends at a newline; carriage returns (progress bars) and NULs (holes of truncated files) divide it further. Of
    parts longer than 128 KiB the rest is dropped and counted.
    """

    def __init__(
        self, patterns: tuple[LinePattern, ...], signs: Signs, engines: list[str], *, whole: bool = False
    ) -> None:
        self.signs = signs
        self._whole = whole
        self._engines = engines
        self._patterns = patterns
        self._matcher = Matcher(())
        self._finder = anchor_finder(())
        self._rare: AnchorFinder | None = None
        self._renew()
        self.begin(SourceTally(name=""), 0.0)

    def add_engines(self, names: Sequence[str]) -> None:
        """Read by these engines' tables too from here on."""
        if names:
            self._engines.extend(names)
            self._renew()
            self._joiner.matcher = self._matcher

    def begin(self, tally: SourceTally, reference_s: float) -> None:
        """The next source."""
        self._tally = tally
        self._past = Past(reference_s)
        self._joiner = Joiner(self._matcher, self._past, reference_s=reference_s, tally=tally)
        self._carry = self._last = b""
        self._dropping = False
        self._offset = 0  # of what was not read yet, in the source
        self._number = 1  # of the line that it begins in

    def feed(self, chunk: bytes) -> Iterator[Observation]:
        """Observations of the lines that end in this chunk; an empty one stands for a pause of the printer."""
        if not chunk:
            self._joiner.flush()
            yield from self._joiner.ready()
            return
        self._last = chunk[-1:]
        if self._dropping:
            end = _end_after(chunk, 0)
            self._drop(end)
            if end == len(chunk):
                return
            self._dropping = False
            chunk = chunk[end:]
        data = self._carry + chunk if self._carry else chunk
        cut = data.rfind(b"\n") + 1
        if len(data) - cut > LONGEST_LINE_BYTES:
            cut = _start_before(data, len(data))
        self._carry = data[cut:]
        if cut:
            yield from self._block(data[:cut])
        if len(self._carry) > LONGEST_LINE_BYTES:
            data, self._carry = self._carry, b""
            yield from self._block(data)
            self._dropping = True

    def end(self) -> Iterator[Observation]:
        """What the source's last, unfinished line says, and what waited for more."""
        self._tally.ends_in_line = self._last not in _MARKS
        if self._carry:
            data, self._carry = self._carry, b""
            yield from self._block(data)
        self._joiner.flush()
        yield from self._joiner.ready()
        self._tally.lines += self._number - (1 if self._last in (b"", b"\n") else 0)
        until_s = self._past.last_time()
        self._tally.until_s = self._tally.until_s if until_s is None else until_s

    def _renew(self) -> None:
        tables: list[Table] = [
            (name, log.PATTERNS) for name in self._engines if (log := find_log(name)) is not None
        ]
        if self._patterns:
            tables.append((None, self._patterns))
        self._matcher = Matcher(tables)
        self._finder = self._finder_of(self._matcher.anchors())
        self._rare = None  # few logs are long enough to need it

    def _finder_of(self, anchors: Sequence[str]) -> AnchorFinder:
        return anchor_finder((*anchors, *self.signs.anchors(), *PIECE_ANCHORS))

    def _sampled(self, data: bytes, offset_bytes: int) -> list[Span]:
        """Lines with anchors that are not of steps and requests alone, and all lines of windows and shortly before those."""
        self._tally.sampled = (
            f"past {WHOLE_BYTES // 2**20} MiB lines of steps and requests are read in windows of "
            f"{WINDOW_BYTES // 1024} of every {WINDOW_EVERY_BYTES // 1024} KiB, and before whatever else is said"
        )
        if self._rare is None:
            self._rare = self._finder_of(self._matcher.rare_anchors())
        spans = set(self._rare.exact(data))
        looked = [(max(begin - BEFORE_BYTES, 0), begin) for begin, _ in spans]
        for begin, end in (*windows(offset_bytes, len(data)), *looked):
            start = data.rfind(b"\n", 0, begin) + 1
            until = data.find(b"\n", end)
            until = len(data) if until < 0 else until
            spans |= {(one + start, other + start) for one, other in self._finder.spans(data[start:until])}
        return sorted(spans)

    def _drop(self, count: int) -> None:
        self._tally.dropped_bytes += count
        self._offset += count

    def _block(self, data: bytes) -> Iterator[Observation]:
        """Whole lines, the too long parts of them cut."""
        start = 0
        for begin, end in long_parts(data, LONGEST_LINE_BYTES):
            kept = begin + LONGEST_LINE_BYTES
            yield from self._lines(data[start:kept])
            self._tally.long_lines += 1
            self._drop(end - kept)
            start = end
        if start < len(data):
            yield from self._lines(data[start:])

    def _lines(self, data: bytes) -> Iterator[Observation]:
        _count_unreadable(data, self._tally)
        self._past.enter(data)
        if self._tally.from_s is None:
            self._tally.from_s = self._past.first_time()
        position = 0
        again = True
        while again:
            again = False
            for begin, end in self._promising(data, position):
                if self._joiner.wants_more:
                    position = yield from self._wanted(data, position, begin)
                self._count_to(data, position, begin)
                position = begin
                found = self.signs.take(data[begin:end]) if self.signs else []
                self.add_engines(found)
                yield from self._line(data, begin, end)
                self._count_to(data, begin, end + 1)
                position = end + 1
                if found:
                    again = True
                    break
        if self._joiner.wants_more:
            position = yield from self._wanted(data, position, len(data))
        self._count_to(data, position, len(data))
        self._offset += len(data)
        self._past.leave()

    def _wanted(self, data: bytes, position: int, limit: int) -> Generator[Observation, None, int]:
        """Lines from `position` on as long as they are wanted; where that ended."""
        while position < limit and self._joiner.wants_more:
            end = data.find(b"\n", position)
            end = len(data) if end < 0 else end
            yield from self._line(data, position, end)
            self._count_to(data, position, end + 1)
            position = end + 1
        return min(position, limit)

    def _line(self, data: bytes, begin: int, end: int) -> Iterator[Observation]:
        for part in _PARTS.finditer(data, begin, end):
            start = part.start()
            self._past.position = start
            self._joiner.feed(part.group(), offset_bytes=self._offset + start, number=self._number)
        yield from self._joiner.ready()

    def _count_to(self, data: bytes, position: int, until: int) -> None:
        self._number += data.count(b"\n", position, until)

    def _promising(self, data: bytes, position: int) -> list[Span]:
        """Lines from `position` on that may hold an anchor or go on in the next."""
        rest = data[position:] if position else data
        if self._whole or self._offset < WHOLE_BYTES:
            spans = self._finder.spans(rest)
        else:
            spans = self._sampled(rest, self._offset + position)
        long = list(long_parts(rest, PIECE_BYTES))
        if long:
            spans = sorted({*spans, *(_line_around(rest, begin) for begin, _ in long)})
        return [(begin + position, end + position) for begin, end in spans] if position else spans


def windows(offset_bytes: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Beginnings and ends, within `size_bytes` that begin at an offset of the source, of what is looked at whole."""
    first = -offset_bytes % WINDOW_EVERY_BYTES
    if first > WINDOW_EVERY_BYTES - WINDOW_BYTES:
        yield 0, first - (WINDOW_EVERY_BYTES - WINDOW_BYTES)
    for begin in range(first, size_bytes, WINDOW_EVERY_BYTES):
        yield begin, begin + WINDOW_BYTES


def _line_around(data: bytes, position: int) -> Span:
    end = data.find(b"\n", position)
    return data.rfind(b"\n", 0, position) + 1, len(data) if end < 0 else end


def long_parts(data: bytes, longest: int) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of parts of lines that are longer than `longest` bytes."""
    half = longest // 2
    passed = 0
    for probe in range(0, len(data) - half + 1, half):
        if probe >= passed and not _has_end(data, probe, probe + half):
            begin, end = _start_before(data, probe), _end_after(data, probe)
            passed = end
            if end - begin > longest:
                yield begin, end


def _has_end(data: bytes, begin: int, end: int) -> bool:
    return any(data.find(mark, begin, end) >= 0 for mark in (b"\n", b"\r", b"\0"))


def _start_before(data: bytes, position: int) -> int:
    """Where the part of a line begins that `position` is in."""
    return max(data.rfind(mark, 0, position) for mark in (b"\n", b"\r", b"\0")) + 1


def _end_after(data: bytes, position: int) -> int:
    """Where it ends: the place of what ends it, or the end of the data."""
    return min(
        (found for mark in (b"\n", b"\r", b"\0") if (found := data.find(mark, position)) >= 0),
        default=len(data),
    )


def _count_unreadable(data: bytes, tally: SourceTally) -> None:
    if data.isascii() and b"\0" not in data:
        return
    tally.nul_bytes += data.count(b"\0")
    try:
        data.decode()
    except UnicodeDecodeError:
        tally.undecodable_lines += sum(map(_undecodable, data.split(b"\n")))


def _undecodable(line: bytes) -> bool:
    if line.isascii():
        return False
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False
