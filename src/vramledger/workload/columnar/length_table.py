"""Quantiles as a table that turns random words into lengths: inverse transform in whole numbers.

The table holds the value at each of 65,536 equally spaced places; in between it is a straight line. So drawing is one look-up
and one multiplication, and gives the same numbers on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from vramledger.workload.quantiles import Quantiles

Ints = npt.NDArray[np.int64]
CELLS = 2**16


class LengthTable:
    """Values of `quantiles` by place."""

    def __init__(self, quantiles: Quantiles) -> None:
        places, values = zip(*quantiles.points, strict=True)
        knots = np.array([NormalDist().inv_cdf(place) for place in places])
        heights = np.log(np.array(values, dtype=np.float64))
        scores = _scores()
        slopes = np.diff(heights) / np.diff(knots)
        segment = np.clip(np.searchsorted(knots, scores, side="left") - 1, 0, len(slopes) - 1)
        lines = heights[segment] + slopes[segment] * (scores - knots[segment])
        inner = np.rint(np.exp(np.minimum(lines, 60.0)))
        nodes = np.empty(CELLS + 1, dtype=np.int64)
        nodes[1:-1] = np.clip(inner, quantiles.lowest, quantiles.highest)
        nodes[0], nodes[-1] = quantiles.lowest, quantiles.highest
        self._nodes = np.maximum.accumulate(nodes)

    @property
    def mean(self) -> float:
        """The mean of what is drawn."""
        return float((self._nodes[:-1] + self._nodes[1:]).mean() / 2)

    def at(self, words: npt.NDArray[np.uint32]) -> Ints:
        """The value at each place `word / 2**32`."""
        cells = (words >> np.uint32(16)).astype(np.int64)
        part = (words & np.uint32(0xFFFF)).astype(np.int64)
        low = self._nodes[cells]
        found: Ints = low + ((self._nodes[cells + 1] - low) * part + CELLS // 2) // CELLS
        return found


@lru_cache(maxsize=1)
def _scores() -> npt.NDArray[np.float64]:
    """The normal score of each place between the first and the last."""
    score = NormalDist().inv_cdf
    return np.array([score(place / CELLS) for place in range(1, CELLS)])


def random_words(rng: np.random.Generator, count: int, *, stratified: bool) -> npt.NDArray[np.uint32]:
    """`count` places as words of 32 bits: independent, or one of each of `count` equal strata in random order."""
    words = rng.integers(0, 2**32, size=count, dtype=np.uint32)
    if not stratified:
        return words
    strata = rng.permutation(count).astype(np.uint64)
    return (((strata << np.uint64(32)) + words) // np.uint64(count)).astype(np.uint32)
