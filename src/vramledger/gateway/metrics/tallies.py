"""Counts by label and histograms, as plain numbers of one thread. Adding costs well under a microsecond."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from vramledger.gateway.metrics.metric import HistogramValue, Metric, Series
from vramledger.gateway.record import plain_word

OTHER = "other"
NOBODY = "none"


class Tally:
    """A counter by its labels."""

    __slots__ = ("_values", "metric")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._values: dict[tuple[str, ...], float] = {} if metric.labels else {(): 0}

    def add(self, labels: tuple[str, ...], much: float = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + much

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def series(self) -> Series:
        return Series(metric=self.metric, values=list(self._values.items()))


class HistogramTally:
    """A histogram by its labels."""

    __slots__ = ("_counts", "_totals", "metric")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._totals: dict[tuple[str, ...], float] = {}
        if not metric.labels:
            self._counts[()], self._totals[()] = [0] * (len(metric.buckets) + 1), 0.0

    def add(self, labels: tuple[str, ...], value: float) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self.metric.buckets) + 1)
            self._totals[labels] = 0.0
        counts[bisect_left(self.metric.buckets, value)] += 1
        self._totals[labels] += value

    def count(self, *labels: str) -> int:
        return sum(self._counts.get(labels, ()))

    def series(self) -> Series:
        return Series(metric=self.metric, values=list(self._values()))

    def _values(self) -> Iterator[tuple[tuple[str, ...], HistogramValue]]:
        for labels, counts in self._counts.items():
            yield labels, HistogramValue(counts=tuple(counts), total=self._totals[labels])


class Names:
    """Names from outside as values of a label: at most so many, all others are one. Those given beforehand always have a place."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int, given: tuple[str, ...] = ()) -> None:
        self._most = max(most, len(given))
        self._known = {name: _label(name) for name in given}

    def of(self, name: str) -> str:
        """Its label, if it has one."""
        return self._known.get(name, OTHER)

    def learn(self, name: str) -> str:
        """Its label, which it is given if there is still one to give."""
        label = self._known.get(name)
        if label is None:
            if len(self._known) >= self._most or len(name) > 1024:
                return OTHER
            label = self._known[name] = _label(name)
        return label


def _label(name: str) -> str:
    return plain_word(name) or NOBODY
