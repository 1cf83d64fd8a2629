"""How far long work is, on a terminal alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vramledger.report.text import safe

if TYPE_CHECKING:
    from vramledger.search.rows import Row

EVERY_S = 0.2
COMPILING = "simulating; the first time a version runs, it is compiled for half a minute"


class Watch:
    """One line on stderr that is written over, five times a second at most; where stderr is no terminal only lines that are to stay."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self._shown = 0
        self._visible = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write("")

    def tell(self, text: str) -> None:
        """Show `text`, if it is time to."""
        if self._is_time():
            self._write(safe(text)[:78])

    def begin(self, text: str) -> None:
        """Show `text` at once: before a part that tells nothing of how far it is."""
        if self._visible:
            self._write(safe(text)[:78])

    def keep(self, text: str) -> None:
        """A line that stays, above the one that is written over; also where stderr is a file."""
        if sys.stderr is None:
            return
        if self._shown:
            self._write("")
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{safe(text)}\n")
            sys.stderr.flush()

    def _is_time(self) -> bool:
        now = time.monotonic()
        if not self._visible or now - self._last < EVERY_S:
            return False
        self._last = now
        return True

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write("\r" + text.ljust(self._shown) + ("" if text else "\r"))
            sys.stderr.flush()
        self._shown = len(text)


class Progress(Watch):
    """How many plans of how many are done."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._done = 0

    def through(self, parts: Iterable[list[Row]]) -> Iterator[list[Row]]:
        """The same parts, counted as they pass."""
        for rows in parts:
            yield rows
            self._done += len(rows)
            self._tell()

    def _tell(self) -> None:
        rate = self._done / max(time.monotonic() - self._start, 1e-9)
        self.tell(f"{self._done:,} of {self._total:,} plans, {rate:,.0f} a second")


class Reading(Watch):
    """Bytes of files that are read; `total` is 0 where it is not known."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._done = 0

    def add(self, size_bytes: int) -> None:
        """So many bytes more were read."""
        self._done += size_bytes
        rate = self._done / max(time.monotonic() - self._start, 1e-9)
        of = f" of {self._total / 1e6:,.0f}" if self._total else ""
        self.tell(f"{self._done / 1e6:,.0f}{of} MB read, {rate / 1e6:,.0f} MB a second")


class Requests(Watch):
    """How many requests of a simulation have ended."""

    def done(self, requests: int) -> None:
        """So many have ended by now."""
        if self._is_time():
            rate = requests / max(time.monotonic() - self._start, 1e-9)
            self._write(f"{requests:,} requests simulated, {rate:,.0f} a second")


class Runs(Watch):
    """How many simulations of an open number are done, and what for."""

    def __init__(self) -> None:
        super().__init__()
        self._done = 0
        self._what = ""

    def about(self, what: str) -> None:
        """What the next ones are for."""
        self._what = what

    def add(self, runs: int) -> None:
        """So many more are done."""
        self._done += runs
        self.tell(f"{self._done:,} runs, {self._what}")
