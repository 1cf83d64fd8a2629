"""Requests as they come: cohorts that take turns in one stream of arrivals, and users who wait for their answers.

A stream is asked `until(end_ns)` as arrivals are. Parents are numbered within the stream; `first_needed` is the smallest number
that a later request may name as its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vramledger.workload.columnar.arrivals import Arrivals
from vramledger.workload.columnar.cohort_requests import CohortRequests
from vramledger.workload.columnar.pending import Pending
from vramledger.workload.columnar.rows import PLACE, Rows, joined_rows
from vramledger.workload.columnar.sessions import Sessions

Ints = npt.NDArray[np.int64]


class Stream(Protocol):
    """Requests in order of their (nominal) arrival."""

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""

    @property
    def first_needed(self) -> int:
        """No later request has a parent before this one of the stream."""

    def until(self, end_ns: int) -> Rows:
        """Requests that arrive before `end_ns` and were not told yet, in order."""


class OpenStream:
    """Cohorts that take turns by chance, as their shares say, in one stream of arrivals: of requests, or of an agent's sessions."""

    def __init__(
        self,
        arrivals: Arrivals,
        sources: Sequence[CohortRequests | Sessions],
        shares: Sequence[float],
        rng: np.random.Generator,
    ) -> None:
        self._arrivals = arrivals
        self._sources = sources
        self._places = np.cumsum(np.array(shares, dtype=np.float64) / sum(shares))
        self._rng = rng
        self._told = 0
        self._pending = Pending() if any(isinstance(source, Sessions) for source in sources) else None

    @property
    def done(self) -> bool:
        """See `Stream`."""
        return self._arrivals.done and (self._pending is None or self._pending.empty)

    @property
    def first_needed(self) -> int:
        """See `Stream`."""
        return self._told if self._pending is None else self._pending.first_needed(self._told)

    def until(self, end_ns: int) -> Rows:
        """See `Stream`."""
        times = self._arrivals.until(end_ns)
        turns = np.minimum(
            np.searchsorted(self._places, self._rng.random(len(times)), side="right"), len(self._sources) - 1
        )
        parts, places = [], []
        for number, source in enumerate(self._sources):
            here = np.flatnonzero(turns == number)
            if isinstance(source, Sessions):
                for time_ns in times[here].tolist():
                    self._held.add(source.start(time_ns)[0])
            elif len(here):
                parts.append(source.take(len(here)))
                places.append(here)
        rows = joined_rows(parts)
        if parts:
            order = np.concatenate(places)
            rows.values[:, PLACE["arrival_ns"]] = times[order]
            rows = rows.taken(np.argsort(order, kind="stable"))
        if self._pending is not None:
            rows = _with_sessions(rows, self._pending, end_ns, self._told)
        self._told += rows.size
        return rows

    @property
    def _held(self) -> Pending:
        assert self._pending is not None
        return self._pending


class AgentUsers:
    """Users who start an agent's next session when the last has ended; all start at once."""

    done = False

    def __init__(self, source: Sessions, users: int) -> None:
        self._source = source
        self._pending = Pending()
        self._next = [(0, user) for user in range(users)]
        self._told = 0
        self.rate_per_s = users * source.turns_of_each * 1e9 / max(source.nominal_ns, 1)
        """Requests a second at the nominal speed."""

    @property
    def first_needed(self) -> int:
        """See `Stream`."""
        return self._pending.first_needed(self._told)

    def until(self, end_ns: int) -> Rows:
        """See `Stream`."""
        tails = self._pending.tails
        while self._next[0][0] < end_ns:
            time_ns, user = heappop(self._next)
            session, ends_ns = self._source.start(time_ns)
            first_key = self._pending.add(session, after_key=tails.get(user, -1))
            tails[user] = first_key + session.size - 1
            heappush(self._next, (max(ends_ns, time_ns + 1), user))
        rows = _with_sessions(joined_rows(()), self._pending, end_ns, self._told)
        self._told += rows.size
        return rows


def _with_sessions(rows: Rows, pending: Pending, end_ns: int, told: int) -> Rows:
    """Requests and those of sessions that come before `end_ns`, in order, parents numbered from `told` on."""
    session, keys = pending.until(end_ns)
    every = joined_rows([rows, session])
    order = np.argsort(every.column("arrival_ns"), kind="stable")
    numbers = np.empty(every.size, dtype=np.int64)
    numbers[order] = np.arange(told, told + every.size, dtype=np.int64)
    parents = every.values[rows.size :, PLACE["parent"]]
    parents[:] = pending.numbered(keys, numbers[rows.size :], parents)
    return every.taken(order)


class ClosedStream:
    """Users who send the next request when the last has ended; all start at once.

    Users take turns, so request `i` follows request `i - users`. Its arrival is nominal, as if each request took the average time of
    a nominal service.
    """

    done = False

    def __init__(self, source: CohortRequests, users: int) -> None:
        self._source = source
        self._users = users
        self._gap_ns = max(source.nominal_ns // users, 1)
        self._told = 0

    @property
    def rate_per_s(self) -> float:
        """Requests a second at the nominal speed."""
        return 1e9 / self._gap_ns

    @property
    def first_needed(self) -> int:
        """See `Stream`."""
        return max(self._told - self._users, 0)

    def until(self, end_ns: int) -> Rows:
        """See `Stream`."""
        last = self._users + max(-(-end_ns // self._gap_ns) - 1, 0) if end_ns > 0 else 0
        numbers = np.arange(self._told, last, dtype=np.int64)
        if not len(numbers):
            return joined_rows(())
        rows = self._source.take(len(numbers))
        parents = numbers - self._users
        rows.values[:, PLACE["parent"]] = np.maximum(parents, -1)
        rows.values[:, PLACE["arrival_ns"]] = np.maximum(parents + 1, 0) * self._gap_ns
        self._told = last
        return rows
