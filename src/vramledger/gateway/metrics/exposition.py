"""Series as the text of a metrics endpoint.

prometheus_client writes it (Prometheus' format 0.0.4, OpenMetrics, escaping, which of them was asked for). Its own counters are not
used: a lock and a dictionary of children at each addition cost more than the gateway spends on a request's admission.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, cast

from vramledger.errors import InputError
from vramledger.gateway.metrics.metric import HistogramValue, Metric, MetricKind, Series

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family


def load_writer() -> None:
    """Imports what writes them, which takes a tenth of a second: before streams run. Raises InputError where it is not installed."""
    try:
        import prometheus_client.exposition  # noqa: F401
    except ImportError as error:
        raise InputError("metrics need prometheus-client: pip install 'vramledger[gateway]'") from error


def exposition(series: Iterable[Series], *, accept: str = "") -> tuple[bytes, str]:
    """The text and its content type, in the format that an Accept header asks for; figures of the gateway's process are added.

    Raises InputError where prometheus_client is not installed.
    """
    load_writer()
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Collector(series))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Collector:
    """What a registry asks for its families."""

    def __init__(self, series: Iterable[Series]) -> None:
        self._series = series

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> Iterator[Family]:
        for one in self._series:
            family = family_of(one)
            if family.samples:
                yield family


def family_of(series: Series) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    metric = series.metric
    name, text, labels, unit = metric.family, metric.help, metric.labels, metric.unit
    if metric.kind is MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, text, labels=labels, unit=unit)
        for values, value in series.values:
            told = cast(HistogramValue, value)
            histogram.add_metric(values, _summed_up(metric, told), told.total)
        return histogram
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = kind(name, text, labels=labels, unit=unit)
    for values, value in series.values:
        family.add_metric(values, cast(float, value))
    return family


def _summed_up(metric: Metric, value: HistogramValue) -> list[tuple[str, float]]:
    """(upper bound, observations up to it), the last without bound."""
    buckets: list[tuple[str, float]] = []
    seen = 0
    for bound, count in zip((*metric.buckets, inf), value.counts, strict=True):
        seen += count
        buckets.append(("+Inf" if bound == inf else str(bound), seen))
    return buckets
