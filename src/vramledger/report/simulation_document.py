"""The published simulation: what `vramledger simulate --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.admission.settings import Reservation
from vramledger.documents.plan import SCHEMA_VERSION, SchemaVersion
from vramledger.report.load_conditions import Conditions, ConditionsDocument, conditions_document
from vramledger.simulation.admission import AdmissionCounts
from vramledger.simulation.findings import Finding, Level, Shortage
from vramledger.simulation.outcome import PoolCounters, Run
from vramledger.simulation.step_model import PS_PER_S
from vramledger.simulation.summary import (
    CURVE_PERCENTS,
    Curves,
    GroupSummary,
    PoolSummary,
    Quantiles,
    Summary,
)
from vramledger.simulation.tool_waits import ToolWaitRow

MS = PS_PER_S // 1000


class QuantilesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity over many cases: percentiles by nearest rank, off by at most `relative_error`; mean and max are exact."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    relative_error: float


class GroupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one tenant or cohort, or all of them.

    TTFT and queue time are over the requests that got so far, TPOT and latency over the finished ones; goodput is over all
    that were offered.
    """

    name: str
    offered: int
    finished: int
    cancelled: int
    never_fits: int
    expired: int
    livelocked: int
    unfinished: int
    rejected: int
    failed: int
    good: Annotated[int, Meta(description="Requests that met every aim.")]
    goodput: Annotated[float, Meta(description="good / offered.")]
    missed_ttft: int
    missed_tpot: int
    missed_latency: int
    ttft_ms: QuantilesDocument
    tpot_ms: Annotated[QuantilesDocument, Meta(description="Per output token after the first.")]
    latency_ms: QuantilesDocument
    queue_ms: QuantilesDocument
    offered_per_s: Annotated[float, Meta(description="While requests came.")]
    good_per_s: Annotated[float, Meta(description="offered_per_s x goodput.")]
    output_tokens_per_s: Annotated[float, Meta(description="From the first arrival to the last end.")]
    prompt_tokens: int
    output_tokens: int
    hit_tokens: Annotated[int, Meta(description="Prompt tokens found in the cache at first admission.")]
    recomputed_tokens: int
    preemptions: int
    preempted_requests: int
    seconds: float
    never_fits_numbers: Annotated[tuple[int, ...], Meta(description="The first of them, counted from 0.")]
    livelocked_numbers: tuple[int, ...]


class PoolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's pool over time, from samples at equal spaces of simulated time; seconds are null for never."""

    capacity_tokens: int
    usable_blocks: int
    active_tokens: Annotated[QuantilesDocument, Meta(description="Shared tokens counted once.")]
    logical_tokens: Annotated[QuantilesDocument, Meta(description="Shared tokens counted once a sequence.")]
    used_blocks: QuantilesDocument
    cached_blocks: QuantilesDocument
    waste_tokens: Annotated[
        QuantilesDocument | None, Meta(description="Room of used blocks that no token has.")
    ]
    running: QuantilesDocument
    waiting: QuantilesDocument
    full_share: Annotated[
        float, Meta(description="Share of the time with at least 95 % of the blocks in use.")
    ]
    idle_share: Annotated[float, Meta(description="Share of the time in which nothing runs or waits.")]
    full_s: float
    first_full_s: float | None
    peak_s: float | None
    samples: int
    spacing_s: float


class CountersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over a run and one replica."""

    hit_tokens: int
    looked_up_tokens: int
    copied_blocks: int
    evicted_blocks: int
    preemptions: int
    recomputed_tokens: int
    swapped_out_tokens: int
    swapped_in_tokens: int
    steps: int
    computed_tokens: int


class FindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One of the six ways to run out of memory; `at_s` is when it is first seen, null for never or no time."""

    shortage: Shortage
    level: Level
    summary: str
    at_s: float | None


class SamplesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The pool at each instant, by the column."""

    at_s: tuple[float, ...]
    replica: tuple[int, ...]
    used_blocks: tuple[int, ...]
    cached_blocks: tuple[int, ...]
    free_blocks: tuple[int, ...]
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    logical_tokens: tuple[int, ...]
    physical_tokens: tuple[int, ...]


class CurvesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The distributions of all requests' times: for each of `percent` the value that so many of a hundred do not exceed; empty
    where no request got so far."""

    percent: tuple[int, ...]
    ttft_ms: tuple[float, ...]
    tpot_ms: tuple[float, ...]
    latency_ms: tuple[float, ...]
    queue_ms: tuple[float, ...]


class ToolWaitDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What one way to treat a conversation's KV between its turns wastes, over all waits (InferCept's accounting)."""

    policy: Annotated[
        str,
        Meta(
            description="preserve, swap, discard, patient ones that preserve for a while first, one whose patience is learned, and the least of the pure ones in "
            "hindsight, which none can beat."
        ),
    ]
    wait_quantile: Annotated[
        float | None, Meta(description="Of the waits, for how long a patient one preserves.")
    ]
    patience_s: float | None
    waits: int
    found_share: Annotated[float, Meta(description="Waits after which the context was still on the device.")]
    waste_token_s: Annotated[float, Meta(description="idle_token_s + stalled_token_s.")]
    idle_token_s: Annotated[float, Meta(description="Token-seconds held for nobody.")]
    stalled_token_s: Annotated[
        float, Meta(description="Held while a context is computed anew, others' included.")
    ]
    link_bytes: int
    recomputed_tokens: int
    recompute_s: float
    recompute_flops: Annotated[int, Meta(description="0 where the model is not known.")]


class AdmissionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy in front of the engine's queue decided, over all replicas."""

    policy: Annotated[str, Meta(description="As --admission named it.")]
    reservation: Annotated[Reservation, Meta(description="How much output it reserved room for.")]
    let_in_at_once: int
    waited: Annotated[int, Meta(description="Requests that it kept, whatever became of them then.")]
    refused: Annotated[dict[str, int], Meta(description="Requests refused, by the rule that decided.")]


class VerdictDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the workload is served as was asked."""

    holds: bool
    summary: str


class SimulationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a workload over a pool."""

    schema_version: SchemaVersion
    kind: Literal["simulation"]
    verdict: VerdictDocument
    conditions: ConditionsDocument
    requests: GroupDocument
    groups: tuple[GroupDocument, ...]
    pool: PoolDocument
    counters: Annotated[tuple[CountersDocument, ...], Meta(description="One a replica.")]
    findings: tuple[FindingDocument, ...]
    never_served: Annotated[tuple[str, ...], Meta(description="Never-fits and livelock, requests named.")]
    end_s: float
    is_compiled: bool
    notes: tuple[str, ...]
    tool_waits: Annotated[
        tuple[ToolWaitDocument, ...] | None, Meta(description="Null unless --compare-tool-waits asked.")
    ]
    admission: Annotated[AdmissionDocument | None, Meta(description="Null unless --admission asked.")] = None
    curves: Annotated[CurvesDocument | None, Meta(description="Null in documents of earlier versions.")] = (
        None
    )
    samples: SamplesDocument


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """One run with all that is said of it, as values."""

    conditions: Conditions
    summary: Summary
    pool: PoolSummary
    run: Run
    findings: tuple[Finding, ...]
    never_served: tuple[str, ...]
    tool_waits: tuple[ToolWaitRow, ...] | None = None
    admission: AdmissionCounts | None = None

    @property
    def holds(self) -> bool:
        """Whether enough of what was offered was served well."""
        return self.summary.all.goodput >= self.conditions.goodput and not self.never_served

    @property
    def verdict(self) -> str:
        requests, slo = self.summary.all, self.conditions.settings.slo
        aims = [
            f"{name} {limit:g} ms"
            for name, limit in (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("latency", slo.latency_ms))
            if limit is not None
        ]
        if not aims:
            share = requests.finished / requests.offered if requests.offered else 1.0
            return f"{share:.2%} of {requests.offered:,} offered finished; no aim was set, so how well is not judged"
        return (
            f"goodput {requests.goodput:.2%} of {requests.offered:,} offered within {', '.join(aims)}; at least "
            f"{self.conditions.goodput:.2%} asked: {'held' if requests.goodput >= self.conditions.goodput else 'missed'}"
        )


def simulation_document(found: Simulation) -> SimulationDocument:
    """The run as it is published."""
    return SimulationDocument(
        schema_version=SCHEMA_VERSION,
        kind="simulation",
        verdict=VerdictDocument(holds=found.holds, summary=found.verdict),
        conditions=conditions_document(found.conditions),
        requests=group_document(found.summary.all),
        groups=tuple(group_document(group) for group in found.summary.groups),
        pool=pool_document(found.pool),
        counters=tuple(_counters(item) for item in found.run.counters),
        findings=tuple(
            FindingDocument(
                shortage=item.shortage, level=item.level, summary=item.summary, at_s=seconds(item.at_ps)
            )
            for item in found.findings
        ),
        never_served=found.never_served,
        end_s=found.run.end_ps / PS_PER_S,
        is_compiled=found.run.is_compiled,
        notes=found.run.notes,
        tool_waits=None if found.tool_waits is None else tuple(_tool_wait(row) for row in found.tool_waits),
        admission=None if found.admission is None else _admission(found.admission),
        curves=_curves(found.summary.curves),
        samples=_samples(found.run),
    )


