"""What a metric is, and the sample that it becomes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

PREFIX = "vramledger_"


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(Struct, frozen=True, kw_only=True):
    """One family by Prometheus' conventions: base units, and the unit is the name's end; a counter's name goes on with `_total`.

    `field` is where its value comes from, where that is one field of a state; over `divisor` it is in the metric's unit. `buckets` are a
    histogram's upper bounds without the last, which is infinite.
    """

    name: str
    kind: MetricKind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    field: str = ""
    divisor: int = 1
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        return PREFIX + self.name

    @property
    def sample_names(self) -> tuple[str, ...]:
        """Names of the lines that it makes. A histogram whose values may be negative has no sum, for that may fall."""
        if self.kind is MetricKind.COUNTER:
            return (f"{self.family}_total",)
        if self.kind is MetricKind.GAUGE:
            return (self.family,)
        if self.buckets[0] < 0:
            return (f"{self.family}_bucket",)
        return tuple(f"{self.family}_{part}" for part in ("bucket", "count", "sum"))


class Series(Struct, frozen=True, kw_only=True):
    """A metric with its values by label. Of a histogram a value is `HistogramValue`."""

    metric: Metric
    values: Iterable[tuple[tuple[str, ...], float | HistogramValue]]


class HistogramValue(Struct, frozen=True, kw_only=True):
    """`counts` are observations by bucket, not summed up, the last one's without bound."""

    counts: tuple[int, ...]
    total: float


def counter(name: str, text: str, *, unit: str = "", labels: tuple[str, ...] = (), field: str = "") -> Metric:
    return Metric(name=name, kind=MetricKind.COUNTER, help=text, unit=unit, labels=labels, field=field)


def gauge(
    name: str, text: str, *, unit: str = "", labels: tuple[str, ...] = (), field: str = "", divisor: int = 1
) -> Metric:
    return Metric(
        name=name, kind=MetricKind.GAUGE, help=text, unit=unit, labels=labels, field=field, divisor=divisor
    )


def histogram(
    name: str, text: str, *, unit: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()
) -> Metric:
    return Metric(name=name, kind=MetricKind.HISTOGRAM, help=text, unit=unit, labels=labels, buckets=buckets)
