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


class _Ranked:
    """The lowest rank goes first; blocks without content go before all of them, the last to come back first.

    A block that is hit while it waits leaves its entry in the heap: one whose rank is not `_entered` any more is skipped.
    """

    def __init__(self, blocks: range) -> None:
        self._empty = list(reversed(blocks))
        self._heap: list[tuple[int, int]] = []
        self._entered: list[int | None] = [None] * blocks.stop
        self._is_waiting = bytearray(blocks.stop)
        self._length = len(blocks)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        yield from reversed(self._empty)
        yield from (block for rank, block in sorted(set(self._heap)) if self._is_current(rank, block))

    def take(self) -> int:
        if not self._length:
            raise LookupError("no block is free")
        self._length -= 1
        if self._empty:
            return self._empty.pop()
        self._drop_stale()
        _, block = heappop(self._heap)
        self._entered[block] = None
        self._is_waiting[block] = 0
        return block

    def withdraw(self, block: int) -> None:
        self._is_waiting[block] = 0
        self._length -= 1

    def give_back(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._is_waiting[block] = 1
            rank = self._rank(block)
            if self._entered[block] != rank:
                self._entered[block] = rank
                heappush(self._heap, (rank, block))
        self._length += len(blocks)

    def give_back_empty(self, blocks: Sequence[int]) -> None:
        self._empty.extend(reversed(blocks))
        self._length += len(blocks)

    def _rank(self, block: int) -> int:
        raise NotImplementedError

    def _drop_stale(self) -> None:
        while self._heap and not self._is_current(*self._heap[0]):
            heappop(self._heap)

    def _is_current(self, rank: int, block: int) -> bool:
        return bool(self._is_waiting[block]) and self._entered[block] == rank


class FirstInFirstOut(_Ranked):
    """The content that was computed first goes first, however often it was used since."""

    def __init__(self, blocks: range) -> None:
        super().__init__(blocks)
        self._since = [0] * blocks.stop
        self._taken = 0

    def take(self) -> int:
        block = super().take()
        self._taken += 1
        self._since[block] = self._taken
        return block

    def _rank(self, block: int) -> int:
        return self._since[block]


FIFO: Eviction = FirstInFirstOut


class FarthestNextUse(_Ranked):
    """What is needed last goes first: no order that cannot see the future hits more, so this bounds them all (Belady).

    `next_use` is by block, kept by who knows the future: later is larger, and equals are not wanted.
    """

    def __init__(self, blocks: range, next_use: list[int]) -> None:
        super().__init__(blocks)
        self._next_use = next_use

    def next_to_go(self) -> int | None:
        """The next use of what would be lost next; None while a block without content is free, or none at all."""
        self._drop_stale()
        return -self._heap[0][0] if self._heap and not self._empty else None

    def _rank(self, block: int) -> int:
        return -self._next_use[block]
