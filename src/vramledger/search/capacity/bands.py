"""How sure a goodput is: a bootstrap over blocks of consecutive requests, and loads at which the band meets the aim."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct

RESAMPLES = 1_000


class Band(Struct, frozen=True, kw_only=True):
    """A goodput with its confidence band."""

    low: float
    expected: float
    high: float


def goodput_band(blocks: Sequence[tuple[int, int]], *, confidence: float, seed: int) -> Band:
    """Good of offered, with the percentile bootstrap's band over blocks of (good, offered).

    Neighbouring requests share a queue, so blocks of them are drawn and not single ones. Where every request was good the
    lower end is what as many without a miss still allow: 1 - ln(1 / (1 - confidence)) / n, the rule of three at 95 %.
    """
    from math import log

    offered = sum(count for _, count in blocks)
    if not offered:
        return Band(low=0.0, expected=1.0, high=1.0)
    good = sum(count for count, _ in blocks)
    if good == offered:
        return Band(low=max(1 - log(1 / (1 - confidence)) / offered, 0.0), expected=1.0, high=1.0)
    random = Random(seed)  # noqa: S311 - resampling, no secret
    shares = []
    for _ in range(RESAMPLES):
        drawn = random.choices(blocks, k=len(blocks))
        shares.append(sum(count for count, _ in drawn) / sum(count for _, count in drawn))
    shares.sort()
    tail = (1 - confidence) / 2
    expected = good / offered
    low, high = shares[int(tail * RESAMPLES)], shares[min(int((1 - tail) * RESAMPLES), RESAMPLES - 1)]
    return Band(low=min(low, expected), expected=expected, high=max(high, expected))
