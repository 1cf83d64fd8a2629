"""Goodput that only falls with load, and the load at which it crosses an aim, with how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from math import inf
from random import Random
from statistics import fmean

from msgspec import Struct

from vramledger.experiment.slope import wave

DRAWS = 2_000
WAVES = 6
FEWEST_EFFECTIVE = 4.0


class Tried(Struct, frozen=True, kw_only=True):
    """Good of offered requests at one load. `excess` is by how much more the share of good ones scatters than that of as many requests
    that owe nothing to each other: neighbours share a queue, so that one that misses an aim rarely misses alone. `carried` is the same within
    stretches as long as the other loads were held: what wanders over half an hour says nothing of a stage of a minute."""

    per_s: float
    offered: int
    good: int
    excess: float = 1.0
    carried: float = 1.0

    @property
    def share(self) -> float:
        return self.good / self.offered


class Crossing(Struct, frozen=True, kw_only=True):
    """The load at which goodput crosses the aim, 0 where no load tried meets it and None where every one does, and the ends of its
    interval: `low` 0 and `high` None where it may lie outside what was tried."""

    per_s: float | None
    low_per_s: float
    high_per_s: float | None


def tried(per_s: float, goods: Sequence[bool], closeness: Sequence[float], *, stretches: int = 1) -> Tried:
    """One stage, its requests in the order in which they were due. `closeness` is how near each came to missing an aim, in any measure that
    rises: it shows what neighbours share also where all were good. The stage is `stretches` times as long as others are."""
    count = len(goods)
    ends = [count * number // stretches for number in range(stretches + 1)]
    pieces = [_shared(goods[begin:end], closeness[begin:end]) for begin, end in pairwise(ends) if end > begin]
    return Tried(
        per_s=per_s,
        offered=count,
        good=sum(goods),
        excess=_shared(goods, closeness),
        carried=fmean(pieces) if pieces else 1.0,
    )


def _shared(goods: Sequence[bool], closeness: Sequence[float]) -> float:
    return max(excess_of(list(map(float, goods))), excess_of(ranks(closeness)), 1.0)


def excess_of(values: Sequence[float]) -> float:
    """How much more the six slowest cosines of a sequence hold than they would were its order of no account, 1 on average; 1 for one
    that never changes."""
    count = len(values)
    if not count:
        return 1.0
    level = fmean(values)
    rises = [value - level for value in values]
    scatter = sum(rise * rise for rise in rises) / count
    if scatter <= 0:
        return 1.0
    held = sum(
        sum(part * rise for part, rise in zip(wave(number, count), rises, strict=True)) ** 2
        for number in range(1, WAVES + 1)
    )
    return held * 2 / count / WAVES / scatter


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each among all, equal ones at their middle."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    first = 0
    for _, group in groupby(order, key=values.__getitem__):
        places = list(group)
        for place in places:
            found[place] = first + (len(places) - 1) / 2
        first += len(places)
    return found


def joined(stages: Sequence[Tried]) -> list[Tried]:
    """In rising order of load, those of one load as one. What neighbours share grows with load: none has less excess than what is carried from
    a lower load."""
    whole = sorted((item for item in stages if item.offered), key=lambda item: item.per_s)
    found: list[Tried] = []
    most = 1.0
    for per_s, group in groupby(whole, key=lambda item: item.per_s):
        items = list(group)
        offered = sum(item.offered for item in items)
        most = max(most, sum(item.offered * item.carried for item in items) / offered)
        excess = max(most, sum(item.offered * item.excess for item in items) / offered)
        found.append(
            Tried(
                per_s=per_s,
                offered=offered,
                good=sum(item.good for item in items),
                excess=excess,
                carried=most,
            )
        )
    return found


def falling(shares: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The shares that never rise and are nearest to those given by weighted squares: neighbours that rise are pooled (Ayer and
    others, "An Empirical Distribution Function for Sampling with Incomplete Information", 1955)."""
    pools: list[tuple[float, float, int]] = []
    for share, weight in zip(shares, weights, strict=True):
        value, mass, count = share, weight, 1
        while pools and pools[-1][0] < value:
            before, more, number = pools.pop()
            value = (before * more + value * mass) / (more + mass)
            mass, count = mass + more, count + number
        pools.append((value, mass, count))
    return [value for value, _, count in pools for _ in range(count)]


def fitted(points: Sequence[Tried]) -> list[float]:
    """Goodput at each load of `joined` stages, never rising with load."""
    return falling([item.share for item in points], [item.offered / item.excess for item in points])


def crossed(loads: Sequence[float], shares: Sequence[float], aim: float) -> float | None:
    """Where shares that never rise cross the aim, straight between two loads; 0 below the first, None above the last."""
    for place, share in enumerate(shares):
        if share < aim:
            if place == 0:
                return 0.0
            above, load = shares[place - 1], loads[place - 1]
            return load + (above - aim) / (above - share) * (loads[place] - load)
    return None


def crossing_of(
    points: Sequence[Tried], *, aim: float, confidence: float, seed: int, draws: int = DRAWS
) -> Crossing:
    """The crossing of `joined` stages and its interval, all stages' goodput drawn anew.

    A stage's goodput is drawn from the beta distribution of as many requests as it is worth, with half a good one and half a missed one more
    (Jeffreys), so that a stage in which all were good is not taken for certain. What it is worth is drawn too, as its excess is known from six
    cosines only: a chi-squared of six. The draws never rise with load either.

    How often the interval holds the knee of queues whose knee is known: docs/decisions/experiment-intervals.md.
    """
    loads = [item.per_s for item in points]
    random = Random(seed)  # noqa: S311 - resampling, no secret
    drawn = []
    for _ in range(draws):
        shares, weights = [], []
        for item in points:
            worth = _worth(item, random)
            weights.append(worth)
            shares.append(random.betavariate(worth * item.share + 0.5, worth * (1 - item.share) + 0.5))
        found = crossed(loads, falling(shares, weights), aim)
        drawn.append(inf if found is None else found)
    drawn.sort()
    tail = (1 - confidence) / 2
    low, high = drawn[int(tail * draws)], drawn[min(int((1 - tail) * draws), draws - 1)]
    return Crossing(
        per_s=crossed(loads, fitted(points), aim),
        low_per_s=min(low, loads[-1]),
        high_per_s=None if high == inf else high,
    )


def _worth(item: Tried, random: Random) -> float:
    excess = max(item.excess * WAVES / random.gammavariate(WAVES / 2, 2), 1.0)
    return max(item.offered / excess, min(FEWEST_EFFECTIVE, item.offered))
