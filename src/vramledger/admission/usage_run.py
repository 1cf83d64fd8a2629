"""The blocks in use at some ends that follow each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from vramledger.admission.lanes import deleted, inserted, lane, ones, unpacked

_MOST_LATE = 16


Line = tuple[int, int, int, int, int]
"""Blocks that grow, as (place, size, base, last step, branches): `branches * ((min(step, last_step) + base) // size)` of the size at this
place among a pool's sizes."""


class Lines(NamedTuple):
    """What a holding has at each step up to `end`: its lines and a number of blocks more (or fewer)."""

    lines: tuple[Line, ...]
    more: int
    end: int

    def blocks_at(self, step: int) -> int:
        total = self.more
        for _, size, base, last_step, branches in self.lines:
            total += branches * (((step if step < last_step else last_step) + base) // size)
        return total


class UsageRun:
    """Ends in order, and for each the blocks in use, as lanes.

    The usage at an end is its lane's number, less the bias, and `_lift` besides: what is the same for all ends is added there. Each end is kept
    a second time for each size of block as whole blocks and the rest since an origin, side by side in a lane, so that the blocks of a line at
    all of them are a sum, a shift and a mask. Lines that grow through all ends differ in nothing but their rest; they are counted by it,
    and their blocks added when somebody asks.
    """

    __slots__ = ("_bias", "_bits", "_late", "_lift", "_origins", "_sizes", "_steps", "_usage", "ends")

    def __init__(self, sizes: Sequence[int], bits: int) -> None:
        self.ends: list[int] = []
        self._bits = bits
        self._bias = 1 << (bits - 2)
        self._usage = 0
        self._lift = 0
        self._sizes = sizes
        self._origins = [0] * len(sizes)
        self._steps = [0] * len(sizes)
        self._late: dict[tuple[int, int], int] = {}

    def takes(self, end: int) -> bool:
        """Whether an end is near enough to the others to be one of them."""
        return max(self.ends[-1], end) - min(self.ends[0], end) < 1 << (self._bits - 4)

    def usage_of(self, place: int) -> int:
        """Blocks in use at the end that is at a place."""
        self._settle()
        return lane(self._usage, place, self._bits) - self._bias + self._lift

    def usages(self) -> list[int]:
        """Blocks in use at all ends."""
        self._settle()
        less = self._lift - self._bias
        return [number + less for number in unpacked(self._usage, len(self.ends), self._bits)]

    def insert(self, end: int, usage: int) -> None:
        """An end more, where so many blocks are in use."""
        self._settle()
        bits, ends = self._bits, self.ends
        if not ends:
            self._lift = usage
        place = bisect_left(ends, end)
        self._usage = inserted(self._usage, place, usage - self._lift + self._bias, bits)
        for number, size in enumerate(self._sizes):
            origin, wide = self._origins[number], (size - 1).bit_length()
            if not ends or end < origin:
                first = end // size * size
                self._steps[number] += ((origin - first) // size << wide) * ones(len(ends), bits)
                origin = self._origins[number] = first
            blocks, rest = divmod(end - origin, size)
            self._steps[number] = inserted(self._steps[number], place, blocks << wide | rest, bits)
        ends.insert(place, end)
        self._level()

    def delete(self, end: int) -> None:
        """An end less."""
        self._settle()
        place = bisect_left(self.ends, end)
        del self.ends[place]
        self._usage = deleted(self._usage, place, self._bits)
        self._steps = [deleted(steps, place, self._bits) for steps in self._steps]
        self._level()

    def split(self) -> UsageRun:
        """Gives the later half of its ends away."""
        self._settle()
        half, bits = len(self.ends) // 2, self._bits
        other = UsageRun(self._sizes, bits)
        other.ends, self.ends = self.ends[half:], self.ends[:half]
        other._lift = self._lift
        other._usage = self._usage >> bits * half
        self._usage -= other._usage << bits * half
        for number, size in enumerate(self._sizes):
            steps = self._steps[number] >> bits * half
            self._steps[number] -= steps << bits * half
            origin = self._origins[number]
            first = other.ends[0] // size * size
            wide = (size - 1).bit_length()
            other._steps[number] = steps - ((first - origin) // size << wide) * ones(len(other.ends), bits)
            other._origins[number] = first
        return other

    def absorb(self, later: UsageRun) -> None:
        """Takes all ends of the run that follows."""
        self._settle()
        later._settle()
        bits, count, more = self._bits, len(self.ends), len(later.ends)
        self._usage += (later._usage + (later._lift - self._lift) * ones(more, bits)) << bits * count
        for number, size in enumerate(self._sizes):
            blocks = (later._origins[number] - self._origins[number]) // size
            steps = later._steps[number] + (blocks << (size - 1).bit_length()) * ones(more, bits)
            self._steps[number] += steps << bits * count
        self.ends += later.ends

    def change(self, what: Lines, sign: int) -> None:
        """A holding more, or less."""
        last = self.ends[-1]
        lines, more, end = what
        if end >= last:
            late = self._late
            for line in lines:
                number, size, base, last_step, branches = line
                if last_step < last:
                    lanes, lift = self._blocks(Lines((line,), 0, end))
                    self._usage += sign * lanes
                    more += lift
                    continue
                whole, rest = divmod(base + self._origins[number], size)
                more += branches * whole
                name = number, rest
                late[name] = late.get(name, 0) + sign * branches
            self._lift += sign * more
            if len(late) > _MOST_LATE:
                self._settle()
            return
        lanes, lift = self._blocks(what)
        self._usage += sign * lanes
        self._lift += sign * lift

    def change_between(self, after: int, through: int, blocks: int) -> None:
        """So many blocks at the ends beyond one step and up to another."""
        start, stop = bisect_right(self.ends, after), bisect_right(self.ends, through)
        if stop - start == len(self.ends):
            self._lift += blocks
        elif start < stop:
            self._usage += blocks * (ones(stop - start, self._bits) << self._bits * start)

    def most(self, what: Lines | None = None, shared: Sequence[int] = ()) -> int:
        """The most in use at any of the ends, or with a holding more. `shared` are the ends, in order, of blocks that are held anyway and count
        in `what`.
        """
        self._settle()
        packed, less, bits = self._usage, self._lift - self._bias, self._bits
        if what is not None:
            lanes, lift = self._blocks(what)
            packed += lanes
            less += lift
            if shared:
                packed -= self._shared(shared, bisect_right(self.ends, what.end))
        return max(unpacked(packed, len(self.ends), bits)) + less

    def _shared(self, shared: Sequence[int], cut: int) -> int:
        """For each of the first ends, how many blocks are held until then or longer."""
        if not cut:
            return 0
        ends, bits = self.ends, self._bits
        first, last = bisect_left(shared, ends[0]), bisect_left(shared, ends[cut - 1])
        lanes = (len(shared) - last) * ones(cut, bits)
        for end, count in Counter(shared[first:last]).items():
            lanes += count * ones(bisect_right(ends, end), bits)
        return lanes

    def _settle(self) -> None:
        """Adds the blocks of those that were counted."""
        if self._late:
            count = len(self.ends)
            for (number, rest), branches in self._late.items():
                if branches:
                    self._usage += branches * self._grown(number, self._sizes[number], rest, count)
            self._late.clear()

    def _grown(self, number: int, size: int, rest: int, count: int) -> int:
        """At each end the blocks that a line has begun since the origin, at which it had so many tokens beyond whole blocks."""
        bits, wide, each = self._bits, (size - 1).bit_length(), ones(count, self._bits)
        # A carry out of the rest is a block more.
        blocks = (self._steps[number] + each * ((1 << wide) - size + rest)) >> wide
        return blocks & each * ((1 << bits - wide) - 1)

    def _level(self) -> None:
        """Keeps lanes small: whoever came before the ends changed may leave in another way than it came."""
        more = lane(self._usage, 0, self._bits) - self._bias
        if self.ends and abs(more) > 1 << (self._bits - 6):
            self._lift += more
            self._usage -= more * ones(len(self.ends), self._bits)

    def _blocks(self, what: Lines) -> tuple[int, int]:
        """Blocks of a holding at the ends up to its own: for each end, and for all of them."""
        ends, bits = self.ends, self._bits
        count, end = len(ends), what.end
        cut = count if end >= ends[-1] else bisect_right(ends, end)
        lanes, same = 0, what.more
        for number, size, base, last_step, branches in what.lines:
            if last_step >= ends[-1]:
                grown = cut
            elif last_step < ends[0]:
                grown = 0
            else:
                grown = min(cut, bisect_right(ends, last_step))
            if not grown:
                same += branches * ((last_step + base) // size)
                continue
            whole, rest = divmod(base + self._origins[number], size)
            same += branches * whole
            blocks = self._grown(number, size, rest, count)
            if grown < count:
                blocks &= (1 << bits * grown) - 1
                if grown < cut:
                    stopped = (last_step + base) // size - whole
                    blocks += stopped * (ones(cut, bits) - ones(grown, bits))
            lanes += blocks if branches == 1 else branches * blocks
        if cut < count:
            return lanes + same * ones(cut, bits), 0
        return lanes, same
