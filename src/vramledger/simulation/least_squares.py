"""Robust least squares with lower bounds, for a handful of unknowns.

In plain Python, so that a fit is the same on every machine and needs no library of 40 MB for six numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt
from statistics import median

Row = Sequence[float]

ROBUST_ROUNDS = 20
_TINY = 1e-9


def robust_fit(
    rows: Sequence[Row], values: Sequence[float], *, lower: Row, start: Row, trust: float, tolerance: float
) -> list[float]:
    """Unknowns x >= lower with rows . x near values.

    A row far off counts less (Cauchy weights at twice the median error); none counts much less for an error of up to `tolerance`,
    so that a majority that fits exactly does not silence the others.

    `trust` pulls every unknown towards its start, in units of what the change makes in a usual row; it decides only what the
    rows leave open. Raises ValueError without rows.
    """
    if not rows:
        raise ValueError("nothing to fit")
    usual = [sqrt(fsum(value * value for value in column) / len(rows)) for column in zip(*rows, strict=True)]
    scale = [1 / size if size else max(abs(first), 1.0) for size, first in zip(usual, start, strict=True)]
    scaled = [[value * unit for value, unit in zip(row, scale, strict=True)] for row in rows]
    bounds = [low / unit for low, unit in zip(lower, scale, strict=True)]
    first = [value / unit for value, unit in zip(start, scale, strict=True)]
    weights = [1.0] * len(rows)
    found = first
    for _ in range(ROBUST_ROUNDS):
        matrix, vector = _normal(scaled, values, weights)
        for place, value in enumerate(first):
            matrix[place][place] += trust * len(rows)
            vector[place] += trust * len(rows) * value
        found = _bounded(matrix, vector, bounds)
        errors = [value - _dot(row, found) for row, value in zip(scaled, values, strict=True)]
        spread = max(2 * 1.4826 * median(map(abs, errors)), tolerance)
        weights = [1 / (1 + (error / spread) ** 2) for error in errors]
    return [value * unit for value, unit in zip(found, scale, strict=True)]


def _normal(
    rows: Sequence[Row], values: Sequence[float], weights: Sequence[float]
) -> tuple[list[list[float]], list[float]]:
    size = len(rows[0])
    columns = list(zip(*rows, strict=True))
    weighted = [[value * weight for value, weight in zip(column, weights, strict=True)] for column in columns]
    matrix = [[0.0] * size for _ in range(size)]
    for one in range(size):
        for other in range(one, size):
            matrix[one][other] = matrix[other][one] = _dot(weighted[one], columns[other])
    return matrix, [_dot(column, values) for column in weighted]


def _bounded(matrix: list[list[float]], vector: list[float], lower: Row) -> list[float]:
    """The minimum of x.M.x / 2 - v.x over x >= lower: unknowns below their bound are held at it, and let go where that helps."""
    size = len(vector)
    held: set[int] = set()
    found = [0.0] * size
    for _ in range(8 * size):
        free = [place for place in range(size) if place not in held]
        rest = [
            vector[place] - fsum(matrix[place][other] * lower[other] for other in sorted(held))
            for place in free
        ]
        solved = _solve([[matrix[one][other] for other in free] for one in free], rest)
        found = list(lower)
        for place, value in zip(free, solved, strict=True):
            found[place] = value
        below = min(free, key=lambda place: found[place] - lower[place], default=None)
        if below is not None and found[below] < lower[below] - _TINY:
            held.add(below)
            continue
        slope = {place: _dot(matrix[place], found) - vector[place] for place in sorted(held)}
        steepest = min(slope, key=lambda place: slope[place], default=None)
        if steepest is None or slope[steepest] >= -_TINY * sqrt(abs(matrix[steepest][steepest]) + 1):
            break
        held.discard(steepest)
    return [max(value, low) for value, low in zip(found, lower, strict=True)]


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Gauss with the largest pivot; the trust in the start keeps the matrix away from singular."""
    size = len(vector)
    work = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    for place in range(size):
        best = max(range(place, size), key=lambda row: abs(work[row][place]))
        work[place], work[best] = work[best], work[place]
        pivot = work[place][place] or _TINY
        for row in range(place + 1, size):
            factor = work[row][place] / pivot
            if factor:
                work[row] = [one - factor * two for one, two in zip(work[row], work[place], strict=True)]
    found = [0.0] * size
    for place in reversed(range(size)):
        known = fsum(work[place][other] * found[other] for other in range(place + 1, size))
        found[place] = (work[place][size] - known) / (work[place][place] or _TINY)
    return found


def _dot(one: Row, two: Row) -> float:
    return fsum(map(float.__mul__, map(float, one), map(float, two)))
