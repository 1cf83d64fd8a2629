"""In which order blocks that nobody holds are given out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol


class ReuseOrder(Protocol):
    """The blocks nobody holds. Blocks come back in the order in which they should be lost: a sequence's tail first."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]:
        """Every block in it, the next to be given out first."""
        ...

    def take(self) -> int:
        """The next block to be given out; its content, if it has any, is lost."""
        ...

    def withdraw(self, block: int) -> None:
        """A block's content was hit: it is held again and keeps it."""
        ...

    def give_back(self, blocks: Sequence[int]) -> None:
        """Blocks that hold findable or at least filled content, the first to be lost first."""
        ...

    def give_back_empty(self, blocks: Sequence[int]) -> None:
        """Blocks without content worth keeping."""
        ...


Eviction = Callable[[range], ReuseOrder]
"""Makes the order of a new pool's blocks, all of them empty."""


class LeastRecentlyUsed:
    """vLLM's free queue: who came back first goes first; empty blocks jump the queue.

    Two arrays of block numbers are the links; the last place of each is the list's own end.
    """

    def __init__(self, blocks: range) -> None:
        end = blocks.stop
        self._end = end
        self._next: list[int] = [*range(1, end + 1), blocks.start]
        self._previous: list[int] = [*range(-1, end - 1), end - 1]
        if blocks:
            self._previous[blocks.start] = end
        else:
            self._next[end] = self._previous[end] = end
        self._length = len(blocks)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        block = self._next[self._end]
        while block != self._end:
            yield block
            block = self._next[block]

    def take(self) -> int:
        block = self._next[self._end]
        if block == self._end:
            raise LookupError("no block is free")
        self.withdraw(block)
        return block

    def withdraw(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self._length -= 1

    def give_back(self, blocks: Sequence[int]) -> None:
        self._insert(blocks, after=self._previous[self._end])

    def give_back_empty(self, blocks: Sequence[int]) -> None:
        self._insert(blocks, after=self._end)

    def _insert(self, blocks: Sequence[int], *, after: int) -> None:
        stop = self._next[after]
        for block in blocks:
            self._next[after] = block
            self._previous[block] = after
            after = block
        self._next[after] = stop
        self._previous[stop] = after
        self._length += len(blocks)


LRU: Eviction = LeastRecentlyUsed


class FirstInFirstOut:
    """The content that was computed first goes first, however often it was used since."""

    def __init__(self, blocks: range) -> None:
        self._empty = list(reversed(blocks))
        self._since = [0] * blocks.stop
        self._clock = 0
        self._waiting: list[tuple[int, int]] = []
        # A block hit while it waits leaves its entry behind, for when it waits again.
        self._entered = [-1] * blocks.stop
        self._is_waiting = bytearray(blocks.stop)
        self._length = len(blocks)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        yield from reversed(self._empty)
        yield from (block for since, block in sorted(self._waiting) if self._is_current(since, block))

    def take(self) -> int:
        if not self._length:
            raise LookupError("no block is free")
        self._length -= 1
        self._clock += 1
        if self._empty:
            block = self._empty.pop()
        else:
            since, block = heappop(self._waiting)
            while not self._is_current(since, block):
                since, block = heappop(self._waiting)
            self._is_waiting[block] = 0
        self._since[block] = self._clock
        return block

    def withdraw(self, block: int) -> None:
        self._is_waiting[block] = 0
        self._length -= 1

    def give_back(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._is_waiting[block] = 1
            if self._entered[block] != self._since[block]:
                self._entered[block] = self._since[block]
                heappush(self._waiting, (self._since[block], block))
        self._length += len(blocks)

    def give_back_empty(self, blocks: Sequence[int]) -> None:
        self._empty.extend(reversed(blocks))
        self._length += len(blocks)

    def _is_current(self, since: int, block: int) -> bool:
        return bool(self._is_waiting[block]) and self._since[block] == since


FIFO: Eviction = FirstInFirstOut
