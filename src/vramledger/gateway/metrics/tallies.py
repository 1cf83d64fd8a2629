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

    __slots__ = ("_cells", "metric")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._cells: dict[tuple[str, ...], list[float]] = {}
        """Observations by bucket, and at the end their sum."""
        if not metric.labels:
            self._cells[()] = self._nothing()

    def _nothing(self) -> list[float]:
        return [0] * (len(self.metric.buckets) + 2)

    def add(self, labels: tuple[str, ...], value: float) -> None:
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = self._nothing()
        cell[bisect_left(self.metric.buckets, value)] += 1
        cell[-1] += value

    def count(self, *labels: str) -> int:
        return int(sum(self._cells.get(labels, (0,))[:-1]))

    def series(self) -> Series:
        return Series(metric=self.metric, values=list(self._values()))

    def _values(self) -> Iterator[tuple[tuple[str, ...], HistogramValue]]:
        for labels, cell in self._cells.items():
            yield labels, HistogramValue(counts=tuple(int(count) for count in cell[:-1]), total=cell[-1])


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
