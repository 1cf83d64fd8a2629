"""What stood before a line: who printed it and when, where the line itself has no prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from vramledger.observation import Place
from vramledger.telemetry.log_lines import LogLine, read_lines

# How far back a line looks.
LOOK_BACK_BYTES = 16 * 1024
LINES_FOR_FIRST_TIME = 200
MOST_CONTAINERS = 4_000
_PARTS = re.compile(rb"[^\n\r\0]+")
_NOWHERE = Place(source="")


class Past:
    """The bytes of one source before any place in the block that is being read.

    What a line inherits depends on the 16 KiB before it and on nothing else.
    """

    def __init__(self, reference_s: float) -> None:
        self._reference_s = reference_s
        self.position = 0
        self._before = b""
        self._whole = True  # nothing came before `_before`
        self._block = b""
        self._start = 0  # of the block, in bytes kept
        self._found: dict[str | None, _Found] = {}
        self._seen = 0  # as far as lines were noted there
        self._lines_left = LINES_FOR_FIRST_TIME

    def enter(self, block: bytes) -> None:
        """A block of whole lines that follows those before."""
        self._block = block

    def leave(self) -> None:
        """The block has been read."""
        block = self._block
        self._start += len(block)
        keep = LOOK_BACK_BYTES + 1
        if len(block) < keep:
            block = self._before + block
            self._whole = self._whole and len(block) <= keep
        else:
            self._whole = self._whole and not self._before and len(block) == keep
        self._before = block[-keep:]
        self._block = b""

    def inherited(self, line: LogLine) -> LogLine:
        """`line`, at `position` of the block, with who printed it and when as far as it leaves that to those before."""
        has_time = line.at_s is not None or line.elapsed_s is not None
        if line.own and has_time:
            return line
        found = self._look_back(line.container, self.position)
        if found.timed is not None and not has_time:
            line = replace(line, at_s=found.timed.at_s, elapsed_s=found.timed.elapsed_s)
        if found.identity is not None and not line.own:
            line = replace(line, rank=found.identity.rank, process=found.identity.process)
        return line

    def first_time(self) -> float | None:
        """The first time printed in the block, looked for in the first 200 lines with text of the source."""
        if self._lines_left <= 0:
            return None
        for part in islice(_PARTS.finditer(self._block), self._lines_left):
            self._lines_left -= 1
            for line in self._read(part.group()):
                if line.at_s is not None:
                    return line.at_s
        return None

    def last_time(self) -> float | None:
        """The last time printed, looked for in the last 16 KiB."""
        for _, raw in reversed(list(self._lines_before(0, LOOK_BACK_BYTES))):
            for line in reversed(self._read(raw)):
                if line.at_s is not None:
                    return line.at_s
        return None

    def _look_back(self, container: str | None, position: int) -> _Found:
        """The nearest lines before `position`. Each line is read once, however many look back over it."""
        here = self._start + position
        for at, raw in self._lines_before(position, min(LOOK_BACK_BYTES, here - self._seen)):
            for line in self._read(raw):
                self._note(line, at)
        self._seen = here
        floor = here - LOOK_BACK_BYTES
        if len(self._found) > MOST_CONTAINERS:
            self._found = {name: one for name, one in self._found.items() if one.latest >= floor}
        known = self._found.get(container)
        return _Found() if known is None else known.since(floor)

    def _note(self, line: LogLine, at: int) -> None:
        has_time = line.at_s is not None or line.elapsed_s is not None
        if not line.own and not has_time:
            return
        found = self._found.setdefault(line.container, _Found())
        if line.own:
            found.identity, found.identity_at = line, at
        if has_time:
            found.timed, found.timed_at = line, at

    def _lines_before(self, position: int, reach: int) -> Iterator[tuple[int, bytes]]:
        """Lines that begin within `reach` bytes before `position` of the block, each with its place in bytes kept."""
        window = self._block[max(0, position - reach - 1) : position]
        short = reach + 1 - len(window)
        whole = False
        if short > 0:
            whole = self._whole and len(self._before) <= short
            window = self._before[-short:] + window
        first = self._start + position - len(window)
        for part in _PARTS.finditer(window):
            if part.start() or whole:
                yield first + part.start(), part.group()

    def _read(self, raw: bytes) -> list[LogLine]:
        return read_lines(raw, place=_NOWHERE, reference_s=self._reference_s)


class _Found:
    """Of one container the last line that names its printer and the last with a time, with their places."""

    def __init__(self) -> None:
        self.identity: LogLine | None = None
        self.identity_at = 0
        self.timed: LogLine | None = None
        self.timed_at = 0

    @property
    def latest(self) -> int:
        return max(self.identity_at, self.timed_at)

    def since(self, floor: int) -> _Found:
        """Those of them that are not before `floor`."""
        found = _Found()
        if self.identity_at >= floor:
            found.identity = self.identity
        if self.timed_at >= floor:
            found.timed = self.timed
        return found
