"""A pool's state at equally spaced instants of a run whose end is not known beforehand."""

from __future__ import annotations

from typing import NamedTuple

from vramledger.simulation.outcome import PoolSample

FIRST_SPACING_PS = 1_000_000_000


class PoolState(NamedTuple):
    """What a scheduling left: the fields of `PoolSample` but for time and replica."""

    used_blocks: int
    cached_blocks: int
    free_blocks: int
    running: int
    waiting: int
    logical_tokens: int
    physical_tokens: int


class Sampler:
    """Keeps the state at every multiple of a spacing that starts at 1 ms.

    An instant has the state that the last scheduling at or before it left. When `2 * samples` instants are
    kept every other one is dropped and the spacing doubles, so what is kept depends on the run's end alone.
    """

    def __init__(self, samples: int, first: PoolState) -> None:
        self._limit = 2 * samples
        self._spacing_ps = FIRST_SPACING_PS
        self._kept: list[PoolState] = []
        self._state = first

    def record(self, at_ps: int, state: PoolState) -> None:
        """A scheduling at `at_ps` left `state`; times never fall."""
        self._fill(at_ps)
        self._state = state

    def close(self, end_ps: int, replica: int) -> tuple[PoolSample, ...]:
        """The samples up to and at `end_ps`."""
        self._fill(end_ps + 1)
        return tuple(
            PoolSample(at_ps=place * self._spacing_ps, replica=replica, **state._asdict())
            for place, state in enumerate(self._kept)
        )

    def _fill(self, until_ps: int) -> None:
        while len(self._kept) * self._spacing_ps < until_ps:
            self._kept.append(self._state)
            if len(self._kept) == self._limit:
                del self._kept[1::2]
                self._spacing_ps *= 2
