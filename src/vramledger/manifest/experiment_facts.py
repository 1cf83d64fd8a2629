"""An experiment's value as parts of a manifest: operating points, tests, and what only an experiment tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import Check, Experiment, ForecastError, LoadFigures, OperatingPoint, Stage
from vramledger.manifest.declared import CapacityResult, Facts, Interval, Latency, Trial
from vramledger.manifest.derived import TESTS
from vramledger.manifest.experiment_result import (
    CheckResult,
    ExperimentResult,
    ForecastErrorResult,
    LoadConditions,
    OperatingPointResult,
    PoolResult,
    StepTimes,
    TrendResult,
)
from vramledger.manifest.measured import utc
from vramledger.simulation.settings import Slo
from vramledger.simulation.summary import Quantiles

Arrival = Literal["steady", "poisson", "burst", "trace", "closed"]
TrialName = Literal["kv_returned_after_cancellation", "rolling_update", "recovery_headroom"]

FREE_BLOCKS = "free blocks"
"""The unit of a check that counts the pool's free blocks before and after."""
_LADDER = (Step.MIXED, Step.SHORT)
_LONGEST = 4000
_EPOCH = "1970-01-01T00:00:00Z"
# By nearest rank a percentile is told only where at least one case lies above it.
_TOLD_FROM = ((50, "p50", 2), (95, "p95", 20), (99, "p99", 100))


class ExperimentFacts(Struct, frozen=True, kw_only=True):
    """What of an experiment goes into a manifest."""

    capacity_results: tuple[CapacityResult, ...]
    tests: tuple[Trial, ...]
    result: ExperimentResult


def facts_of(experiment: Experiment, *, source: str = "experiment.json") -> ExperimentFacts:
    """The operating point, every whole stage of load, the tests that passed or failed, and the result. `source` names the experiment.

    A stage whose client was late itself gives no latencies: they might be the client's. A check that nothing tells is no test.
    """
    counted = tuple(stage for stage in experiment.stages if stage.is_whole and stage.measured.offered)
    return ExperimentFacts(
        capacity_results=(
            *_knee(experiment, counted, source),
            *(_stage(experiment, counted, stage, source) for stage in counted),
        ),
        tests=tuple(_trials(experiment, source)),
        result=_result(experiment, counted),
    )


def with_experiment(facts: Facts, found: ExperimentFacts) -> Facts:
    """Declarations with what the experiment found: its operating points after theirs, its tests in place of theirs of the same
    name."""
    run = {test.name for test in found.tests}
    return replace(
        facts,
        capacity_results=(*facts.capacity_results, *found.capacity_results),
        tests=(*(test for test in facts.tests if test.name not in run), *found.tests),
    )


def slo_text(slo: Slo, goodput: float) -> str:
    """ "95 % of requests within ttft 2 s, tpot 0.2 s"."""
    limits = [
        f"{name} {limit_ms / 1000:g} s"
        for name, limit_ms in (("ttft", slo.ttft_ms), ("tpot", slo.tpot_ms), ("e2e", slo.latency_ms))
        if limit_ms is not None
    ]
    return f"{goodput * 100:g} % of requests {'within ' + ', '.join(limits) if limits else 'answered'}"


def _knee(experiment: Experiment, counted: Sequence[Stage], source: str) -> tuple[CapacityResult, ...]:
    point = experiment.point
    if point is None:
        return ()
    nearest = _nearest(counted, point)
    low, high = sorted((point.low_per_s * point.goodput, point.high_per_s * point.goodput))
    return (
        CapacityResult(
            arrival=_arrival(experiment.plan),
            requests_per_s=point.per_s,
            prompt_tokens=None if nearest is None else _mean(nearest.measured.prompt_tokens, nearest),
            output_tokens=None if nearest is None else _mean(nearest.measured.output_tokens, nearest),
            slo=slo_text(experiment.plan.slo, experiment.plan.goodput),
            goodput_requests_per_s=point.per_s * point.goodput,
            goodput_interval=Interval(low=low, high=high, confidence=point.confidence),
            latencies=() if nearest is None else _latencies(experiment.plan, nearest),
            source=_cut(f"{source}: operating point{f', {point.words}' if point.words else ''}"),
            at=utc(experiment.stages[-1].ended_s if experiment.stages else experiment.began_s) or _EPOCH,
        ),
    )


