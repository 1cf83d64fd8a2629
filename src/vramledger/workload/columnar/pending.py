"""Requests of sessions that have begun, until their time comes, and who their parents are in the stream that tells them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vramledger.workload.columnar.rows import Rows, joined_rows

Ints = npt.NDArray[np.int64]


class Pending:
    """Sessions are added as a whole, each request with the next key; requests leave it in order of time.

    `tails` are keys that a later session will follow. Parents are keys here; `numbered` turns them into numbers of the stream, once the stream knows which requests have which.
    """

    def __init__(self) -> None:
        self._rows = joined_rows(())
        self._keys = np.empty(0, dtype=np.int64)
        self._added: list[Rows] = []
        self._next_key = 0
        self.tails: dict[int, int] = {}
        self._numbers = np.empty(0, dtype=np.int64)
        self._first_key = 0

    def add(self, rows: Rows, *, after_key: int = -1) -> int:
        """A session, parents counted within it; its first request follows the request `after_key`. Gives its first key."""
        parents = rows.column("parent")
        parents[parents >= 0] += self._next_key
        parents[0] = after_key
        self._added.append(rows)
        self._next_key += rows.size
        return self._next_key - rows.size

    def until(self, end_ns: int) -> tuple[Rows, Ints]:
        """Requests before `end_ns`, in order, and their keys."""
        first = self._next_key - sum(rows.size for rows in self._added)
        held = joined_rows([self._rows, *self._added])
        keys = np.concatenate([self._keys, np.arange(first, self._next_key, dtype=np.int64)])
        self._added = []
        ready = held.column("arrival_ns") < end_ns
        now = np.flatnonzero(ready)
        order = now[np.lexsort((keys[now], held.column("arrival_ns")[now]))]
        later = np.flatnonzero(~ready)
        self._rows, self._keys = held.taken(later), keys[later]
        return held.taken(order), keys[order]

    def numbered(self, keys: Ints, numbers: Ints, parents: Ints) -> Ints:
        """Numbers of `parents` (keys), now that requests `keys` have `numbers`."""
        unknown = np.full(self._next_key - self._first_key - len(self._numbers), -1, dtype=np.int64)
        self._numbers = np.concatenate([self._numbers, unknown])
        self._numbers[keys - self._first_key] = numbers
        found = np.where(parents >= 0, self._numbers[np.maximum(parents - self._first_key, 0)], -1)
        kept = self._needed_key()
        self._numbers, self._first_key = self._numbers[kept - self._first_key :], kept
        return found

    def first_needed(self, told: int) -> int:
        """The smallest number that a request will name as its parent, `told` where there is none."""
        known = self._numbers[self._needed() - self._first_key]
        return int(known[known >= 0].min(initial=told))

    @property
    def empty(self) -> bool:
        """Whether every request has left."""
        return not self._rows.size and not self._added

    def _needed_key(self) -> int:
        return int(min(self._needed().min(initial=self._next_key), self._keys.min(initial=self._next_key)))

    def _needed(self) -> Ints:
        parents = self._rows.column("parent")
        tails = np.fromiter(self.tails.values(), dtype=np.int64, count=len(self.tails))
        return np.concatenate([parents[parents >= 0], tails])
