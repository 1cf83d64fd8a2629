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


_END, _UNTOUCHED = 0, 1


class LeastRecentlyUsed:
    """vLLM's free queue: who came back first goes first; empty blocks jump the queue.

    Two lists of nodes are the links: the list's own end, all blocks that were never given out as one node, and a node for each
    that was, so that a pool costs memory for what is used of it.
    """

    def __init__(self, blocks: range) -> None:
        self._blocks = blocks
        self._touched = 0
        self._next = [_UNTOUCHED, _END] if blocks else [_END, _END]
        self._previous = [_UNTOUCHED, _END] if blocks else [_END, _END]
        self._length = len(blocks)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        node = self._next[_END]
        while node != _END:
            if node == _UNTOUCHED:
                yield from self._blocks[self._touched :]
            else:
                yield self._blocks[node - 2]
            node = self._next[node]

    def take(self) -> int:
        node = self._next[_END]
        if node == _END:
            raise LookupError("no block is free")
        if node != _UNTOUCHED:
            self._unlink(node)
            return self._blocks[node - 2]
        block = self._blocks[self._touched]
        self._touched += 1
        self._next.append(_END)
        self._previous.append(_END)
        if self._touched == len(self._blocks):
            self._unlink(_UNTOUCHED)
        else:
            self._length -= 1
        return block

    def withdraw(self, block: int) -> None:
        self._unlink(block - self._blocks.start + 2)

    def give_back(self, blocks: Sequence[int]) -> None:
        self._insert(blocks, after=self._previous[_END])

    def give_back_empty(self, blocks: Sequence[int]) -> None:
        self._insert(blocks, after=_END)

    def _unlink(self, node: int) -> None:
        before, after = self._previous[node], self._next[node]
        self._next[before] = after
        self._previous[after] = before
        self._length -= 1

    def _insert(self, blocks: Sequence[int], *, after: int) -> None:
        stop = self._next[after]
        first = self._blocks.start - 2
        for block in blocks:
            node = block - first
            self._next[after] = node
            self._previous[node] = after
            after = node
        self._next[after] = stop
        self._previous[stop] = after
        self._length += len(blocks)


LRU: Eviction = LeastRecentlyUsed


class _Ranked:
    """The lowest rank goes first; blocks without content go before all of them, the last to come back first.

    A block that is hit while it waits leaves its entry in the heap: one whose rank is not `_entered` any more is skipped.
    """

    def __init__(self, blocks: range) -> None:
        self._untouched = blocks
        self._empty: list[int] = []
        self._heap: list[tuple[int, int]] = []
        self._entered: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._length = len(blocks)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        yield from reversed(self._empty)
        yield from self._untouched
        yield from (block for rank, block in sorted(set(self._heap)) if self._is_current(rank, block))

    def take(self) -> int:
        if not self._length:
            raise LookupError("no block is free")
        self._length -= 1
        if self._empty:
            return self._empty.pop()
        if self._untouched:
            block, self._untouched = self._untouched[0], self._untouched[1:]
            return block
        self._drop_stale()
        _, block = heappop(self._heap)
        del self._entered[block]
        self._waiting.discard(block)
        return block

    def withdraw(self, block: int) -> None:
        self._waiting.discard(block)
        self._length -= 1

    def give_back(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._waiting.add(block)
            rank = self._rank(block)
            if self._entered.get(block) != rank:
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
            rank, block = heappop(self._heap)
            if self._entered.get(block) == rank:
                del self._entered[block]

    def _is_current(self, rank: int, block: int) -> bool:
        return block in self._waiting and self._entered.get(block) == rank


class FirstInFirstOut(_Ranked):
    """The content that was computed first goes first, however often it was used since."""

    def __init__(self, blocks: range) -> None:
        super().__init__(blocks)
        self._since: dict[int, int] = {}
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
        return -self._heap[0][0] if self._heap and not self._empty and not self._untouched else None

    def _rank(self, block: int) -> int:
        return -self._next_use[block]
