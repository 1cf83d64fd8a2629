"""By how much an event loop is behind: a timer that goes off every few milliseconds, and how late it does."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from itertools import accumulate

from vramledger.simulation.summary import PERCENTS, Quantiles

EVERY_S = 0.005
_STEP = 1.1
_LEAST_NS = 1_000
_BOUNDS = tuple(int(_LEAST_NS * _STEP**power) for power in range(220))


class Lateness:
    """Counts by size, so that an hour takes the room of a second. Percentiles are up to a tenth too large."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum_ns = 0
        self._most_ns = 0

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            due_ns = time.monotonic_ns() + round(EVERY_S * 1e9)
            await asyncio.sleep(EVERY_S)
            self.add(max(time.monotonic_ns() - due_ns, 0))

    def add(self, late_ns: int) -> None:
        self._counts[bisect_left(_BOUNDS, late_ns)] += 1
        self._sum_ns += late_ns
        self._most_ns = max(self._most_ns, late_ns)

    def quantiles(self) -> Quantiles:
        """In nanoseconds."""
        count = sum(self._counts)
        if not count:
            return Quantiles()
        reach = list(accumulate(self._counts))

        def at(percent: int) -> int:
            place = bisect_left(reach, -(-percent * count // 100))
            return min(_BOUNDS[place], self._most_ns) if place < len(_BOUNDS) else self._most_ns

        p50, p90, p95, p99 = (at(percent) for percent in PERCENTS)
        return Quantiles(
            count=count, mean=self._sum_ns / count, p50=p50, p90=p90, p95=p95, p99=p99, max=self._most_ns, relative_error=_STEP - 1
        )  # fmt: skip
