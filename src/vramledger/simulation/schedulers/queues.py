"""Queues of waiting sequences."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from vramledger.simulation.schedulers.sequence import Sequence


class WaitingQueue(Protocol):
    """Sequences that wait for blocks, the next one first."""

    @property
    def first(self) -> Sequence: ...

    def append(self, sequence: Sequence) -> None:
        """A new one."""

    def put_back(self, sequence: Sequence) -> None:
        """One that was preempted, or passed over."""

    def take(self) -> Sequence:
        """The first one leaves."""

    def remove(self, sequence: Sequence) -> None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sequence]: ...


class ArrivalQueue:
    """First come, first served; who is put back stands in front."""

    def __init__(self) -> None:
        self._items: deque[Sequence] = deque()

    @property
    def first(self) -> Sequence:
        return self._items[0]

    def append(self, sequence: Sequence) -> None:
        self._items.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        self._items.appendleft(sequence)

    def take(self) -> Sequence:
        return self._items.popleft()

    def remove(self, sequence: Sequence) -> None:
        self._items.remove(sequence)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._items)


class PriorityQueue:
    """Smallest (priority, time sent, identity) first; who is put back finds its old place."""

    def __init__(self) -> None:
        self._items: list[Sequence] = []

    @property
    def first(self) -> Sequence:
        return self._items[0]

    def append(self, sequence: Sequence) -> None:
        insort(self._items, sequence, key=_rank)

    def put_back(self, sequence: Sequence) -> None:
        self.append(sequence)

    def take(self) -> Sequence:
        return self._items.pop(0)

    def remove(self, sequence: Sequence) -> None:
        self._items.remove(sequence)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._items)


def _rank(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.priority, sequence.sent_ps, sequence.identity
