"""The published capacity: what `vramledger capacity --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SCHEMA_VERSION, SchemaVersion
from vramledger.manifest.declared import CapacityResult, Interval, Latency
from vramledger.report.load_conditions import Conditions, ConditionsDocument, conditions_document
from vramledger.report.simulation_document import (
    MS,
    GroupDocument,
    PoolDocument,
    QuantilesDocument,
    group_document,
    pool_document,
    quantiles_document,
)
from vramledger.search.capacity.result import BurstRoom, Capacity, Change, Percentiles, Relief, RestartRoom

METHOD = (
    "loads are the workload's arrivals sent so many times as fast, none left out; bracket, then the bracket cut until it is as "
    "narrow as `resolution`, on the same requests at every load; a load counts only if every load tried below it is met. Interval: "
    "the loads at which the goodput's band crosses the aim, a percentile bootstrap over blocks of consecutive requests"
)


class BandDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A goodput with its confidence band."""

    low: float
    expected: float
    high: float


class PercentilesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Of a time at one load, the worst replication's."""

    p50: float
    p95: float
    p99: float


class LoadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One load that was tried; percentiles are the worst replication's."""

    load: Annotated[float, Meta(description="Multiple of the workload's own arrival rate.")]
    requests_per_s: float
    goodput: BandDocument
    ttft_p99_ms: float
    tpot_p99_ms: float
    preemptions: int
    used_p95: Annotated[float, Meta(description="Share of the pool's blocks in use, p95 over time.")]
    left_at_last_arrival: Annotated[
        int, Meta(description="Requests not ended when the last came: a queue that grew if it is long.")
    ]
    ttft_ms: Annotated[
        PercentilesDocument | None, Meta(description="Null in documents of earlier versions.")
    ] = None
    tpot_ms: PercentilesDocument | None = None
    latency_ms: PercentilesDocument | None = None


class BurstDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A burst of `factor` times the operating load for `lasts_s`, from a quarter of the run on; factor 1 is the same requests without
    a burst."""

    factor: float
    lasts_s: float
    requests: Annotated[int, Meta(description="Those sent in the burst, over all replications.")]
    goodput: Annotated[float, Meta(description="Share of them that met every aim.")]


class RestartDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What an outage does. `calm_s` is how long after the restart a hundred requests in a row are served as was asked,
    null where the workload ends first."""

    down_s: float
    herd_requests: Annotated[int, Meta(description="Requests that come at once when it is back.")]
    herd_goodput: float
    calm_s: float | None


class ReliefDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The goodput at the first load beyond the answer with a quarter more of one resource."""

    resource: str
    change: str
    goodput: float
    recovered: Annotated[
        float, Meta(description="Share of the missed requests that are served well with it.")
    ]


class ChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity with one thing changed; null where that could not be had."""

    factor: str
    change: str
    requests_per_s: float | None
    relative: Annotated[float | None, Meta(description="Change of the capacity, -0.1 is a tenth less.")]
    is_least: Annotated[bool, Meta(description="Every load tried was met: it is at least that.")]
    refusal: str | None


class CapacityDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The largest load that a plan serves well, and how sure that is."""

    schema_version: SchemaVersion
    kind: Literal["capacity"]
    summary: str
    conditions: ConditionsDocument
    method: str
    requests_per_s: Annotated[float, Meta(description="0 where no load meets the aims.")]
    low_requests_per_s: float
    high_requests_per_s: float
    confidence: float
    resolution: Annotated[float, Meta(description="How fine, as a share of the answer.")]
    load: Annotated[float, Meta(description="Multiple of the workload's own arrival rate.")]
    base_requests_per_s: float
    replications: int
    requests: Annotated[int, Meta(description="Of all replications.")]
    runs: Annotated[int, Meta(description="Simulations behind this answer.")]
    is_monotone: Annotated[
        bool, Meta(description="Whether no load above one that misses the aim meets it again.")
    ]
    binds: Annotated[
        tuple[str, ...],
        Meta(
            description="pool, activation, max_num_seqs or latency: those of which a quarter more recovers at least half of what "
            "the first load beyond misses, the most first."
        ),
    ]
    reliefs: tuple[ReliefDocument, ...]
    at: Annotated[GroupDocument | None, Meta(description="Requests at the answer's load.")]
    pool: PoolDocument | None
    active_tokens: QuantilesDocument
    peak_tokens: Annotated[QuantilesDocument, Meta(description="The most in each twentieth of a run.")]
    operating_requests_per_s: Annotated[float, Meta(description="What bursts and restarts are told at.")]
    bursts: tuple[BurstDocument, ...]
    restarts: tuple[RestartDocument, ...]
    sensitivity: tuple[ChangeDocument, ...]
    loads: tuple[LoadDocument, ...]
    notes: tuple[str, ...]
    capacity_results: Annotated[
        tuple[CapacityResult, ...],
        Meta(
            description="What `vramledger manifest --capacity FILE` reads; only with --at, which says when."
        ),
    ]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A capacity and what it holds under. `at` is the time that a manifest shall name, `arrival` the kind of arrivals."""

    conditions: Conditions
    capacity: Capacity
    arrival: Literal["poisson", "trace", "steady", "burst"] = "trace"
    at: str | None = None

    @property
    def summary(self) -> str:
        return summary_of(self.capacity, is_trace=self.arrival == "trace")


