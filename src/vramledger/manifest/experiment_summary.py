"""What only an experiment tells, as the manifest keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import PurePath

from vramledger.experiment.plan import ExperimentPlan, Step
from vramledger.experiment.result import Experiment, ForecastError, OperatingPoint, Stage
from vramledger.manifest.experiment_points import cut, latencies_of, nearest_stage, rested_on, seconds_of
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
from vramledger.simulation.step_model import PS_PER_NS


def result_of(experiment: Experiment, counted: Sequence[Stage]) -> ExperimentResult:
    """The result, its operating point seen at the nearest of the `counted` stages."""
    plan, target, point, fitted = (
        experiment.plan,
        experiment.target,
        experiment.point,
        experiment.latency_model,
    )
    nearest = None if point is None else nearest_stage(counted, point)
    steady = [stage for stage in counted if stage.step is Step.STEADY]
    longest = max(steady, key=lambda stage: stage.ended_s - stage.began_s, default=None)
    pool = experiment.pool
    return ExperimentResult(
        made_by=cut(experiment.made_by),
        began_at=utc(experiment.began_s),
        engine=cut(target.engine) if target.engine is not None else None,
        engine_version=cut(target.engine_version) if target.engine_version is not None else None,
        model=cut(PurePath(target.model.replace("\\", "/")).name),
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
            outside_ps=fitted.outside_ns * PS_PER_NS,
            stages=tuple(cut(name) for name in fitted.stages),
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
            source=cut(pool.source),
        ),
        trends=tuple(
            TrendResult(
                name=cut(trend.name),
                source=cut(trend.source),
                unit=cut(trend.unit),
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
        steady_latencies=() if longest is None else latencies_of(plan, longest),
        checks=tuple(
            CheckResult(name=cut(check.name), passed=check.passed, words=cut(check.words))
            for check in experiment.checks
        ),
        forecast_errors=_errors(experiment.forecast_errors),
        skipped=tuple(
            cut(f"{step.step.value}: {step.why or 'not asked for'}")
            for step in experiment.steps
            if step.state == "skipped"
        ),
        failed=tuple(
            cut(f"{step.step.value}: {step.why or 'failed'}")
            for step in experiment.steps
            if step.state == "failed"
        ),
        failure=None
        if experiment.failure is None
        else cut(experiment.failure.classification or experiment.failure.words or "the engine ended"),
        is_drift_trusted=all(stage.drift.is_trusted for stage in rested_on(counted, point)),
    )


def _conditions(experiment: Experiment, nearest: Stage | None) -> LoadConditions:
    plan, figures = experiment.plan, None if nearest is None else nearest.measured
    context = experiment.target.context_len
    made = "cohorts made by the experiment" + ("" if context is None else f" for {context} tokens")
    return LoadConditions(
        ttft_limit_s=seconds_of(plan.slo.ttft_ms),
        tpot_limit_s=seconds_of(plan.slo.tpot_ms),
        latency_limit_s=seconds_of(plan.slo.latency_ms),
        goodput=plan.goodput,
        workload=made if plan.workload is None else cut(PurePath(plan.workload.replace("\\", "/")).name),
        arrivals=plan.arrivals,
        burstiness=plan.burstiness,
        is_behind_gateway=experiment.target.gateway_url is not None,
        prompt_tokens_mean=None if figures is None else figures.prompt_tokens_mean,
        output_tokens_mean=None if figures is None else figures.output_tokens_mean,
    )


def _point(plan: ExperimentPlan, point: OperatingPoint, nearest: Stage | None) -> OperatingPointResult:
    return OperatingPointResult(
        requests_per_s=point.per_s,
        low_requests_per_s=min(point.low_per_s, point.per_s),
        high_requests_per_s=max(point.high_per_s, point.per_s),
        confidence=point.confidence,
        goodput=point.goodput,
        risk=point.risk,
        beyond_requests_per_s=point.beyond_per_s,
        binds=cut(point.binds),
        headroom_bytes=point.headroom_bytes,
        is_limit_of_load=point.is_limit_of_load,
        seen_at_requests_per_s=None if nearest is None else nearest.per_s,
        latencies=() if nearest is None else latencies_of(plan, nearest),
    )


def _errors(found: Sequence[ForecastError]) -> tuple[ForecastErrorResult, ...]:
    by_figure: dict[str, list[float]] = {}
    for item in found:
        if not isfinite(item.relative):
            continue
        by_figure.setdefault(item.figure, []).append(abs(item.relative))
    return tuple(
        ForecastErrorResult(
            figure=cut(figure),
            stages=len(sizes),
            mean_absolute_relative=sum(sizes) / len(sizes),
            largest_absolute_relative=max(sizes),
        )
        for figure, sizes in sorted(by_figure.items())
    )
