"""From lines in their order to observations in their order, joining what a message of several lines says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vramledger.observation import Observation, Place, Value
from vramledger.telemetry.log_lines import LogLine, read_lines
from vramledger.telemetry.log_matching import Matcher, Reading, Table, lines_needed, readings
from vramledger.telemetry.log_past import Past
from vramledger.telemetry.log_pieces import MOST_BETWEEN, OpenLine, may_go_on, piece_of
from vramledger.telemetry.log_tally import SourceTally

LONGEST_TEXT = 4_000
# How many lines of others may stand between two lines of one message.
MOST_INTERLEAVED = 200


class _Message:
    """A line that patterns want further lines of, until they are there; without `candidates` left it is done."""

    def __init__(self, line: LogLine, candidates: tuple[Table, ...], needed: int) -> None:
        self.line = line
        self.candidates = candidates
        self.texts = [line.text]
        self.missing = needed
        self.waited = 0
        self._speaker: tuple[str | None, str | None, int | None] = line.printer

    def offer(self, line: LogLine) -> None:
        """Take a later line if the same printer said it."""
        self.waited += 1
        if line.container == self.line.container:
            if line.own:
                self._speaker = line.printer
            if self._speaker == self.line.printer:
                self.texts.append(line.text)
                self.missing -= 1
        if self.waited >= MOST_INTERLEAVED:
            self.missing = 0


class Joiner:
    """Takes lines one by one and gives observations. `wants_more` tells that the next lines are needed whatever they hold."""

    def __init__(self, matcher: Matcher, past: Past, *, reference_s: float, tally: SourceTally) -> None:
        self.matcher = matcher
        self._past = past
        self._reference_s = reference_s
        self._tally = tally
        self._waiting: deque[_Message | Observation] = deque()
        self._messages: list[_Message] = []
        self._open: dict[str, OpenLine] = {}

    @property
    def wants_more(self) -> bool:
        return bool(self._messages or self._open)

    def feed(self, raw: bytes, *, offset_bytes: int, number: int) -> None:
        """One line without its end, at its place, which is also where `past` stands."""
        for whole, offset, line_number in self._whole_lines(raw, offset_bytes, number):
            self._read(whole, offset, line_number)

    def flush(self) -> None:
        """Nothing more will come of what is open."""
        for stream in list(self._open):
            self._read(*self._closed(stream))
        for message in self._messages:
            message.missing = 0
        self._messages.clear()

    def ready(self) -> Iterator[Observation]:
        """Observations that wait for nothing before them."""
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, _Message):
                if first.missing > 0:
                    return
                self._waiting.popleft()
                found = readings(first.candidates, first.texts)
                self._waiting.extendleft(reversed(observations(first.line, found, first.texts)))
            else:
                self._waiting.popleft()
                yield first

    def _whole_lines(self, raw: bytes, offset: int, number: int) -> list[tuple[bytes, int, int]]:
        if not self._open and not may_go_on(raw):
            return [(raw, offset, number)]
        out = []
        piece = piece_of(raw)
        opened = self._open.get(piece.stream) if piece is not None else None
        if piece is None or (opened is None and not piece.goes_on):
            out.append((raw, offset, number))
        elif opened is None:
            self._open[piece.stream] = OpenLine(raw, piece, offset, number)
        else:
            self._tally.dropped_bytes += opened.add(piece)
            opened.waited = -1
            if not piece.goes_on:
                out.append(self._closed(piece.stream))
        for stream, line in list(self._open.items()):
            line.waited += 1
            if line.waited > MOST_BETWEEN:
                out.append(self._closed(stream))
        return out

    def _closed(self, stream: str) -> tuple[bytes, int, int]:
        line = self._open.pop(stream)
        return line.raw(), line.offset_bytes, line.number

    def _read(self, raw: bytes, offset: int, number: int) -> None:
        place = Place(source=self._tally.name, line=number, offset_bytes=offset)
        for line in read_lines(raw, place=place, reference_s=self._reference_s):
            self._take(line)

    def _take(self, line: LogLine) -> None:
        if self._messages:
            for message in self._messages:
                message.offer(line)
            self._messages = [message for message in self._messages if message.missing > 0]
        candidates = self.matcher.candidates(line.text)
        if not candidates:
            return
        needed = lines_needed(candidates)
        if needed:
            # A line that goes on what was printed before has that line's printer, and so have those after it.
            message = _Message(self._past.inherited(line), candidates, needed)
            self._messages.append(message)
            self._waiting.append(message)
            return
        found = list(readings(candidates, [line.text]))
        if found:
            self._waiting.extend(observations(self._past.inherited(line), found, [line.text]))


def observations(line: LogLine, found: Iterable[Reading], texts: Sequence[str]) -> list[Observation]:
    """What a line says, once for each table that reads it."""
    return [
        Observation(
            event=pattern.event,
            values=_with_elapsed(values, line.elapsed_s),
            place=line.place,
            text="\n".join(texts[: 1 + pattern.following])[:LONGEST_TEXT],
            engine=engine,
            at_s=line.at_s,
            rank=line.rank,
            process=line.process,
            container=line.container,
        )
        for engine, pattern, values in found
    ]


def _with_elapsed(values: Mapping[str, Value], elapsed_s: float | None) -> Mapping[str, Value]:
    return values if elapsed_s is None else {**values, "elapsed_s": elapsed_s}
