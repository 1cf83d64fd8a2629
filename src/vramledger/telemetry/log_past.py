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
_PARTS = re.compile(rb"[^\n\r\0]+")
_NOWHERE = Place(source="")


class Past:
    """The bytes of one source before any place in the block that is being read.

    What a line inherits depends on the 16 KiB before it and on nothing else, though what was found for an earlier line is used again.
    """

    def __init__(self, reference_s: float) -> None:
        self._reference_s = reference_s
        self.position = 0
        self._before = b""
        self._whole = True  # nothing came before `_before`
        self._block = b""
        self._start = 0  # of the block, in bytes kept
        self._found: dict[str | None, _Found] = {}
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
        for raw in self._lines_before(0, LOOK_BACK_BYTES):
            for line in reversed(self._read(raw)):
                if line.at_s is not None:
                    return line.at_s
        return None

    def _look_back(self, container: str | None, position: int) -> _Found:
        here = self._start + position
        earlier = self._found.get(container)
        reach = LOOK_BACK_BYTES if earlier is None else min(LOOK_BACK_BYTES, here - earlier.until)
        found = _Found(here)
        at = here
        for raw in self._lines_before(position, reach):
            at -= len(raw) + 1
            for line in reversed(self._read(raw)):
                if line.container == container:
                    found.take(line, at)
            if found.complete:
                break
        if earlier is not None and not found.complete:
            floor = here - LOOK_BACK_BYTES
            for known, place in ((earlier.identity, earlier.identity_at), (earlier.timed, earlier.timed_at)):
                if known is not None and place >= floor:
                    found.take(known, place)
        if len(self._found) > 1_000:
            self._found.clear()
        self._found[container] = found
        return found

    def _lines_before(self, position: int, reach: int) -> Iterator[bytes]:
        """Lines that begin within `reach` bytes before `position` of the block, the last first."""
        window = self._block[max(0, position - reach - 1) : position]
        short = reach + 1 - len(window)
        complete = False
        if short > 0:
            complete = self._whole and len(self._before) <= short
            window = self._before[-short:] + window
        lines = window.removesuffix(b"\n").split(b"\n") if window else []
        if not complete:
            lines = lines[1:]
        return reversed(lines)

    def _read(self, raw: bytes) -> list[LogLine]:
        raw = raw.rstrip(b"\r\0")
        return read_lines(
            raw[max(raw.rfind(b"\r"), raw.rfind(b"\0")) + 1 :], place=_NOWHERE, reference_s=self._reference_s
        )


class _Found:
    """The nearest line that names its printer and the nearest with a time, before `until`."""

    def __init__(self, until: int) -> None:
        self.until = until
        self.identity: LogLine | None = None
        self.identity_at = 0
        self.timed: LogLine | None = None
        self.timed_at = 0

    @property
    def complete(self) -> bool:
        return self.identity is not None and self.timed is not None

    def take(self, line: LogLine, at: int) -> None:
        if self.identity is None and line.own:
            self.identity, self.identity_at = line, at
        if self.timed is None and (line.at_s is not None or line.elapsed_s is not None):
            self.timed, self.timed_at = line, at
