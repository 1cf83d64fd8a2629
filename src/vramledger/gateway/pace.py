"""How fast room came back of late: when there may be some, for where nothing better is known. Pure."""

from __future__ import annotations

from collections import deque

from vramledger.units import ceil_div

NS_PER_MS = 1_000_000
LEAST = 2
"""Releases without which nothing is foretold."""


class _Clocked:
    """The last few releases, by a clock that only runs while it is told to."""

    def __init__(self, remembered: int) -> None:
        self._releases: deque[tuple[int, int]] = deque(maxlen=remembered)
        self._ran_ns = 0
        self._since_ns: int | None = None

    def turn(self, is_on: bool, now_ns: int) -> None:
        if is_on is (self._since_ns is not None):
            return
        self._ran_ns = self._at(now_ns)
        self._since_ns = now_ns if is_on else None

    def released(self, count: int, now_ns: int) -> None:
        if self._since_ns is not None:
            self._releases.append((self._at(now_ns), count))

    def wait_ms(self, count: int, now_ns: int) -> int | None:
        freed = sum(released for _, released in self._releases)
        if len(self._releases) < LEAST or freed <= 0:
            return None
        span_ns = max(1, self._at(now_ns) - self._releases[0][0])
        return ceil_div(max(1, count) * span_ns, freed * NS_PER_MS)

    def _at(self, now_ns: int) -> int:
        return self._ran_ns + (0 if self._since_ns is None else max(0, now_ns - self._since_ns))


class ReleasePace:
    """Releases of what is counted, blocks or places.

    What comes back while somebody waits tells what an engine can; before enough of that is known, what came back while anything ran at all. Time in
    which nothing runs tells nothing: after a quiet night the pace is that of the evening.
    """

    def __init__(self, remembered: int = 64) -> None:
        self._while_busy = _Clocked(remembered)
        self._while_waited = _Clocked(remembered)

    def at(self, now_ns: int, *, is_busy: bool, is_waited: bool) -> None:
        """From now on something runs, and somebody waits."""
        self._while_busy.turn(is_busy, now_ns)
        self._while_waited.turn(is_busy and is_waited, now_ns)

    def released(self, count: int, now_ns: int) -> None:
        """So much came back, of what ran until now."""
        for clocked in (self._while_busy, self._while_waited):
            clocked.released(max(0, count), now_ns)

    def wait_ms(self, count: int, now_ns: int) -> int | None:
        """Until so much has come back; None before there were two releases."""
        waited_ms = self._while_waited.wait_ms(count, now_ns)
        return waited_ms if waited_ms is not None else self._while_busy.wait_ms(count, now_ns)
