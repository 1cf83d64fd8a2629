"""How many blocks growing sequences begin between two steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from vramledger.admission.lanes import deleted, ones


class Growth:
    """Sequences that grow by a token a step until a step of their own, in blocks of `size` tokens.

    At step `s` a sequence of base `b` has `(s + b) // size` blocks, so of those that still grow the ones of one remainder of `b` begin a
    block in the same step. The remainders are kept as lanes in order of the last steps of growth, and counted all at once.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._top = max(1, (size - 1).bit_length())
        self._bits = self._top + 1
        self._last_steps: list[int] = []
        self._bases: list[int] = []
        self._rests = 0
        self._each = 0

    def add(self, base: int, last_step: int, branches: int) -> None:
        """So many alike."""
        place = bisect_left(self._last_steps, last_step)
        if branches == 1:
            self._last_steps.insert(place, last_step)
            self._bases.insert(place, base)
            block = base % self._size
        else:
            self._last_steps[place:place] = [last_step] * branches
            self._bases[place:place] = [base] * branches
            block = base % self._size * ones(branches, self._bits)
        at, wide = self._bits * place, self._bits * branches
        upper = self._rests >> at
        self._rests += ((upper << wide) + block - upper) << at
        self._each = self._each << wide | ones(branches, self._bits)

    def remove(self, base: int, last_step: int, branches: int) -> None:
        """So many alike."""
        for _ in range(branches):
            place = self._bases.index(base, bisect_left(self._last_steps, last_step))
            del self._last_steps[place], self._bases[place]
            self._rests = deleted(self._rests, place, self._bits)
        self._each >>= self._bits * branches

    def begun(self, after: int, through: int) -> int:
        """Blocks that are begun in the steps beyond one and up to another."""
        size, last_steps = self._size, self._last_steps
        place = bisect_left(last_steps, through)
        count = len(last_steps) - place
        whole, rest = divmod(through - after, size)
        blocks = whole * count
        if rest and count:
            blocks += self._within(place, count, (size - rest - after) % size, rest)
        for number in range(bisect_right(last_steps, after, 0, place), place):
            base = self._bases[number]
            blocks += (last_steps[number] + base) // size - (after + base) // size
        return blocks

    def _within(self, place: int, count: int, start: int, length: int) -> int:
        """How many from a place on have one of `length` remainders from `start` on, counted around."""
        bits, top = self._bits, self._top
        each = self._each >> bits * place
        rests, highs = self._rests >> bits * place, each << top
        # A carry into a lane's highest bit says that its remainder is as large as what was left to be added.
        low = (rests + each * ((1 << top) - start)) & highs
        stop = start + length
        if stop == self._size:
            return low.bit_count()
        if stop < self._size:
            return (low ^ ((rests + each * ((1 << top) - stop)) & highs)).bit_count()
        high = (rests + each * ((1 << top) - (stop - self._size))) & highs
        return count - (low ^ high).bit_count()