def _stage(experiment: Experiment, counted: Sequence[Stage], stage: Stage, source: str) -> CapacityResult:
    figures, plan, point = stage.measured, experiment.plan, experiment.point
    arrival, more = _arrival(plan), ""
    # Of agents a stage's rate counts sessions.
    per_s = figures.offered_per_s if stage.kind is Kind.TOOLS else stage.per_s
    if _is_beyond(stage, counted, point):
        # The one sense in which an experiment without clustered arrivals has a burst: for a while more comes than is served well.
        arrival = "burst"
        more = f", {plan.arrivals} arrivals beyond the operating point for {stage.seconds:g} s"
    return CapacityResult(
        arrival=arrival,
        requests_per_s=per_s,
        prompt_tokens=_mean(figures.prompt_tokens, stage),
        output_tokens=_mean(figures.output_tokens, stage),
        slo=slo_text(plan.slo, plan.goodput),
        goodput_requests_per_s=per_s * figures.goodput,
        latencies=_latencies(plan, stage),
        preemptions=figures.preemptions,
        kv_usage_peak_ratio=figures.kv_usage_peak_ratio,
        duration_s=max(stage.ended_s - stage.began_s, 0.0),
        source=_cut(f"{source}: stage {stage.name}, {stage.kind.value}{more}"),
        at=utc(stage.ended_s) or _EPOCH,
    )


def _arrival(plan: ExperimentPlan) -> Arrival:
    """Gamma gaps are bursts where they vary more than those of a Poisson stream."""
    if plan.arrivals == "gamma":
        return "burst" if plan.burstiness > 1 else "poisson" if plan.burstiness == 1 else "steady"
    if plan.arrivals == "even":
        return "steady"
    return plan.arrivals


def _latencies(plan: ExperimentPlan, stage: Stage) -> tuple[Latency, ...]:
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


def _mean(tokens: int, stage: Stage) -> int | None:
    answered = stage.measured.ttft_ns.count or stage.measured.finished
    return round(tokens / answered) if answered and tokens > 0 else None


def _climbed(counted: Iterable[Stage]) -> list[Stage]:
    """The stages that the point is found from: of the mixed load where there is one, else of the short."""
    found = list(counted)
    for step in _LADDER:
        of_step = [stage for stage in found if stage.step is step]
        if of_step:
            return of_step
    return []


def _nearest(counted: Iterable[Stage], point: OperatingPoint) -> Stage | None:
    """The stage whose load is nearest to the point's and not above it."""
    below = [stage for stage in _climbed(counted) if stage.per_s <= point.per_s * (1 + 1e-9)]
    return max(below, key=lambda stage: (stage.drift.is_trusted, stage.per_s), default=None)


def _is_beyond(stage: Stage, counted: Iterable[Stage], point: OperatingPoint | None) -> bool:
    return (
        point is not None
        and point.beyond_per_s is not None
        and stage.per_s >= point.beyond_per_s
        and any(stage is other for other in _climbed(counted))
    )


def _trials(experiment: Experiment, source: str) -> Iterable[Trial]:
    """One trial a name. Where the same was looked at more than once, it passed if it passed every time."""
    for name in TESTS:
        found = [check for check in experiment.checks if check.name == name and check.passed is not None]
        if not found:
            continue
        failed = [check for check in found if not check.passed]
        told = failed[-1] if failed else found[-1]
        before, after = _blocks(told)
        headrooms = [
            check.smallest_headroom_bytes for check in found if check.smallest_headroom_bytes is not None
        ]
        yield Trial(
            name=cast("TrialName", name),
            passed=not failed,
            source=_cut(f"{source}: {told.step.value}{f', {told.source}' if told.source else ''}"),
            at=utc(told.at_s or experiment.began_s) or _EPOCH,
            free_blocks_before=before,
            free_blocks_after=after,
            smallest_headroom_bytes=min(headrooms, default=None),
        )


def _blocks(check: Check) -> tuple[int | None, int | None]:
    if check.unit != FREE_BLOCKS or check.before is None or check.after is None:
        return None, None
    return max(round(check.before), 0), max(round(check.after), 0)


