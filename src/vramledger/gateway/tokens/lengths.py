"""How long prompts are, learned from those that an engine counted. Pure.

Of each model and kind of request a linear rule is kept up to date: tokens over characters, further bytes of UTF-8, signs, messages, bytes of JSON
(`counter` says which). It is fitted by relative error with weights that fade, so that it follows what is sent now. What it may be wrong by is
not taken from the fit: each count is compared with what the rule had said before it was learned from, and the ratio kept, apart by length
and by what kind of text it is. Of `n` such ratios the k-th largest is exceeded by the next one with probability k / (n + 1), whatever their
distribution, as long as prompts come in no particular order (split conformal prediction); where `n` is too small for the wanted quantile, a
Student's t bound on their logarithms stands beside the largest.

All tenants of a gateway teach the same rule: a tenant can make it worse for others, by no more than the bound that goes for a prompt of which
nothing is known, and learns nothing from it but a forecast of the length of its own prompts.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

_NORMAL = NormalDist()
FADE = 0.998
"""An observation weighs a half after 350 others."""
RATIOS = 512
COHORTS = 256
SETTLED = 8
"""Observations that the rule is fitted to before its errors are kept."""
EACH = 64
EVERY = 16
"""The rule is solved anew after each of the first observations, and then after so many: few of hundreds move it little."""
ENOUGH = 12
"""Ratios by which there is a bound: of prompts of that length and text, else of that text."""
TAUGHT = SETTLED + ENOUGH
"""Observations of a cohort before which its estimate has no known error."""
Group = tuple[Hashable, Hashable]
"""The length and the kind of text by which errors are kept apart."""


class Length(NamedTuple):
    """A forecast: `most` is None where nothing is known of its error."""

    tokens: int
    most: int | None
    observations: int


class LengthModel:
    """Forecasts by cohort. A row is what is seen of a prompt; `prior` is what an entry of a row weighs before anything is known."""

    def __init__(self, prior: Sequence[float], *, quantile: float) -> None:
        self._prior = tuple(prior)
        self._quantile = quantile
        self._cohorts: OrderedDict[Hashable, _Cohort] = OrderedDict()

    def forecast(self, cohort: Hashable, row: Sequence[float], group: Group) -> Length:
        """`most` is None too for a kind of text of which too little was seen: what others are like says nothing of it."""
        known = self._cohorts.get(cohort)
        if known is None:
            return Length(round(_weighed(self._prior, row)), None, 0)
        told = known.forecast(row)
        spread = known.spread(group, self._quantile)
        most = None if spread is None else math.ceil(told * spread)
        return Length(round(told), most, known.observations)

    def learn(self, cohort: Hashable, row: Sequence[float], group: Group, tokens: int) -> None:
        known = self._cohorts.get(cohort)
        if known is None:
            known = self._cohorts[cohort] = _Cohort(self._prior)
            if len(self._cohorts) > COHORTS:
                self._cohorts.popitem(last=False)
        else:
            self._cohorts.move_to_end(cohort)
        known.learn(row, group, tokens)


class _Cohort:
    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = prior
        self._weights = list(prior)
        size = len(prior)
        self._squares = [[0.0] * size for _ in range(size)]
        self._products = [0.0] * size
        self._ratios: dict[Hashable, _Ratios] = {}
        self.observations = 0

    def forecast(self, row: Sequence[float]) -> float:
        return max(1.0, _weighed(self._weights, row))

    def spread(self, group: Group, quantile: float) -> float | None:
        """What a forecast is multiplied by to be exceeded as rarely as that."""
        for place in (group, group[1]):
            ratios = self._ratios.get(place)
            if ratios is not None and len(ratios.ordered) >= ENOUGH:
                return high_ratio(ratios.ordered, quantile)
        return None

    def learn(self, row: Sequence[float], group: Group, tokens: int) -> None:
        if self.observations >= SETTLED:
            ratio = tokens / self.forecast(row)
            for place in (group, group[1]):
                self._ratios.setdefault(place, _Ratios()).add(ratio)
        self.observations += 1
        size = len(row)
        weight = 1.0 / max(1, tokens) ** 2
        for i in range(size):
            self._products[i] = FADE * self._products[i] + weight * row[i] * tokens
            squares = self._squares[i]
            for j in range(size):
                squares[j] = FADE * squares[j] + weight * row[i] * row[j]
        if self.observations <= EACH or self.observations % EVERY == 0:
            self._weights = self._solved()

    def _solved(self) -> list[float]:
        """Weights of least squares that are not negative: one that would be is left out. The prior weighs as much as a thousandth observation."""
        active = list(range(len(self._prior)))
        while True:
            matrix, target = [], []
            for i in active:
                # What a prompt of one token would say of this weight alone.
                ridge = 1e-3 * self._squares[i][i] + 1e-9
                matrix.append([self._squares[i][j] + (ridge if i == j else 0.0) for j in active])
                target.append(self._products[i] + ridge * self._prior[i])
            solution = _solve(matrix, target)
            negative = [i for i, value in zip(active, solution, strict=True) if value < 0]
            if not negative:
                weights = [0.0] * len(self._prior)
                for i, value in zip(active, solution, strict=True):
                    weights[i] = value
                return weights
            active = [i for i in active if i not in negative]


class _Ratios:
    """The last ones, kept in order."""

    def __init__(self) -> None:
        self._last: deque[float] = deque()
        self.ordered: list[float] = []

    def add(self, ratio: float) -> None:
        self._last.append(ratio)
        insort(self.ordered, ratio)
        if len(self._last) > RATIOS:
            del self.ordered[bisect_left(self.ordered, self._last.popleft())]


def high_ratio(ratios: Sequence[float], quantile: float) -> float | None:
    """Of ratios in order: what the next is above no more often than `1 - quantile`. None of too few to say."""
    count = len(ratios)
    if count < ENOUGH:
        return None
    place = math.ceil(quantile * (count + 1))
    if place <= count:
        return ratios[place - 1]
    logs = [math.log(max(ratio, 1e-9)) for ratio in ratios]
    mean = sum(logs) / count
    deviation = math.sqrt(sum((one - mean) ** 2 for one in logs) / (count - 1))
    return max(
        ratios[-1], math.exp(mean + _student(quantile, count - 1) * deviation * math.sqrt(1 + 1 / count))
    )


def _student(quantile: float, freedom: int) -> float:
    """The quantile of Student's t by Cornish and Fisher's expansion; within a hundredth for eleven degrees and more."""
    z = _NORMAL.inv_cdf(quantile)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _weighed(weights: Sequence[float], row: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, row, strict=True))


def _solve(matrix: list[list[float]], target: list[float]) -> list[float]:
    """Gauss's elimination with pivots; the matrix is positive definite, and small."""
    size = len(target)
    rows = [[*row, value] for row, value in zip(matrix, target, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda at: abs(rows[at][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        if head == 0.0:
            continue
        for below in range(column + 1, size):
            factor = rows[below][column] / head
            if factor:
                for at in range(column, size + 1):
                    rows[below][at] -= factor * rows[column][at]
    solution = [0.0] * size
    for row in range(size - 1, -1, -1):
        head = rows[row][row]
        rest = sum(rows[row][at] * solution[at] for at in range(row + 1, size))
        solution[row] = (rows[row][size] - rest) / head if head else 0.0
    return solution
