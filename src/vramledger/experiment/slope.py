"""The slope of a noisy series with an interval that holds however much its neighbours resemble each other.

A least-squares slope of readings a second apart looks far surer than it is: memory, queues and latencies wander, so that
neighbours say nearly the same thing. Here the series is seen through its 24 slowest cosines only. A straight line is almost wholly in
the first of them, while of noise that forgets in less than a fortieth of the stretch all hold equally much, so that the others tell
how much the first may hold by chance, with Student's t for their number (Müller and Watson, "Long-Run Covariability", Econometrica 86,
2018, and "Low-Frequency Econometrics", 2017). Noise that forgets more slowly, to the limit of a random walk, holds more in the
slowest; how slowly is not known, so each is weighed by how likely it makes the cosines that were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import atan, cos, exp, hypot, inf, log, pi, sin, sqrt
from statistics import fmean

from msgspec import Struct

MOST_BINS = 120
COSINES = 24
FEWEST = 32
"""Fewer values have too few slow cosines."""
NEGLIGIBLE = 25.0
"""A memory that is e^25 times less likely than another moves no quantile that is asked for."""
HALVINGS = 48
_MEMORIES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, inf)
"""How often noise forgets in a stretch: 0 is a random walk, infinity forgets at once."""


class Slope(Struct, frozen=True, kw_only=True):
    """A slope in the series' unit a unit of time, with the ends of its interval; and those of the interval that holds with the same
    confidence for as many series at once as were asked about."""

    value: float
    low: float
    high: float
    low_of_all: float
    high_of_all: float


STILL = Slope(value=0.0, low=0.0, high=0.0, low_of_all=0.0, high_of_all=0.0)
"""Of a series that never changes."""


class _Fit(Struct, frozen=True):
    slope: float
    error: float
    log_weight: float


def slope_of(
    times: Sequence[float], values: Sequence[float], confidence: float, *, among: int = 1
) -> Slope | None:
    """Of values at about even times in rising order; None where there are fewer than 32 or no time passes. `among` so many series one
    seems to grow by chance: their common interval leaves each the share of the doubt that falls to it (Bonferroni)."""
    count = len(values)
    if count < FEWEST or times[-1] <= times[0]:
        return None
    middle, level = fmean(times), fmean(values)
    rises = [value - level for value in values]
    scale = max(map(abs, rises))
    if scale <= abs(level) * 1e-12:
        return STILL
    span = times[-1] - times[0]
    line, seen = [], []
    for number in range(1, min(COSINES, count // 4) + 1):
        slow = _kept_wave(number, count)
        line.append(sum(part * (time - middle) for part, time in zip(slow, times, strict=True)) / span)
        seen.append(sum(part * rise for part, rise in zip(slow, rises, strict=True)) / scale)
    found = [_fitted(line, seen, memory) for memory in _MEMORIES]
    most = max(fit.log_weight for fit in found)
    fits = [fit for fit in found if fit.log_weight > most - NEGLIGIBLE]
    weights = [exp(fit.log_weight - most) for fit in fits]
    freedom = len(line) - 1
    unit = scale / span
    tail = (1 - confidence) / 2
    low, high = (unit * _mixed_quantile(fits, weights, freedom, share) for share in (tail, 1 - tail))
    low_of_all, high_of_all = low, high
    if among > 1:
        low_of_all, high_of_all = (
            unit * _mixed_quantile(fits, weights, freedom, share)
            for share in (tail / among, 1 - tail / among)
        )
    middle_slope = sum(weight * fit.slope for weight, fit in zip(weights, fits, strict=True)) / sum(weights)
    return Slope(
        value=unit * middle_slope, low=low, high=high, low_of_all=low_of_all, high_of_all=high_of_all
    )


def wave(number: int, count: int) -> list[float]:
    """A cosine of `number` half turns over `count` places."""
    return [cos(pi * number * (place + 0.5) / count) for place in range(count)]


@lru_cache(maxsize=COSINES * 16)
def _kept_wave(number: int, count: int) -> list[float]:
    """Most series are cut into as many bins."""
    return wave(number, count)


def _fitted(line: Sequence[float], seen: Sequence[float], memory: float) -> _Fit:
    """Weighted least squares with the spectrum of noise of one memory, and the likelihood of the cosines by it with slope and size of
    the noise integrated out."""
    spectrum = [
        1.0 if memory == inf else 1 / (memory**2 + (pi * number) ** 2) for number in range(1, len(line) + 1)
    ]
    along = sum(part * part / power for part, power in zip(line, spectrum, strict=True))
    slope = sum(part * got / power for part, got, power in zip(line, seen, spectrum, strict=True)) / along
    rest = sum(
        (got - slope * part) ** 2 / power for part, got, power in zip(line, seen, spectrum, strict=True)
    )
    freedom = len(line) - 1
    # A perfect line leaves rounding only.
    rest = max(rest, 1e-24 * sum(got * got / power for got, power in zip(seen, spectrum, strict=True)))
    return _Fit(
        slope,
        sqrt(rest / freedom / along),
        -0.5 * sum(map(log, spectrum)) - 0.5 * log(along) - 0.5 * freedom * log(rest),
    )


def _mixed_quantile(fits: Sequence[_Fit], weights: Sequence[float], freedom: int, share: float) -> float:
    total = sum(weights)

    def below(value: float) -> float:
        return (
            sum(
                weight * student_share((value - fit.slope) / fit.error, freedom)
                for weight, fit in zip(weights, fits, strict=True)
            )
            / total
        )

    reach = 1.0
    while True:
        low = min(fit.slope - reach * fit.error for fit in fits)
        high = max(fit.slope + reach * fit.error for fit in fits)
        if (below(low) <= share <= below(high)) or reach > 1e12:
            return _halved(below, share, low, high)
        reach *= 4


def _halved(below: Callable[[float], float], share: float, low: float, high: float) -> float:
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if below(middle) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_share(value: float, freedom: int) -> float:
    """The share of Student's t of whole degrees of freedom that lies below a value (the finite series of Abramowitz and
    Stegun 26.7.3 and 26.7.4)."""
    angle = atan(value / sqrt(freedom))
    sine, cosine = sin(angle), sqrt(freedom) / hypot(value, sqrt(freedom))
    is_odd = freedom % 2 == 1
    term = 0.0 if freedom == 1 else cosine if is_odd else 1.0
    total = term
    for step in range(3 if is_odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    share = 2 / pi * (angle + sine * total) if is_odd else sine * total
    return 0.5 + 0.5 * share


def binned(
    times: Sequence[float],
    values: Sequence[float],
    *,
    middle: Callable[[Sequence[float]], float] = fmean,
    bins: int = MOST_BINS,
) -> tuple[list[float], list[float]]:
    """At most `bins` values at even times: the middle of those that lie in each part of the stretch; parts with none are left out."""
    if not times:
        return [], []
    first, last = times[0], times[-1]
    if last <= first:
        return [first], [middle(values)]
    parts: list[tuple[list[float], list[float]]] = [([], []) for _ in range(bins)]
    for time, value in zip(times, values, strict=True):
        part = parts[min(int((time - first) / (last - first) * bins), bins - 1)]
        part[0].append(time)
        part[1].append(value)
    filled = [part for part in parts if part[0]]
    return [fmean(part[0]) for part in filled], [middle(part[1]) for part in filled]
