"""The future peak of what runs, kept up to date so that a question costs microseconds.

Steps are counted from the start, so a sequence that grows as foretold is the same line for ever, and time changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable
from heapq import heapify, heappop, heappush

from vramledger.admission.holding import Holding
from vramledger.admission.need import Need

_RUN = 32


class FuturePeak:
    """Holdings by identity, and the blocks in use at each of their ends, in order; equal to `holding.peak_blocks` at all times.

    A holding changes the usage at all ends up to its own. The largest usage of each run of 32 ends is remembered, so a question
    about one holding more looks into those runs alone that could have the peak. A key counts to the last end among its holders.
    """

    def __init__(self, need: Need) -> None:
        self._need = need
        self._held: dict[int, tuple[Holding, int]] = {}
        self._ends: list[int] = []
        self._owners: list[int] = []
        self._usage: list[int] = []
        self._lines: list[tuple[int, int, int]] = []
        self._now = 0
        self._blocks_now = 0
        # Branches that grow now, by the remainder of their offsets: those of one remainder begin a block in the same step.
        self._growing = [0] * need.block_tokens
        self._stops: list[tuple[int, int, int, int]] = []
        self._tops: list[int] = []
        self._is_stale = False
        self._asked: tuple[int, int] | None = None
        self._alive: set[int] = set()
        self._holders: dict[Hashable, list[tuple[int, int]]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, identity: int) -> bool:
        return identity in self._held

    def __getitem__(self, identity: int) -> Holding:
        return self._held[identity][0]

    @property
    def first_end(self) -> tuple[int, int] | None:
        """The end that comes first, and whose it is."""
        return (self._ends[0], self._owners[0]) if self._ends else None

    def is_held(self, key: Hashable) -> bool:
        """Whether some holding names a block so."""
        return key in self._holders

    @property
    def blocks_now(self) -> int:
        """Blocks in use at the step that `advance` told of last, by everything that was not removed."""
        if self._need.is_plain:
            return self._blocks_now
        rows = [holding for holding, _ in self._held.values()]
        return sum(row.blocks_at(self._now, self._need) - len(row.keys) for row in rows) + len(self._holders)

    def advance(self, step: int) -> None:
        """Time comes to a step; it never goes back."""
        size, stops = self._need.block_tokens, self._stops
        while self._now < step:
            self._blocks_now += self._growing[-self._now % size]
            self._now += 1
            while stops and stops[0][0] <= self._now:
                _, serial, rest, branches = heappop(stops)
                if serial in self._alive:
                    self._growing[rest] -= branches

    def usage_at(self, step: int) -> int:
        """Blocks that are in use at a step from now on, by what will not have ended by then."""
        place = bisect_left(self._ends, step)
        if place == len(self._ends):
            return 0
        end, usage, need = self._ends[place], self._usage[place], self._need
        if end == step:
            return usage
        if need.is_plain:
            size = need.block_tokens
            return usage - sum(
                [
                    branches * ((min(end, growth_end) + base) // size - (step + base) // size)
                    for base, growth_end, branches in self._lines[place:]
                    if growth_end > step
                ]
            )
        for owner in self._owners[place:]:
            holding = self._held[owner][0]
            if holding.growth_end > step:
                usage -= holding.blocks_at(end, need) - holding.blocks_at(step, need)
        return usage

    def add(self, identity: int, holding: Holding) -> None:
        """A holding more."""
        end = holding.hold_end
        usage = self._asked[1] if self._asked is not None and self._asked[0] == end else self.usage_at(end)
        place = bisect_left(self._ends, end)
        self._ends.insert(place, end)
        self._owners.insert(place, identity)
        self._usage.insert(place, usage)
        size = self._need.block_tokens
        self._lines.insert(place, (holding.offset_tokens + size - 1, holding.growth_end, holding.branches))
        self._serial += 1
        self._alive.add(self._serial)
        self._held[identity] = holding, self._serial
        self._change(holding, 1)
        self._blocks_now += holding.blocks_at(self._now, self._need) - len(holding.keys)
        if holding.growth_end > self._now:
            rest = holding.offset_tokens % size
            self._growing[rest] += holding.branches
            heappush(self._stops, (holding.growth_end, self._serial, rest, holding.branches))
        firsts: Counter[int] = Counter()
        for key in holding.keys:
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

    def remove(self, identity: int) -> Holding:
        """A holding ends, whenever it was said to."""
        holding, serial = self._held.pop(identity)
        self._alive.remove(serial)
        self._change(holding, -1)
        self._blocks_now -= holding.blocks_at(self._now, self._need) - len(holding.keys)
        if holding.growth_end > self._now:
            self._growing[holding.offset_tokens % self._need.block_tokens] -= holding.branches
        end = holding.hold_end
        lasts: Counter[int] = Counter()
        for key in holding.keys:
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
        place = self._owners.index(identity, bisect_left(self._ends, end))
        del self._ends[place], self._owners[place], self._usage[place], self._lines[place]
        return holding

    def peak(self, extra: Holding | None = None) -> int:
        """The most blocks in use at any end, or what that would be with one holding more."""
        tops = self._fresh_tops()
        if extra is None:
            return max(tops, default=0)
        ends, usage = self._ends, self._usage
        last = extra.hold_end
        cut = bisect_right(ends, last)
        run = -(-cut // _RUN)
        best = max(tops[run:], default=0)
        best = max(best, max(usage[cut : run * _RUN], default=0))
        lasts = sorted(-self._holders[key][0][0] for key in extra.keys if key in self._holders)
        steps = ends[_RUN - 1 : max(0, run * _RUN - 1) : _RUN]
        if cut:
            steps.append(ends[cut - 1])
        if lasts or not self._need.is_plain or extra.branches > 1:
            bounds = [
                (top + self._more(extra, step, lasts), number)
                for number, (top, step) in enumerate(zip(tops, steps, strict=False))
            ]
        else:
            size, growth_end = self._need.block_tokens, extra.growth_end
            base = extra.offset_tokens + size - 1
            bounds = [
                (top + (min(step, growth_end) + base) // size, number)
                for number, (top, step) in enumerate(zip(tops, steps, strict=False))
            ]
        bounds.sort(reverse=True)
        for bound, number in bounds:
            if bound <= best:
                break
            start, stop = number * _RUN, min(number * _RUN + _RUN, cut)
            best = max(best, self._most(extra, start, stop, lasts))
        if not cut or ends[cut - 1] != last:
            more = self._more(extra, last, lasts)
            if (usage[cut] if cut < len(ends) else 0) + more > best:
                self._asked = last, self.usage_at(last)
                best = max(best, self._asked[1] + more)
        return best

    def first_room(self, blocks: int, limit_blocks: int) -> int | None:
        """The end after which `blocks` more fit at every later one; None where they fit now."""
        most = 0
        for end, usage in zip(reversed(self._ends), reversed(self._usage), strict=True):
            most = max(most, usage)
            if most + blocks > limit_blocks:
                return end
        return None

    def _more(self, extra: Holding, step: int, lasts: list[int]) -> int:
        """Blocks that `extra` adds at a step, but for those that others hold under the same keys then."""
        need = self._need
        tokens = extra.offset_tokens + (step if step < extra.growth_end else extra.growth_end)
        if need.is_plain and extra.branches == 1:
            blocks = -(-tokens // need.block_tokens)
        else:
            blocks = need.blocks(tokens, extra.branches, extra.common_blocks)
        return blocks - len(lasts) + bisect_left(lasts, step) if lasts else blocks

    def _most(self, extra: Holding, start: int, stop: int, lasts: list[int]) -> int:
        pairs = zip(self._ends[start:stop], self._usage[start:stop], strict=True)
        if lasts or not self._need.is_plain or extra.branches > 1:
            return max(used + self._more(extra, end, lasts) for end, used in pairs)
        size, growth_end = self._need.block_tokens, extra.growth_end
        base = extra.offset_tokens + size - 1
        if self._ends[stop - 1] <= growth_end:
            return max([used + (end + base) // size for end, used in pairs])
        return max([used + (min(end, growth_end) + base) // size for end, used in pairs])

    def _change(self, holding: Holding, sign: int) -> None:
        """The blocks of its own, at all ends up to its own."""
        need, named = self._need, len(holding.keys)
        cut = bisect_right(self._ends, holding.hold_end)
        if need.is_plain and holding.branches == 1:
            size, growth_end = need.block_tokens, holding.growth_end
            base = holding.offset_tokens + size - 1 - named * size
            grown = bisect_right(self._ends, growth_end, 0, cut)
            full = sign * ((growth_end + base) // size)
            pairs = zip(self._ends[:grown], self._usage, strict=False)
            if sign > 0:
                self._usage[:grown] = [used + (end + base) // size for end, used in pairs]
            else:
                self._usage[:grown] = [used - (end + base) // size for end, used in pairs]
            self._usage[grown:cut] = [used + full for used in self._usage[grown:cut]]
        else:
            self._usage[:cut] = [
                used + sign * (holding.blocks_at(end, need) - named)
                for end, used in zip(self._ends[:cut], self._usage, strict=False)
            ]
        self._is_stale = True
        self._asked = None

    def _add_between(self, after: int, through: int, blocks: int) -> None:
        start, stop = bisect_right(self._ends, after), bisect_right(self._ends, through)
        self._usage[start:stop] = [used + blocks for used in self._usage[start:stop]]
        self._is_stale = True
        self._asked = None

    def _fresh_tops(self) -> list[int]:
        if self._is_stale:
            usage = self._usage
            self._tops = [max(usage[start : start + _RUN]) for start in range(0, len(usage), _RUN)]
            self._is_stale = False
        return self._tops
