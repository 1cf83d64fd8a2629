"""How long things last, learned from those that ended and from those that were still there when last seen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, log, sqrt
from statistics import NormalDist

_EXACT = 32
_FINE = 16
_MOST_CHANGES = 256
_FEW_NEW = 64


def bin_of(value: int) -> int:
    """The bin of a length: each its own below 32, then 16 to a doubling."""
    if value < _EXACT:
        return value
    shift = value.bit_length() - 5
    return _EXACT + (shift - 1) * _FINE + (value >> shift) - _FINE


def last_of(number: int) -> int:
    """The largest length in a bin."""
    if number < _EXACT:
        return number
    shift, place = divmod(number - _EXACT, _FINE)
    return ((place + _FINE + 1) << (shift + 1)) - 1


@lru_cache
def least_observations(quantile: float, confidence: float) -> int:
    """Observations of which the largest exceeds a quantile with this confidence: quantile ** n <= 1 - confidence (Wilks, 1941)."""
    return ceil(log(1.0 - confidence) / log(quantile))


@lru_cache
def _deviations(confidence: float) -> float:
    return NormalDist().inv_cdf(confidence)


class Curve:
    """The share of lengths beyond each length, as it was when it was drawn up."""

    def __init__(self, shares: list[float]) -> None:
        self._shares = shares
        """Of what came to the first bin, the share that left each bin for the next."""

    def share_beyond(self, value: int, given: int) -> float:
        """As `Survival.share_beyond`."""
        shares = self._shares
        last, start = len(shares) - 1, bin_of(given)
        stop = bin_of(value + 1) - 1
        if stop <= start or start >= last:
            return 1.0
        there = shares[start]
        if there <= 0.0:  # Nothing was seen to come that far and go on.
            return 1.0
        return shares[stop if stop < last else last] / there


class Survival:
    """The share of lengths beyond each length (Kaplan and Meier's estimate by bin, from the product of those that did not end in it).

    One that is censored (still running, cancelled, cut at its own bound) counts among those that reached the bins it got to, and among
    those that ended in none: it is neither forgotten, which would make all seem short, nor taken for ended. In a bin that it
    did not leave it counts as one that stayed through it, so the estimate errs to the long side. `window` bounds how many ends are
    remembered at full weight: beyond twice as many, everything counts half.
    """

    def __init__(self, window: int = 4096) -> None:
        self._window = window
        self._reached: list[float] = []
        self._ended: list[float] = []
        self.ends = 0.0
        self._curve: Curve | None = None
        self._safe: dict[tuple[float, float, int], int | None] = {}
        self._changes = self._new_ends = 0

    def reach(self, value: int, before: int = -1) -> None:
        """Something that was at `before` (-1: new) is at `value` and goes on."""
        self.reach_bins(bin_of(before) + 1 if before >= 0 else 0, bin_of(value) + 1)

    def reach_bins(self, start: int, stop: int) -> None:
        """Something has come into the bins from one on and before another."""
        if stop > len(self._reached):
            more = [0.0] * (stop - len(self._reached))
            self._reached += more
            self._ended += more
        for number in range(start, stop):
            self._reached[number] += 1
        self._changes += 1

    def end(self, value: int) -> None:
        """Something that had reached `value` ended there."""
        self._ended[bin_of(value)] += 1
        self.ends += 1
        self._new_ends += 1
        if self._new_ends * _FEW_NEW >= self.ends:
            self._drawn_anew()
        if self.ends > 2 * self._window:
            self._reached = [count / 2 for count in self._reached]
            self._ended = [count / 2 for count in self._ended]
            self.ends /= 2

    def observations(self, beyond: int = 0) -> int:
        """Ends that the estimate for something at `beyond` rests on: those in later bins."""
        return int(sum(self._ended[bin_of(beyond) + 1 :]))

    def tail(self, given: int) -> Iterator[tuple[int, float]]:
        """The end of each bin beyond that of `given` that anything reached, and the share beyond it of those that have come to `given`."""
        share = 1.0
        for number in range(bin_of(given) + 1, len(self._reached)):
            reached = self._reached[number]
            if reached:
                share *= max(0.0, 1.0 - self._ended[number] / reached)
            yield last_of(number), share

    def share_beyond(self, value: int, *, given: int = 0) -> float:
        """The probability that a length exceeds `value`, of one that has come to `given` and goes on.

        What ended in the bin of `given` or of `value` does not count against it.
        """
        share = 1.0
        for number in range(bin_of(given) + 1, min(bin_of(value + 1), len(self._reached))):
            reached = self._reached[number]
            if reached:
                share *= max(0.0, 1.0 - self._ended[number] / reached)
        return share

    def curve(self) -> Curve:
        """What `share_beyond` says, for many questions: older by less than one end in 64 and by a few hundred changes."""
        if self._changes > _MOST_CHANGES:
            self._drawn_anew()
        if self._curve is None:
            share, shares = 1.0, []
            for reached, ended in zip(self._reached, self._ended, strict=True):
                if reached:
                    share *= max(0.0, 1.0 - ended / reached)
                shares.append(share)
            self._curve = Curve(shares)
        return self._curve

    def at(self, quantile: float, *, given: int = 0) -> int | None:
        """The length that at least this share does not exceed, of those that have come to `given` and go on; None beyond what was seen."""
        share = 1.0
        for number in range(bin_of(given) + 1, len(self._reached)):
            reached = self._reached[number]
            if reached:
                share *= max(0.0, 1.0 - self._ended[number] / reached)
            if share <= 1.0 - quantile + 1e-12:
                return last_of(number)
        return None

    def safe_at(self, quantile: float, confidence: float, *, given: int = 0) -> int | None:
        """`at`, raised for how few observations it rests on; None where these are too few.

        Enough is `least_observations`; from there the quantile is raised by the normal approximation of an order statistic's
        place, z(confidence) * sqrt(quantile * (1 - quantile) / observations). Like a curve it may be a few ends old.
        """
        name = quantile, confidence, bin_of(given)
        if self._changes > _MOST_CHANGES:
            self._drawn_anew()
        if name not in self._safe:
            self._safe[name] = self._safe_at(quantile, confidence, given)
        return self._safe[name]

    def _safe_at(self, quantile: float, confidence: float, given: int) -> int | None:
        observations = self.observations(given)
        if observations < least_observations(quantile, confidence):
            return None
        margin = _deviations(confidence) * sqrt(quantile * (1.0 - quantile) / observations)
        return self.at(min(1.0, quantile + margin), given=given)

    def _drawn_anew(self) -> None:
        self._curve = None
        self._safe.clear()
        self._changes = self._new_ends = 0
