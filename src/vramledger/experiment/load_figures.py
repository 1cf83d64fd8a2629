"""A stretch of load in figures: what was offered, what became of it, how long it took, what the engine's samples say of the pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from vramledger.experiment.result import Drift, LoadFigures
from vramledger.experiment.served import NS_PER_MS, Served
from vramledger.observation import Sample
from vramledger.simulation.settings import Slo
from vramledger.simulation.summary import quantiles_of

NS_PER_S = 1_000_000_000
REFUSED = (429, 503)
LEAST_LATE_NS = 5 * NS_PER_MS
"""A client that is late by less is not looked at: that is a scheduler's slice and a connection's handshake."""
LATE_SHARE = 0.05
"""More than this share of the median time to first token changes what a percentile of it says."""
PREEMPTED = "total_preempted_requests"


def figures_of(
    served: Sequence[Served],
    slo: Slo,
    *,
    samples: Iterable[Sample] = (),
    pool_tokens: int | None = None,
) -> LoadFigures:
    """The figures of the rows of one stage. Each row is in exactly one of finished, refused, failed and left.

    `samples` are those taken while it lasted; where they tell the pool's use in tokens only, it is a share of `pool_tokens`. Prompt tokens
    are the engine's count, the workload's where it told none of a request that it answered; output tokens the engine's, else
    pieces of output.
    """
    rows = list(served)
    left = [row for row in rows if row.left]
    finished = [row for row in rows if row.whole and not row.left]
    refused = [row for row in rows if not (row.whole or row.left) and row.status in REFUSED]
    begun = [row for row in rows if row.first_token_ns >= 0]
    prompts = [row.asked_prompt_tokens if row.prompt_tokens is None else row.prompt_tokens for row in begun]
    cached = [row.cached_prompt_tokens for row in rows if row.cached_prompt_tokens is not None]
    output_tokens = sum(row.events if row.output_tokens is None else row.output_tokens for row in rows)
    first_ns = min((row.due_ns for row in rows), default=0)
    last_ns = max((max(row.end_ns, row.due_ns) for row in rows), default=0)
    readings = list(samples)
    return LoadFigures(
        offered=len(rows),
        offered_per_s=_per_s(len(rows) - 1, max((row.due_ns for row in rows), default=0) - first_ns),
        finished=len(finished),
        refused=len(refused),
        failed=len(rows) - len(left) - len(finished) - len(refused),
        left=len(left),
        good=sum(row.is_good(slo) for row in rows),
        ttft_ns=quantiles_of(row.ttft_ns for row in rows if row.ttft_ns is not None),
        tpot_ns=quantiles_of(row.tpot_ns for row in rows if row.tpot_ns is not None),
        latency_ns=quantiles_of(row.latency_ns for row in finished if row.latency_ns is not None),
        prompt_tokens=sum(prompts),
        cached_prompt_tokens=sum(cached) if cached else None,
        output_tokens=output_tokens,
        output_tokens_per_s=_per_s(output_tokens, last_ns - first_ns),
        preemptions=grown(readings, PREEMPTED),
        kv_usage_peak_ratio=_kv_peak(readings, pool_tokens),
        running_peak=None if (peak := _running_peak(readings)) is None else int(peak),
    )


def drift_of(served: Iterable[Served]) -> Drift:
    """How late the client sent what it sent. It is trusted while the 99th percentile stays within 5 ms or a twentieth of
    the median time to first token, whichever is more.

    A time to first token counts from when a request was due, so that a late client makes an engine look slower and never faster.
    """
    rows = list(served)
    late_ns = quantiles_of(max(row.sent_ns - row.due_ns, 0) for row in rows if row.sent_ns >= 0)
    ttft_ns = quantiles_of(row.ttft_ns for row in rows if row.ttft_ns is not None)
    return Drift(late_ns=late_ns, is_trusted=late_ns.p99 <= max(LEAST_LATE_NS, LATE_SHARE * ttft_ns.p50))


def grown(samples: Iterable[Sample], name: str) -> int | None:
    """By how much counters of a name grew between their first and last sample, all of one source added up and the source that tells
    most; one that fell was reset. None where no counter has two samples."""
    series: dict[tuple[str, str, int | None], list[Sample]] = {}
    for item in samples:
        if item.name == name:
            series.setdefault((item.source, item.label, item.rank), []).append(item)
    sources: dict[str, float] = {}
    for (source, _, _), found in series.items():
        if len(found) > 1:
            found.sort(key=lambda item: item.at_s)
            steps = (
                later.value - earlier.value if later.value >= earlier.value else later.value
                for earlier, later in pairwise(found)
            )
            sources[source] = sources.get(source, 0) + sum(steps)
    return int(max(sources.values())) if sources else None


def at_once(samples: Iterable[Sample], name: str) -> dict[tuple[str, float], float]:
    """A quantity of a source at each instant, its replicas and ranks added up."""
    found: dict[tuple[str, float], float] = {}
    for item in samples:
        if item.name == name:
            key = (item.source, item.at_s)
            found[key] = found.get(key, 0) + item.value
    return found


def _running_peak(samples: Iterable[Sample]) -> float | None:
    return max(at_once(samples, "running_requests").values(), default=None)


def _kv_peak(samples: Sequence[Sample], pool_tokens: int | None) -> float | None:
    """The fullest that any replica's pool was; tokens that several sequences share may be told of each, and fill a pool no more than
    once."""
    told = max((float(item.value) for item in samples if item.name == "kv_usage_ratio"), default=None)
    if told is not None:
        return told
    sizes = [item.value for item in samples if item.name == "kv_pool_tokens" and item.value > 0]
    whole = pool_tokens or (max(sizes) if sizes else None)
    used = max((item.value for item in samples if item.name == "kv_used_tokens"), default=None)
    return None if whole is None or used is None else min(used / whole, 1.0)


def _per_s(count: int, span_ns: int) -> float:
    return count * NS_PER_S / span_ns if span_ns > 0 and count > 0 else 0.0