def _result(experiment: Experiment, counted: Sequence[Stage]) -> ExperimentResult:
    plan, target, point, fitted = (
        experiment.plan,
        experiment.target,
        experiment.point,
        experiment.latency_model,
    )
    nearest = None if point is None else _nearest(counted, point)
    steady = [stage for stage in counted if stage.step is Step.STEADY]
    longest = max(steady, key=lambda stage: stage.ended_s - stage.began_s, default=None)
    pool = experiment.pool
    return ExperimentResult(
        made_by=_cut(experiment.made_by),
        began_at=utc(experiment.began_s),
        engine=_cut(target.engine) if target.engine is not None else None,
        engine_version=_cut(target.engine_version) if target.engine_version is not None else None,
        model=_cut(PurePath(target.model.replace("\\", "/")).name),
        context_len=target.context_len,
        seed=plan.seed,
        conditions=_conditions(experiment, nearest),
        operating_point=None if point is None else _point(plan, point, nearest),
        latency_model=None
        if fitted is None
        else StepTimes(
            overhead_ps=fitted.step.overhead_ps,
            floor_ps=fitted.step.floor_ps,
            token_ps=fitted.step.token_ps,
            decode_seq_ps=fitted.step.decode_seq_ps,
            kv_token_ps=fitted.step.kv_token_ps,
            pair_ps_per_1024=fitted.step.pair_ps_per_1024,
            stages=fitted.stages,
            fitted_requests=fitted.fitted_requests,
            held_out_requests=fitted.held_out_requests,
            relative_error=fitted.relative_error,
        ),
        pool=None
        if pool is None
        else PoolResult(
            tokens=pool.engine_tokens,
            blocks=pool.engine_blocks,
            block_size=pool.block_size,
            agrees=pool.agrees,
            source=_cut(pool.source),
        ),
        trends=tuple(
            TrendResult(
                name=_cut(trend.name),
                source=_cut(trend.source),
                unit=_cut(trend.unit),
                slope_per_hour=trend.slope_per_hour,
                low_per_hour=trend.low_per_hour,
                high_per_hour=trend.high_per_hour,
                confidence=trend.confidence,
                allowance_per_hour=trend.allowance_per_hour,
                verdict=trend.verdict,
            )
            for trend in experiment.trends
        ),
        steady_requests_per_s=None if longest is None else longest.per_s,
        steady_s=None if longest is None else max(longest.ended_s - longest.began_s, 0.0),
        steady_latencies=() if longest is None else _latencies(plan, longest),
        checks=tuple(
            CheckResult(name=_cut(check.name), passed=check.passed, words=_cut(check.words))
            for check in experiment.checks
        ),
        forecast_errors=_errors(experiment.forecast_errors),
        skipped=tuple(
            _cut(f"{step.step.value}: {step.why or 'not asked for'}")
            for step in experiment.steps
            if step.state == "skipped"
        ),
        failed=tuple(
            _cut(f"{step.step.value}: {step.why or 'failed'}")
            for step in experiment.steps
            if step.state == "failed"
        ),
        failure=None
        if experiment.failure is None
        else _cut(experiment.failure.classification or experiment.failure.words or "the engine ended"),
        is_drift_trusted=all(stage.drift.is_trusted for stage in counted if _counts(stage, point)),
    )


def _counts(stage: Stage, point: OperatingPoint | None) -> bool:
    """Whether the point rests on a stage: far beyond it the client may be late without that changing it."""
    return point is None or point.beyond_per_s is None or stage.per_s <= point.beyond_per_s


def _conditions(experiment: Experiment, nearest: Stage | None) -> LoadConditions:
    plan, figures = experiment.plan, None if nearest is None else nearest.measured
    context = experiment.target.context_len
    made = "cohorts made by the experiment" + ("" if context is None else f" for {context} tokens")
    return LoadConditions(
        ttft_limit_s=_seconds(plan.slo.ttft_ms),
        tpot_limit_s=_seconds(plan.slo.tpot_ms),
        latency_limit_s=_seconds(plan.slo.latency_ms),
        goodput=plan.goodput,
        workload=made if plan.workload is None else _cut(PurePath(plan.workload.replace("\\", "/")).name),
        arrivals=plan.arrivals,
        burstiness=plan.burstiness,
        is_behind_gateway=experiment.target.gateway_url is not None,
        prompt_tokens_mean=None if figures is None else _mean_exactly(figures.prompt_tokens, figures),
        output_tokens_mean=None if figures is None else _mean_exactly(figures.output_tokens, figures),
    )


def _mean_exactly(tokens: int, figures: LoadFigures) -> float | None:
    answered = figures.ttft_ns.count or figures.finished
    return tokens / answered if answered and tokens > 0 else None


def _seconds(limit_ms: float | None) -> float | None:
    return None if limit_ms is None else limit_ms / 1000


def _point(plan: ExperimentPlan, point: OperatingPoint, nearest: Stage | None) -> OperatingPointResult:
    return OperatingPointResult(
        requests_per_s=point.per_s,
        low_requests_per_s=min(point.low_per_s, point.per_s),
        high_requests_per_s=max(point.high_per_s, point.per_s),
        confidence=point.confidence,
        goodput=point.goodput,
        risk=point.risk,
        beyond_requests_per_s=point.beyond_per_s,
        binds=_cut(point.binds),
        headroom_bytes=point.headroom_bytes,
        is_limit_of_load=point.is_limit_of_load,
        seen_at_requests_per_s=None if nearest is None else nearest.per_s,
        latencies=() if nearest is None else _latencies(plan, nearest),
    )


def _errors(found: Sequence[ForecastError]) -> tuple[ForecastErrorResult, ...]:
    by_figure: dict[str, list[float]] = {}
    for item in found:
        by_figure.setdefault(item.figure, []).append(abs(item.relative))
    return tuple(
        ForecastErrorResult(
            figure=_cut(figure),
            stages=len(sizes),
            mean_absolute_relative=sum(sizes) / len(sizes),
            largest_absolute_relative=max(sizes),
        )
        for figure, sizes in sorted(by_figure.items())
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
