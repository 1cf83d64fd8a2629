"""Requests parted by their own quantiles: each part lies between two of them, so all parts together keep them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
KEPT = (0.50, 0.95, 0.99)


def between_quantiles(values: Ints) -> Ints:
    """For each value the part it is in: up to p50, up to p95, up to p99, beyond; equal values are in one part."""
    edges = np.unique(np.quantile(values, KEPT, method="inverted_cdf"))
    return np.searchsorted(edges, values, side="left").astype(np.int64)


def cells_of(parts: Sequence[Ints], count: int) -> Ints:
    """A number from 0 for each request by its place in all partings, the first parting weighing most; at most `count`.

    While there are more, the smallest cell joins the smaller of its neighbours in order.
    """
    key = np.zeros(len(parts[0]), dtype=np.int64)
    for part in parts:
        key = key * (int(part.max(initial=0)) + 1) + part
    _, cell, sizes = np.unique(key, return_inverse=True, return_counts=True)
    number = np.arange(len(sizes))
    held = sizes.tolist()
    while len(held) > count:
        smallest = min(range(len(held)), key=held.__getitem__)
        beside = [place for place in (smallest - 1, smallest + 1) if 0 <= place < len(held)]
        left = min(smallest, min(beside, key=held.__getitem__))
        number[number > left] -= 1
        held[left : left + 2] = [held[left] + held[left + 1]]
    joined: Ints = number[cell].astype(np.int64)
    return joined
