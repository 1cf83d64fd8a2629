"""Goodput that only falls with load, and the load at which it crosses an aim, with how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import cos, inf, pi
from random import Random

from msgspec import Struct

DRAWS = 2_000
WAVES = 6
FEWEST_EFFECTIVE = 4.0


class Tried(Struct, frozen=True, kw_only=True):
    """Good of offered requests at one load. `excess` is by how much more the share of good ones scatters than that of as many requests
    that owe nothing to each other: neighbours share a queue, so that one that misses an aim rarely misses alone. None where it cannot be told, as
    nobody missed or all did."""

    per_s: float
    offered: int
    good: int
    excess: float | None = None

    @property
    def share(self) -> float:
        return self.good / self.offered


class Crossing(Struct, frozen=True, kw_only=True):
    """The load at which goodput crosses the aim, 0 where no load tried meets it and None where every one does, and the ends of its
    interval: `low` 0 and `high` None where it may lie outside what was tried."""

    per_s: float | None
    low_per_s: float
    high_per_s: float | None


def tried(per_s: float, goods: Sequence[bool]) -> Tried:
    """One stage, its requests in the order in which they were due."""
    return Tried(per_s=per_s, offered=len(goods), good=sum(goods), excess=excess_of(goods))


def excess_of(goods: Sequence[bool]) -> float | None:
    """At least 1; by the six slowest cosines of the sequence, which hold what runs of neighbours have in common."""
    count, good = len(goods), sum(goods)
    if good in (0, count):
        return None
    share = good / count
    found = 0.0
    for number in range(1, WAVES + 1):
        wave = sum(
            cos(pi * number * (place + 0.5) / count) * (is_good - share)
            for place, is_good in enumerate(goods)
        )
        found += wave * wave * 2 / count
    return max(found / WAVES / (share * (1 - share)), 1.0)


def joined(stages: Sequence[Tried]) -> list[Tried]:
    """In rising order of load, those of one load as one. A stage whose own requests cannot tell their excess is given that of the nearest
    load that can."""
    known = [item for item in stages if item.excess is not None]

    def excess(item: Tried) -> float:
        if item.excess is not None:
            return item.excess
        near = min(known, key=lambda other: abs(other.per_s - item.per_s), default=None)
        return 1.0 if near is None or near.excess is None else near.excess

    whole = sorted((item for item in stages if item.offered), key=lambda item: item.per_s)
    found = []
    for per_s, group in groupby(whole, key=lambda item: item.per_s):
        items = list(group)
        offered = sum(item.offered for item in items)
        found.append(
            Tried(
                per_s=per_s,
                offered=offered,
                good=sum(item.good for item in items),
                excess=sum(item.offered * excess(item) for item in items) / offered,
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
    return falling([item.share for item in points], [item.offered / (item.excess or 1.0) for item in points])


def crossed(loads: Sequence[float], shares: Sequence[float], aim: float) -> float | None:
    """Where shares that never rise cross the aim, straight between two loads; 0 below the first, None above the last."""
    for place, share in enumerate(shares):
        if share < aim:
            if place == 0:
                return 0.0
            above, load = shares[place - 1], loads[place - 1]
            return load + (above - aim) / (above - share) * (loads[place] - load)
    return None


def crossing_of(points: Sequence[Tried], *, aim: float, confidence: float, seed: int) -> Crossing:
    """The crossing of `joined` stages and its interval by drawing all stages' goodput anew.

    A stage's goodput is drawn from the beta distribution of as many requests as it is worth, with half a good one and half a missed one more
    (Jeffreys), so that a stage in which all were good is not taken for certain. What it is worth is drawn too: its excess is known from six
    cosines only, a chi-squared of six. The draws never rise with load either.
    """
    loads = [item.per_s for item in points]
    random = Random(seed)  # noqa: S311 - resampling, no secret
    drawn = []
    for _ in range(DRAWS):
        shares, weights = [], []
        for item in points:
            worth = _worth(item, random)
            weights.append(worth)
            shares.append(random.betavariate(worth * item.share + 0.5, worth * (1 - item.share) + 0.5))
        found = crossed(loads, falling(shares, weights), aim)
        drawn.append(inf if found is None else found)
    drawn.sort()
    tail = (1 - confidence) / 2
    low, high = drawn[int(tail * DRAWS)], drawn[min(int((1 - tail) * DRAWS), DRAWS - 1)]
    return Crossing(
        per_s=crossed(loads, fitted(points), aim),
        low_per_s=min(low, loads[-1]),
        high_per_s=None if high == inf else high,
    )


def _worth(item: Tried, random: Random) -> float:
    excess = max((item.excess or 1.0) * WAVES / random.gammavariate(WAVES / 2, 2), 1.0)
    return max(item.offered / excess, min(FEWEST_EFFECTIVE, item.offered))
