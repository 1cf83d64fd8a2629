"""Who is put behind the others when not all that wait can be in time.

In order of arrival everyone is in time while there is room enough, and nobody once the queue is as long as the deadline.
Moore's rule ("An n job, one machine sequencing algorithm for minimizing the number of late jobs", Management Science 15, 1968) makes
as few late as can be: go through the queue in its order, and wherever one would be late, take out the one with the most work among those up
to it. Here the machine is the pool, work is blocks times how long they are held, and how much of it the pool takes on is learned.
"""

from __future__ import annotations

from bisect import bisect_left

_PRIOR_PS = 10_000_000_000_000
_MEMORY_PS = 60_000_000_000_000


class Rate:
    """Work that is let in per picosecond while somebody waits, in blocks: as many as the pool has until something was seen.

    The prior weighs 10 s, and beyond 60 s in which somebody waited everything counts half.
    """

    def __init__(self, blocks: int) -> None:
        self._work = blocks * _PRIOR_PS
        self._time_ps = _PRIOR_PS
        self._since_ps: int | None = None

    @property
    def blocks(self) -> float:
        return self._work / self._time_ps

    def at(self, now_ps: int, *, is_waited: bool) -> None:
        """Whether somebody waits from now on."""
        if self._since_ps is not None:
            self._time_ps += now_ps - self._since_ps
        self._since_ps = now_ps if is_waited else None
        if self._time_ps > _MEMORY_PS:
            self._work //= 2
            self._time_ps //= 2

    def let_in(self, work: int) -> None:
        """One that waited was let in."""
        self._work += work


class Triage:
    """Those that wait and are to be in time, in their order. Work is in block picoseconds."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int]] = []
        self._works: list[int] = []
        self._starts_ps: list[int] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, identity: int, *, place: int, work: int, latest_start_ps: int) -> None:
        """One that must be let in by `latest_start_ps`; of equal `place` the smaller identity is first."""
        at = bisect_left(self._rows, (place, identity))
        self._rows.insert(at, (place, identity))
        self._works.insert(at, work)
        self._starts_ps.insert(at, latest_start_ps)
        self._places[identity] = place

    def remove(self, identity: int) -> None:
        """It waits no longer, or behind the others; nothing for one that is not here."""
        place = self._places.pop(identity, None)
        if place is not None:
            at = bisect_left(self._rows, (place, identity))
            del self._rows[at], self._works[at], self._starts_ps[at]

    def take_out(self, now_ps: int, blocks: float) -> tuple[int, int] | None:
        """Takes out the one (and its work) for which the first that would be late is late, at a rate of `blocks`: the one with the most work
        up to it, or itself where it would be late without that one too. None where all will be in time."""
        before = 0
        for at, (work, start_ps) in enumerate(zip(self._works, self._starts_ps, strict=True)):
            late = before - (start_ps - now_ps) * blocks
            if late > 0:
                most = max(range(at, -1, -1), key=self._works.__getitem__)
                if self._works[most] < late:
                    most = at
                identity, most_work = self._rows[most][1], self._works[most]
                self.remove(identity)
                return identity, most_work
            before += work
        return None
