"""The operating points of a manifest out of an experiment's stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from vramledger.experiment.operating_point import RAISES_OR_HOLDS, point_kind
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import Experiment, OperatingPoint, Stage
from vramledger.manifest.declared import CapacityResult, Interval, Latency
from vramledger.manifest.experiment_result import LONGEST_TEXT, limits_text
from vramledger.manifest.measured import utc
from vramledger.simulation.settings import Slo
from vramledger.simulation.summary import Quantiles

Arrival = Literal["steady", "poisson", "burst", "trace", "closed"]

_EPOCH = "1970-01-01T00:00:00Z"
# By nearest rank a percentile is told only where at least one case lies above it.
_TOLD_FROM = ((50, "p50", 2), (95, "p95", 20), (99, "p99", 100))


def capacity_results(
    experiment: Experiment, counted: Sequence[Stage], source: str
) -> tuple[CapacityResult, ...]:
    """The point where there is one, then every counted stage."""
    return (
        *_knee(experiment, counted, source),
        *(_stage(experiment, counted, stage, source) for stage in counted),
    )


def date(at_s: float) -> str:
    """Unix time as a manifest has it; the first second of the epoch for what is no date."""
    return utc(at_s) or _EPOCH


def cut(text: str) -> str:
    """At most as many characters as a text of a manifest may have."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 3] + "..."


def slo_text(slo: Slo, goodput: float) -> str:
    """ "95 % of requests within ttft 2 s, tpot 0.2 s"."""
    return limits_text(seconds_of(slo.ttft_ms), seconds_of(slo.tpot_ms), seconds_of(slo.latency_ms), goodput)


def seconds_of(limit_ms: float | None) -> float | None:
    """An aim as a manifest has it."""
    return None if limit_ms is None else limit_ms / 1000


def _knee(experiment: Experiment, counted: Sequence[Stage], source: str) -> tuple[CapacityResult, ...]:
    point = experiment.point
    if point is None:
        return ()
    nearest = nearest_stage(counted, point)
    low, high = sorted((point.low_per_s * point.goodput, point.high_per_s * point.goodput))
    return (
        CapacityResult(
            arrival=_arrival(experiment.plan),
            requests_per_s=point.per_s,
            prompt_tokens=None if nearest is None else _whole(nearest.measured.prompt_tokens_mean),
            output_tokens=None if nearest is None else _whole(nearest.measured.output_tokens_mean),
            slo=slo_text(experiment.plan.slo, experiment.plan.goodput),
            goodput_requests_per_s=point.per_s * point.goodput,
            goodput_interval=Interval(low=low, high=high, confidence=point.confidence),
            latencies=() if nearest is None else latencies_of(experiment.plan, nearest),
            source=cut(f"{source}: operating point{f', {point.words}' if point.words else ''}"),
            at=date(experiment.stages[-1].ended_s if experiment.stages else experiment.began_s),
        ),
    )


def _stage(experiment: Experiment, counted: Sequence[Stage], stage: Stage, source: str) -> CapacityResult:
    figures, plan, point = stage.measured, experiment.plan, experiment.point
    arrival, more = _arrival(plan), ""
    # Of agents a stage's rate counts sessions.
    per_s = figures.offered_per_s if stage.kind is Kind.TOOLS else stage.per_s
    if stage.kind is Kind.BURST:
        arrival = "burst"
    elif _is_beyond(stage, counted, point):
        # The one sense in which an experiment without clustered arrivals has a burst: for a while more comes than is served well.
        arrival = "burst"
        more = f", {plan.arrivals} arrivals beyond the operating point for {stage.seconds:g} s"
    return CapacityResult(
        arrival=arrival,
        requests_per_s=per_s,
        prompt_tokens=_whole(figures.prompt_tokens_mean),
        output_tokens=_whole(figures.output_tokens_mean),
        slo=slo_text(plan.slo, plan.goodput),
        goodput_requests_per_s=per_s * figures.goodput,
        latencies=latencies_of(plan, stage),
        preemptions=figures.preemptions,
        kv_usage_peak_ratio=figures.kv_usage_peak_ratio,
        duration_s=max(stage.ended_s - stage.began_s, 0.0),
        source=cut(f"{source}: stage {stage.name}, {stage.kind.value}{more}"),
        at=date(stage.ended_s),
    )


def _arrival(plan: ExperimentPlan) -> Arrival:
    """Gamma gaps are bursts where they vary more than those of a Poisson stream."""
    if plan.arrivals == "gamma":
        return "burst" if plan.burstiness > 1 else "poisson" if plan.burstiness == 1 else "steady"
    if plan.arrivals == "even":
        return "steady"
    return plan.arrivals


def latencies_of(plan: ExperimentPlan, stage: Stage) -> tuple[Latency, ...]:
    """The limits stand beside the percentiles that the goodput asked for speaks of."""
    if not stage.drift.is_trusted:
        return ()
    figures, slo = stage.measured, plan.slo
    found: list[Latency] = []
    metrics: tuple[tuple[Literal["ttft", "tpot", "e2e"], Quantiles, float | None], ...] = (
        ("ttft", figures.ttft_ns, slo.ttft_ms),
        ("tpot", figures.tpot_ns, slo.tpot_ms),
        ("e2e", figures.latency_ns, slo.latency_ms),
    )
    for metric, seen, limit_ms in metrics:
        for percentile, name, needed in _TOLD_FROM:
            if seen.count < needed:
                continue
            is_limited = limit_ms is not None and percentile <= plan.goodput * 100
            found.append(
                Latency(
                    metric=metric,
                    percentile=percentile,
                    seconds=max(getattr(seen, name), 0) / 1e9,
                    limit_s=limit_ms / 1000 if is_limited and limit_ms is not None else None,
                )
            )
    return tuple(found)


def _whole(tokens: float | None) -> int | None:
    return None if tokens is None else round(tokens)


def _of_point(counted: Iterable[Stage]) -> list[Stage]:
    """The stages that the point is found from."""
    found = list(counted)
    kind = point_kind(found)
    return [stage for stage in found if stage.step in RAISES_OR_HOLDS and stage.kind is kind]


def nearest_stage(counted: Iterable[Stage], point: OperatingPoint) -> Stage | None:
    """The stage whose load is nearest to the point's and not above it."""
    below = [stage for stage in _of_point(counted) if stage.per_s <= point.per_s * (1 + 1e-9)]
    return max(below, key=lambda stage: (stage.drift.is_trusted, stage.per_s), default=None)


def rested_on(counted: Iterable[Stage], point: OperatingPoint | None) -> list[Stage]:
    """The stages of load that the point rests on: those of its kind up to the least load that missed the aims. Without a point all."""
    found = list(counted)
    of_point = _of_point(found)
    if point is None or not of_point:
        return found
    return [stage for stage in of_point if point.beyond_per_s is None or stage.per_s <= point.beyond_per_s]


def _is_beyond(stage: Stage, counted: Iterable[Stage], point: OperatingPoint | None) -> bool:
    return (
        point is not None
        and point.beyond_per_s is not None
        and stage.per_s >= point.beyond_per_s
        and stage.step is not Step.STEADY
        and any(stage is other for other in _of_point(counted))
    )
