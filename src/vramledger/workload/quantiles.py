"""Whole numbers given by their quantiles: lengths in tokens, waits in milliseconds.

The rule between the points: the logarithm of the value is a straight line over the normal score of the place, so
that p50 and p95 alone are a log-normal distribution, and any further point bends it there and nowhere else.
Beyond the outermost points the nearest line goes on, up to `max` and down to `min`. Where these are not given they
are what the line reaches at p99.99 and p0.01: a line has no end, a prompt does.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp, log

from msgspec import Struct

PLACES = {
    "p1": 0.01, "p5": 0.05, "p10": 0.10, "p25": 0.25, "p50": 0.50, "p75": 0.75, "p90": 0.90, "p95": 0.95, "p99": 0.99,
    "p99_9": 0.999,
}  # fmt: skip
LARGEST = 2**40
_TAIL = 0.0001


class Quantiles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whole numbers of at least 1 that do not fall from one to the next; p50, p95 and p99 are what is always known.

    Raises ValueError for others.
    """

    p50: int
    p95: int
    p99: int
    p1: int | None = None
    p5: int | None = None
    p10: int | None = None
    p25: int | None = None
    p75: int | None = None
    p90: int | None = None
    p99_9: int | None = None
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        named = [
            (name, value) for name in ("min", *PLACES, "max") if (value := getattr(self, name)) is not None
        ]
        for name, value in named:
            if not 1 <= value <= LARGEST:
                raise ValueError(f"{name} is {value}, not from 1 to {LARGEST}")
        for (name, value), (after, larger) in pairwise(named):
            if larger < value:
                raise ValueError(f"{after} is {larger}, less than {name}, {value}: quantiles do not fall")

    @property
    def points(self) -> tuple[tuple[float, int], ...]:
        """The places between 0 and 1 that are known, in order, and the value at each."""
        return tuple(
            (place, value) for name, place in PLACES.items() if (value := getattr(self, name)) is not None
        )

    @property
    def lowest(self) -> int:
        """Nothing is smaller."""
        return self.min if self.min is not None else _line(self.points, _TAIL, 1, LARGEST)

    @property
    def highest(self) -> int:
        """Nothing is larger."""
        return self.max if self.max is not None else _line(self.points, 1 - _TAIL, 1, LARGEST)

    def at(self, place: float) -> int:
        """The value that a share `place` of all is not above. Raises ValueError unless 0 < place < 1."""
        if not 0 < place < 1:
            raise ValueError(f"{place} is no place between 0 and 1")
        return _line(self.points, place, self.lowest, self.highest)


def constant(value: int) -> Quantiles:
    """One number for all."""
    return Quantiles(p50=value, p95=value, p99=value)


def _line(points: tuple[tuple[float, int], ...], place: float, lowest: int, highest: int) -> int:
    from statistics import NormalDist

    score = NormalDist().inv_cdf
    knots = [(score(known), log(value)) for known, value in points]
    here = score(place)
    right = next((index for index in range(1, len(knots) - 1) if here <= knots[index][0]), len(knots) - 1)
    (left_score, left), (right_score, value) = knots[right - 1], knots[right]
    height = left + (value - left) * (here - left_score) / (right_score - left_score)
    # A steep line may leave what a float can hold long before it meets its bound.
    return min(max(round(exp(min(height, 60.0))), lowest), highest)