def summary_of(found: Capacity, *, is_trace: bool = True) -> str:
    """The answer in a sentence."""
    slo = found.slo
    aims = ", ".join(
        f"{name} {limit:g} ms"
        for name, limit in (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("latency", slo.latency_ms))
        if limit is not None
    )
    share = f"{found.aim:.2%} of what is offered within {aims}"
    if not found.load:
        least = min(point.per_s for point in found.points)
        return f"no load serves {share}, down to {least:.3g} requests/s"
    scale = f"{found.load:.3g} x the trace's own {found.base_per_s:.3g}/s" if is_trace else ""
    if found.beyond is None:
        return f"at least {found.per_s:.4g} requests/s serve {share}{scale and ' ('}{scale}{scale and ')'}: every load tried does"
    low, high = found.low * found.base_per_s, found.high * found.base_per_s
    return (
        f"{found.per_s:.4g} requests/s ({found.confidence:.0%} interval {low:.4g} to {high:.4g}{scale and '; '}{scale}) serve {share}; "
        f"{found.beyond * found.base_per_s:.4g}/s do not"
    )


def capacity_document(answer: Answer) -> CapacityDocument:
    """The capacity as it is published."""
    found = answer.capacity
    return CapacityDocument(
        schema_version=SCHEMA_VERSION,
        kind="capacity",
        summary=answer.summary,
        conditions=conditions_document(answer.conditions),
        method=METHOD,
        requests_per_s=found.per_s,
        low_requests_per_s=found.low * found.base_per_s,
        high_requests_per_s=found.high * found.base_per_s,
        confidence=found.confidence,
        resolution=found.resolution,
        load=found.load,
        base_requests_per_s=found.base_per_s,
        replications=found.replications,
        requests=found.requests,
        runs=found.runs,
        is_monotone=found.is_monotone,
        binds=found.binds,
        reliefs=tuple(_relief(item) for item in found.reliefs),
        at=None if found.at is None else group_document(found.at),
        pool=None if found.pool is None else pool_document(found.pool),
        active_tokens=quantiles_document(found.active_tokens),
        peak_tokens=quantiles_document(found.peak_tokens),
        operating_requests_per_s=found.operating_load * found.base_per_s,
        bursts=tuple(_burst(item) for item in found.bursts),
        restarts=tuple(_restart(item) for item in found.restarts),
        sensitivity=tuple(_change(item) for item in found.changes),
        loads=tuple(
            LoadDocument(
                load=point.load,
                requests_per_s=point.per_s,
                goodput=BandDocument(
                    low=point.goodput.low, expected=point.goodput.expected, high=point.goodput.high
                ),
                ttft_p99_ms=point.ttft_p99_ms,
                tpot_p99_ms=point.tpot_p99_ms,
                preemptions=point.preemptions,
                used_p95=point.used_p95,
                left_at_last_arrival=point.left_at_last_arrival,
                ttft_ms=_percentiles(point.ttft_ms),
                tpot_ms=_percentiles(point.tpot_ms),
                latency_ms=_percentiles(point.latency_ms),
            )
            for point in found.points
        ),
        notes=found.notes,
        capacity_results=() if answer.at is None or found.at is None else (_result(answer, answer.at),),
    )


def _percentiles(found: Percentiles) -> PercentilesDocument:
    return PercentilesDocument(p50=found.p50, p95=found.p95, p99=found.p99)


def _relief(item: Relief) -> ReliefDocument:
    return ReliefDocument(
        resource=item.resource, change=item.change, goodput=item.goodput, recovered=item.recovered
    )


def _burst(item: BurstRoom) -> BurstDocument:
    return BurstDocument(
        factor=item.factor, lasts_s=item.lasts_s, requests=item.requests, goodput=item.goodput
    )


def _restart(item: RestartRoom) -> RestartDocument:
    return RestartDocument(
        down_s=item.down_s, herd_requests=item.herd, herd_goodput=item.herd_goodput, calm_s=item.calm_s
    )


def _change(item: Change) -> ChangeDocument:
    return ChangeDocument(
        factor=item.factor,
        change=item.change,
        requests_per_s=item.per_s,
        relative=item.relative,
        is_least=item.is_least,
        refusal=item.refusal or None,
    )


def _result(answer: Answer, at: str) -> CapacityResult:
    """The operating point as a manifest keeps it."""
    found, requests = answer.capacity, answer.capacity.at
    assert requests is not None
    slo, limits = (
        found.slo,
        {"ttft": found.slo.ttft_ms, "tpot": found.slo.tpot_ms, "e2e": found.slo.latency_ms},
    )
    values = {"ttft": requests.ttft_ps, "tpot": requests.tpot_ps, "e2e": requests.latency_ps}
    latencies = []
    for metric, quantiles in values.items():
        limit = limits[metric]
        for percentile in (50, 95, 99):
            latencies.append(
                Latency(
                    metric=metric,  # type: ignore[arg-type]
                    percentile=percentile,
                    seconds=getattr(quantiles, f"p{percentile}") / MS / 1000,
                    limit_s=None if limit is None else limit / 1000,
                )
            )
    pool = found.pool
    return CapacityResult(
        arrival=answer.arrival,
        requests_per_s=found.per_s,
        prompt_tokens=requests.prompt_tokens // max(requests.offered, 1),
        output_tokens=requests.output_tokens // max(requests.offered, 1),
        slo=f"{found.aim:.2%} of offered: TTFT {slo.ttft_ms}, TPOT {slo.tpot_ms}, latency {slo.latency_ms} ms",
        goodput_requests_per_s=found.per_s * requests.goodput,
        goodput_interval=Interval(
            low=found.low * found.base_per_s, high=found.high * found.base_per_s, confidence=found.confidence
        ),
        latencies=tuple(latencies),
        preemptions=requests.preemptions,
        kv_usage_peak_ratio=None if pool is None else pool.used_blocks.max / max(pool.usable_blocks, 1),
        duration_s=requests.seconds,
        source=f"simulated by vramledger; step time {answer.conditions.settings.step.evidence.kind.value}: "
        f"{answer.conditions.settings.step.evidence.source}"[:4000],
        at=at,
    )
