"""How far long work is, on a terminal alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType

from vramledger.search.rows import Row

EVERY_S = 0.2


class Progress:
    """One line on stderr that is written over; nothing where stderr is not a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._start = self._last = time.monotonic()
        self._shown = 0
        self._visible = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write("")

    def through(self, parts: Iterable[list[Row]]) -> Iterator[list[Row]]:
        """The same parts, counted as they pass."""
        for rows in parts:
            yield rows
            self._done += len(rows)
            self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if not self._visible or now - self._last < EVERY_S:
            return
        self._last = now
        rate = self._done / max(now - self._start, 1e-9)
        self._write(f"{self._done:,} of {self._total:,} plans, {rate:,.0f} a second")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write("\r" + text.ljust(self._shown) + ("" if text else "\r"))
            sys.stderr.flush()
        self._shown = len(text)
