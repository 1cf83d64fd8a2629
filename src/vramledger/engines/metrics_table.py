"""How an engine names its metrics and information endpoints, declared so that one prober serves all engines.

An engine's `metrics` module offers `METRICS`, a tuple of MetricName, and `INFO_METRICS`, a tuple of InfoMetric; its
`server_info` module offers `ENDPOINTS`, a tuple of InfoEndpoint, and may offer `SAMPLE_ENDPOINTS`, a tuple of SampleEndpoint.
`find_metrics`, `find_endpoints` and `find_sample_endpoints` of vramledger.engines give them by the engine's name.

Names of samples are alike for all engines where the quantity is. Gauges:

    running_requests  waiting_requests  swapped_requests  preempted_requests  requests (a limit or count otherwise named)
    kv_usage_ratio  kv_used_tokens  kv_free_tokens  kv_evictable_tokens  kv_pool_tokens  kv_pool_blocks
    state_usage_ratio  window_usage_ratio  host_kv_usage_ratio
    device_free_bytes  device_used_bytes  weights_bytes  kv_cache_bytes  graph_bytes  rss_bytes

Counters since the start begin with "total_": total_preempted_requests, total_prompt_tokens, total_generated_tokens,
total_prefix_queried_tokens, total_prefix_hit_tokens, total_finished_requests, total_rejected_requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite

from msgspec import Struct

from vramledger.measurement import Measurement
from vramledger.observation import Sample


class MetricName(Struct, frozen=True, kw_only=True):
    """One metric that becomes a sample.

    `name` is as the exposition text has it (a counter's ends in _total, a histogram's is its _sum or _count).
    `sample` ends in its unit; the printed value times `scale` is in that unit, and `whole` says that it is then a
    whole number. `labels` are the metric's labels whose values tell samples of one name apart; `rank_label` is the
    one that holds the world rank. `source` names the engine's file and the releases that have the metric.
    """

    name: str
    sample: str
    source: str
    scale: float = 1
    whole: bool = False
    labels: tuple[str, ...] = ()
    rank_label: str = ""


class InfoMetric(Struct, frozen=True, kw_only=True):
    """A metric whose labels are facts. `read` takes the labels and what to name as the source; it raises nothing for
    values that are missing or odd, but leaves them out."""

    name: str
    read: Callable[[Mapping[str, str], str], Measurement]
    source: str


class InfoEndpoint(Struct, frozen=True, kw_only=True):
    """A path that answers GET with facts of the instance.

    `read` takes the body and what to name as the source; it raises InputError for a body that is no such answer. `signs` are
    texts that every such answer holds and those of other engines do not all hold, by which a saved answer is known.
    """

    path: str
    read: Callable[[bytes, str], Measurement]
    source: str
    signs: tuple[str, ...] = ()


class SampleEndpoint(Struct, frozen=True, kw_only=True):
    """A path that answers GET with quantities of the moment that no metric of the engine's exposition has.

    `read` takes the body, the time of the answer and what to name as the source; it raises InputError for a body that is
    no such answer.
    """

    path: str
    read: Callable[[bytes, float, str], tuple[Sample, ...]]
    source: str


def names_by_metric(table: Iterable[MetricName]) -> dict[str, MetricName]:
    """The table by the metric's name."""
    return {item.name: item for item in table}


def sample_of(
    names: Mapping[str, MetricName],
    name: str,
    labels: Mapping[str, str],
    value: float,
    *,
    at_s: float,
    source: str,
) -> Sample | None:
    """One line of an exposition as a sample; None for a metric that the table lacks and for NaN and infinities."""
    metric = names.get(name)
    if metric is None or not isfinite(value):
        return None
    scaled = value * metric.scale
    if not isfinite(scaled):
        return None
    rank = labels.get(metric.rank_label, "") if metric.rank_label else ""
    return Sample(
        at_s=at_s,
        source=source,
        name=metric.sample,
        value=round(scaled) if metric.whole else scaled,
        rank=int(rank) if rank.isascii() and rank.isdigit() and len(rank) < 7 else None,
        label=",".join(f"{label}={labels[label]}" for label in metric.labels if label in labels),
    )
