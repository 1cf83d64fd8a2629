"""Lengths by their published probabilities: the text of a Python dict, value to probability, read as data and nothing else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
LARGEST_TEXT = 2**24
MOST_TOKENS = 2**30


class Pdf(NamedTuple):
    """Values in order and the probability up to each; of no values where the client was silent."""

    values: Ints
    places: npt.NDArray[np.float64]

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        """So many values by inverse transform."""
        found = np.searchsorted(self.places, rng.random(count), side="right")
        return self.values[np.minimum(found, len(self.values) - 1)]


def read_pdf(text: str) -> Pdf:
    """The distribution that a text such as "{45: 0.25, 46: 0.75}" says; probabilities are made to sum to 1.

    Raises ValueError, saying what is wrong, for any other text.
    """
    if len(text) > LARGEST_TEXT:
        raise ValueError(f"it has {len(text)} characters, more than {LARGEST_TEXT}")
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        raise ValueError("it is not {value: probability, ...}")
    body = stripped[1:-1].strip().removesuffix(",")
    if not body:
        return Pdf(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))
    pairs = [item.split(":") for item in body.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("it is not {value: probability, ...}")
    try:
        values = np.array([float(value) for value, _ in pairs])
        weights = np.array([float(weight) for _, weight in pairs])
    except ValueError as problem:
        raise ValueError(f"it holds something that is no number: {problem}") from None
    if not ((values >= 0) & (values <= MOST_TOKENS) & (values == np.floor(values))).all():
        raise ValueError(f"its values are not whole numbers from 0 to {MOST_TOKENS}")
    if not ((weights >= 0) & (weights <= 1e15)).all() or not weights.sum() > 0:
        raise ValueError("its probabilities are not of 0 and more, or all 0")
    order = np.argsort(values, kind="stable")
    return Pdf(values[order].astype(np.int64), np.cumsum(weights[order]) / weights.sum())