def _admission(found: AdmissionCounts) -> AdmissionDocument:
    return AdmissionDocument(**{name: getattr(found, name) for name in AdmissionDocument.__struct_fields__})


def group_document(group: GroupSummary) -> GroupDocument:
    return GroupDocument(
        name=group.name,
        offered=group.offered,
        finished=group.finished,
        cancelled=group.cancelled,
        never_fits=group.never_fits,
        expired=group.expired,
        livelocked=group.livelocked,
        unfinished=group.unfinished,
        rejected=group.rejected,
        failed=group.failed,
        good=group.good,
        goodput=group.goodput,
        missed_ttft=group.missed_ttft,
        missed_tpot=group.missed_tpot,
        missed_latency=group.missed_latency,
        ttft_ms=quantiles_document(group.ttft_ps, MS),
        tpot_ms=quantiles_document(group.tpot_ps, MS),
        latency_ms=quantiles_document(group.latency_ps, MS),
        queue_ms=quantiles_document(group.queue_ps, MS),
        offered_per_s=group.offered_per_s,
        good_per_s=group.good_per_s,
        output_tokens_per_s=group.output_tokens_per_s,
        prompt_tokens=group.prompt_tokens,
        output_tokens=group.output_tokens,
        hit_tokens=group.hit_tokens,
        recomputed_tokens=group.recomputed_tokens,
        preemptions=group.preemptions,
        preempted_requests=group.preempted,
        seconds=group.seconds,
        never_fits_numbers=group.never_fits_numbers,
        livelocked_numbers=group.livelocked_numbers,
    )


def pool_document(pool: PoolSummary) -> PoolDocument:
    return PoolDocument(
        capacity_tokens=pool.capacity_tokens,
        usable_blocks=pool.usable_blocks,
        active_tokens=quantiles_document(pool.active_tokens),
        logical_tokens=quantiles_document(pool.logical_tokens),
        used_blocks=quantiles_document(pool.used_blocks),
        cached_blocks=quantiles_document(pool.cached_blocks),
        waste_tokens=None if pool.waste_tokens is None else quantiles_document(pool.waste_tokens),
        running=quantiles_document(pool.running),
        waiting=quantiles_document(pool.waiting),
        full_share=pool.full_share,
        idle_share=pool.idle_share,
        full_s=pool.full_ps / PS_PER_S,
        first_full_s=seconds(pool.first_full_ps),
        peak_s=seconds(pool.peak_ps),
        samples=pool.samples,
        spacing_s=pool.spacing_ps / PS_PER_S,
    )


def quantiles_document(found: Quantiles, unit: int = 1) -> QuantilesDocument:
    """`unit` of the values in one of the document's."""
    return QuantilesDocument(
        count=found.count,
        mean=found.mean / unit,
        p50=found.p50 / unit,
        p90=found.p90 / unit,
        p95=found.p95 / unit,
        p99=found.p99 / unit,
        max=found.max / unit,
        relative_error=found.relative_error,
    )


def seconds(time_ps: int) -> float | None:
    """A time in seconds; -1 is never."""
    return None if time_ps < 0 else time_ps / PS_PER_S


def _counters(found: PoolCounters) -> CountersDocument:
    return CountersDocument(**{name: getattr(found, name) for name in CountersDocument.__struct_fields__})


def _tool_wait(row: ToolWaitRow) -> ToolWaitDocument:
    return ToolWaitDocument(**{name: getattr(row, name) for name in ToolWaitDocument.__struct_fields__})


def _curves(found: Curves) -> CurvesDocument:
    names = ("ttft", "tpot", "latency", "queue")
    return CurvesDocument(
        percent=CURVE_PERCENTS,
        **{f"{name}_ms": tuple(value / MS for value in getattr(found, f"{name}_ps")) for name in names},
    )


def _samples(run: Run) -> SamplesDocument:
    names = [name for name in SamplesDocument.__struct_fields__ if name != "at_s"]
    return SamplesDocument(
        at_s=tuple(sample.at_ps / PS_PER_S for sample in run.samples),
        **{name: tuple(getattr(sample, name) for sample in run.samples) for name in names},
    )
