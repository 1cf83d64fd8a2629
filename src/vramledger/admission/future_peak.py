"""The future peak of what runs, kept up to date so that a question costs microseconds.

Steps are counted from the start, so a sequence that grows as foretold is the same line for ever, and time changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable
from heapq import heapify, heappop, heappush

from vramledger.admission.growth import Growth
from vramledger.admission.holding import Holding
from vramledger.admission.need import Need
from vramledger.admission.usage_run import Lines, UsageRun

_MOST_ENDS = 96


class FuturePeak:
    """Holdings by identity, and the blocks in use at each of their ends; equal to `holding.peak_blocks` at all times.

    A holding changes the usage at all ends up to its own. Ends lie in runs of up to 96, and for each run a number is kept that no usage in it
    exceeds, so a question about one holding more looks into those runs alone that could have the peak. A key counts to the last end among its
    holders. Numbers are kept in 32 bits, and in 64 from the moment that any sum of them could come near to that.
    """

    def __init__(self, need: Need, *, bits: int = 32) -> None:
        self._need = need
        self._bits = bits
        self._held: dict[int, tuple[Holding, int, Lines, int]] = {}
        sizes = sorted({part.block_tokens for part in need.parts})
        self._sizes = sizes
        self._parts = tuple((sizes.index(size), size, most) for size, most in need.parts)
        self._growth = [Growth(size) for size in sizes]
        self._at_end: dict[int, dict[int, None]] = {}
        self._runs: list[UsageRun] = []
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._tops: list[int] = []
        self._now = 0
        self._blocks_now = 0
        self._asked: tuple[Holding, Lines, int | None] | None = None
        self._alive: set[int] = set()
        self._holders: dict[Hashable, list[tuple[int, int]]] = {}
        self._serial = 0
        self._reach = 0
        self._easy = 1 << (bits - 5)
        self._branches = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, identity: int) -> bool:
        return identity in self._held

    def __getitem__(self, identity: int) -> Holding:
        return self._held[identity][0]

    @property
    def first_end(self) -> tuple[int, int] | None:
        """The end that comes first, and whose it is."""
        if not self._runs:
            return None
        end = self._firsts[0]
        return end, next(iter(self._at_end[end]))

    def is_held(self, key: Hashable) -> bool:
        """Whether some holding names a block so."""
        return key in self._holders

    @property
    def blocks_now(self) -> int:
        """Blocks in use at the step that `advance` told of last, by everything that was not removed."""
        return self._blocks_now

    def advance(self, step: int) -> None:
        """Time comes to a step; it never goes back."""
        if step > self._now:
            for growth in self._growth:
                self._blocks_now += growth.begun(self._now, step)
            self._now = step
            if self._firsts and self._firsts[0] < step:
                self._widen()

    def usage_at(self, step: int) -> int:
        """Blocks that are in use at a step from now on, by what will not have ended by then."""
        number = bisect_left(self._lasts, step)
        if number == len(self._runs):
            return 0
        run = self._runs[number]
        place = bisect_left(run.ends, step)
        usage, end = run.usage_of(place), run.ends[place]
        if end != step:
            for growth in self._growth:
                usage -= growth.begun(step, end)
        return usage

    def add(self, identity: int, holding: Holding) -> None:
        """A holding more."""
        end, what = holding.hold_end, self._lines(holding)
        at_end = self._at_end.get(end)
        if at_end is None:
            asked = self._asked
            usage = asked[2] if asked is not None and asked[0] is holding else None
            self._insert(end, self.usage_at(end) if usage is None else usage)
            self._at_end[end] = {identity: None}
        else:
            at_end[identity] = None
        if holding.keys:
            what = what._replace(more=what.more - len(holding.keys))
        self._serial += 1
        self._alive.add(self._serial)
        reach = self._reach_of(what)
        self._held[identity] = holding, self._serial, what, reach
        self._reach += reach
        self._branches += holding.branches
        self._change(what, 1)
        if holding.keys:
            self._name(holding.keys, end)
        if self._reach >= self._easy or end < self._now:
            self._widen()

    def remove(self, identity: int) -> Holding:
        """A holding ends, whenever it was said to."""
        holding, serial, what, reach = self._held.pop(identity)
        self._reach -= reach
        self._branches -= holding.branches
        self._alive.remove(serial)
        self._change(what, -1)
        end = holding.hold_end
        if holding.keys:
            self._unname(holding.keys, end)
        at_end = self._at_end[end]
        del at_end[identity]
        if not at_end:
            del self._at_end[end]
            self._delete(end)
        return holding

    def peak(self, extra: Holding | None = None) -> int:
        """The most blocks in use at any end, or what that would be with one holding more."""
        runs, tops = self._runs, self._tops
        what, shared, before = None, [], 0
        if extra is None:
            bounds = tops.copy()
        else:
            what = self._lines(extra)
            self._asked = extra, what, None
            if extra.keys:
                shared = sorted(-self._holders[key][0][0] for key in extra.keys if key in self._holders)
            before = bisect_left(self._lasts, what.end)
            bounds = self._bounds(what, shared, before)
        best = 0
        while bounds and (bound := max(bounds)) > best:
            number = bounds.index(bound)
            most = bounds[number] = runs[number].most(what, shared)
            best = max(best, most)
            if number > before or what is None:
                tops[number] = most
            elif number < before:
                tops[number] = min(tops[number], most - _more(what, shared, self._firsts[number]))
        if extra is not None and what is not None and what.end not in self._at_end:
            more = _more(what, shared, what.end)
            if self._next_usage(what.end, before) + more > best:
                usage = self.usage_at(what.end)
                self._asked = extra, what, usage
                best = max(best, usage + more)
        return best

    def first_room(self, blocks: int, limit_blocks: int) -> int | None:
        """The end after which `blocks` more fit at every later one; None where they fit now."""
        room = limit_blocks - blocks
        for number in range(len(self._runs) - 1, -1, -1):
            if self._tops[number] > room:
                run = self._runs[number]
                for end, usage in zip(reversed(run.ends), reversed(run.usages()), strict=True):
                    if usage > room:
                        return end
        return None

    def _name(self, keys: tuple[Hashable, ...], end: int) -> None:
        """The newest holding names blocks."""
        firsts: Counter[int] = Counter()
        for key in keys:
            heap = self._holders.setdefault(key, [])
            last = -heap[0][0] if heap else -1
            self._blocks_now += not heap
            if last < end:
                firsts[last] += 1
            heappush(heap, (-end, self._serial))
            if len(heap) > 64 and len(heap) > 2 * len(self._alive):
                heap[:] = [entry for entry in heap if entry[1] in self._alive]
                heapify(heap)
        for last, blocks in firsts.items():
            self._add_between(last, end, blocks)

    def _unname(self, keys: tuple[Hashable, ...], end: int) -> None:
        """One that named blocks is gone."""
        lasts: Counter[int] = Counter()
        for key in keys:
            heap = self._holders[key]
            while heap and heap[0][1] not in self._alive:
                heappop(heap)
            last = -heap[0][0] if heap else -1
            if last < end:
                lasts[last] += 1
            if not heap:
                del self._holders[key]
                self._blocks_now -= 1
        for last, blocks in lasts.items():
            self._add_between(last, end, -blocks)

    def _lines(self, holding: Holding) -> Lines:
        """All its blocks, those that it names among them."""
        asked = self._asked
        if asked is not None and asked[0] is holding:
            return asked[1]
        offset, growth_end, end, branches, common_blocks, _ = holding
        more = branches * self._need.fixed_blocks - (branches - 1) * common_blocks
        if self._need.is_plain:
            size = self._sizes[0]
            return Lines(((0, size, offset + size - 1, growth_end, branches),), more, end)
        lines = tuple(
            (
                place,
                size,
                offset + size - 1,
                growth_end if most is None else min(growth_end, most * size - offset),
                branches,
            )
            for place, size, most in self._parts
        )
        return Lines(lines, more, end)

    def _reach_of(self, what: Lines) -> int:
        """What no number of its blocks exceeds, from now or its end until the end of its growth."""
        reach, now = abs(what.more), min(self._now, what.end)
        for _, size, base, last_step, branches in what.lines:
            reach += branches * ((abs(base + last_step) + abs(base + now)) // size + 2)
        return reach

    def _bounds(self, what: Lines, shared: list[int], before: int) -> list[int]:
        """What no usage in a run exceeds, with a holding more. It has the more, the later."""
        tops, steps = self._tops, self._lasts[:before]
        if before < len(tops) and self._firsts[before] <= what.end:
            steps.append(what.end)
        if shared or len(what.lines) != 1:
            bounds = [top + _more(what, shared, step) for top, step in zip(tops, steps, strict=False)]
        else:
            _, size, base, last_step, branches = what.lines[0]
            more = what.more
            bounds = [
                top + branches * (((step if step < last_step else last_step) + base) // size) + more
                for top, step in zip(tops, steps, strict=False)
            ]
        return bounds + tops[len(bounds) :]

    def _next_usage(self, step: int, number: int) -> int:
        """Blocks in use at the first end from a step on: nothing ends before that, so there are no more at the step."""
        if number == len(self._runs):
            return 0
        run = self._runs[number]
        return run.usage_of(bisect_left(run.ends, step))

    def _change(self, what: Lines, sign: int) -> None:
        """The blocks of its own, at all ends up to its own."""
        end, tops, firsts, lasts = what.end, self._tops, self._firsts, self._lasts
        self._blocks_now += sign * what.blocks_at(self._now)
        some = bisect_right(firsts, end)
        for run in self._runs[:some]:
            run.change(what, sign)
        blocks_at = what.blocks_at
        if sign > 0 and len(what.lines) == 1:
            _, size, base, last_step, branches = what.lines[0]
            most = last_step if last_step < end else end
            more = what.more
            tops[:some] = [
                top + branches * (((last if last < most else most) + base) // size) + more
                for top, last in zip(tops, lasts[:some], strict=False)
            ]
        elif sign > 0:
            tops[:some] = [
                top + blocks_at(last if last < end else end)
                for top, last in zip(tops, lasts[:some], strict=False)
            ]
        else:
            tops[:some] = [
                top - blocks_at(first) if last <= end else top
                for top, first, last in zip(tops, firsts[:some], lasts, strict=False)
            ]
        for place, _, base, last_step, branches in what.lines:
            growth = self._growth[place]
            if sign > 0:
                growth.add(base, last_step, branches)
            else:
                growth.remove(base, last_step, branches)
        self._asked = None

    def _add_between(self, after: int, through: int, blocks: int) -> None:
        for number, run in enumerate(self._runs):
            first, last = self._firsts[number], self._lasts[number]
            if first > through:
                break
            if last > after:
                run.change_between(after, through, blocks)
                if blocks > 0 or (first > after and last <= through):
                    self._tops[number] += blocks
        self._asked = None

    def _insert(self, end: int, usage: int) -> None:
        """An end more, where so many blocks are in use."""
        runs, firsts = self._runs, self._firsts
        number = bisect_left(self._lasts, end)
        if number == len(runs) and number and runs[-1].takes(end):
            number -= 1
        if number == len(runs) or (firsts[number] > end and not runs[number].takes(end)):
            runs.insert(number, UsageRun(self._sizes, self._bits))
            firsts.insert(number, end)
            self._lasts.insert(number, end)
            self._tops.insert(number, usage)
        run = runs[number]
        run.insert(end, usage)
        self._tops[number] = max(self._tops[number], usage)
        if len(run.ends) > _MOST_ENDS:
            runs.insert(number + 1, run.split())
            for names in (firsts, self._lasts, self._tops):
                names.insert(number + 1, names[number])
            self._measure(number + 1)
        self._measure(number)

    def _delete(self, end: int) -> None:
        """An end less."""
        runs = self._runs
        number = bisect_left(self._lasts, end)
        run = runs[number]
        run.delete(end)
        if not run.ends:
            for rows in (runs, self._firsts, self._lasts, self._tops):
                del rows[number]
            return
        self._measure(number)
        before = runs[number - 1] if number else run
        if (
            len(run.ends) + len(before.ends) < _MOST_ENDS // 2
            and before is not run
            and before.takes(run.ends[-1])
        ):
            before.absorb(run)
            self._tops[number - 1] = max(self._tops[number - 1 : number + 1])
            for rows in (runs, self._firsts, self._lasts, self._tops):
                del rows[number]
            self._measure(number - 1)

    def _measure(self, number: int) -> None:
        ends = self._runs[number].ends
        self._firsts[number], self._lasts[number] = ends[0], ends[-1]

    def _widen(self) -> None:
        """Takes to wider numbers before those in use could be too small for a sum."""
        late = self._now - min(self._now, self._firsts[0]) if self._firsts else 0
        if self._reach + self._branches * (late // self._sizes[0] + 2) < 1 << (self._bits - 4):
            return
        if self._bits > 32:
            raise OverflowError("more blocks than a pool could ever have")
        wide = FuturePeak(self._need, bits=64)
        wide._now = self._now
        for identity, held in self._held.items():
            wide.add(identity, held[0])
        vars(self).update(vars(wide))


def _more(what: Lines, shared: list[int], step: int) -> int:
    """Blocks that a holding adds at a step, but for those that others hold under the same keys then."""
    blocks = what.blocks_at(step)
    return blocks - len(shared) + bisect_left(shared, step) if shared else blocks
