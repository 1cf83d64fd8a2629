"""How fast blocks came back of late: when there may be room, for where nothing better is known."""

from __future__ import annotations

from collections import deque

from vramledger.units import ceil_div

NS_PER_MS = 1_000_000


class ReleasePace:
    """The last few releases, each with the blocks that came back."""

    def __init__(self, remembered: int = 64) -> None:
        self._releases: deque[tuple[int, int]] = deque(maxlen=remembered)

    def released(self, blocks: int, now_ns: int) -> None:
        self._releases.append((now_ns, max(0, blocks)))

    def wait_ms(self, blocks: int, now_ns: int) -> int | None:
        """Until so many have come back; None before there were two releases."""
        if len(self._releases) < 2:
            return None
        freed = sum(blocks for _, blocks in self._releases)
        span_ns = max(1, now_ns - self._releases[0][0])
        return None if freed <= 0 else ceil_div(max(1, blocks) * span_ns, freed * NS_PER_MS)
