"""Quantiles of measured values, for tables."""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.simulation.summary import rank_of


def nearest_rank(values: Iterable[int], percent: int) -> int:
    """The least value that is not exceeded by `percent` in a hundred of them; 0 of none."""
    ranked = sorted(values)
    return ranked[rank_of(len(ranked), percent)] if ranked else 0
