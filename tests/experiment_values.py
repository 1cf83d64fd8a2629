"""An experiment whose every part was found, small enough to follow by hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vramledger.evidence import measured
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import (
    Check,
    Drift,
    Experiment,
    ForecastError,
    LatencyModel,
    LoadFigures,
    OperatingPoint,
    PoolConfirmed,
    Stage,
    StepState,
    Target,
    Trend,
)
from vramledger.simulation.settings import Slo
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.summary import Quantiles

BEGAN_S = 1_796_000_000.0
MS = 1_000_000


def quantiles(count: int, typical_ms: int) -> Quantiles:
    """`count` cases around `typical_ms`, the slowest at four times."""
    return Quantiles(
        count=count,
        mean=typical_ms * 1.2 * MS,
        p50=typical_ms * MS,
        p90=2 * typical_ms * MS,
        p95=2 * typical_ms * MS,
        p99=3 * typical_ms * MS,
        max=4 * typical_ms * MS,
    )


def stage(
    name: str, per_s: float, *, step: Step = Step.MIXED, seconds: float = 60.0, **changes: Any
) -> Stage:
    """A stretch of Poisson load that was sent as it should be and answered whole."""
    offered = round(per_s * seconds)
    figures = LoadFigures(
        offered=offered,
        offered_per_s=per_s,
        finished=offered,
        good=offered,
        ttft_ns=quantiles(offered, 200),
        tpot_ns=quantiles(offered, 40),
        latency_ns=quantiles(offered, 2_000),
        prompt_tokens=300 * offered,
        output_tokens=100 * offered,
        preemptions=0,
        kv_usage_peak_ratio=0.5,
    )
    found = Stage(
        step=step,
        name=name,
        kind=Kind.SHORT if step is Step.SHORT else Kind.MIXED,
        per_s=per_s,
        seconds=seconds,
        seed=1,
        began_s=BEGAN_S,
        ended_s=BEGAN_S + seconds,
        records=f"records/{name}.parquet",
        measured=figures,
        drift=Drift(late_ns=quantiles(offered, 0)),
    )
    return replace(found, **changes)


def point(**changes: Any) -> OperatingPoint:
    found = OperatingPoint(
        per_s=4.0,
        low_per_s=3.6,
        high_per_s=4.4,
        confidence=0.95,
        goodput=0.96,
        risk=0.04,
        beyond_per_s=6.0,
        binds="time to first token",
        headroom_bytes=5 * 2**30,
        words="4 requests/s",
    )
    return replace(found, **changes)


def check(name: str, step: Step, **changes: Any) -> Check:
    return replace(Check(name=name, step=step, passed=True, source="metrics", at_s=BEGAN_S + 900), **changes)


def trend(name: str = "engine memory", **changes: Any) -> Trend:
    found = Trend(
        name=name,
        source="host",
        unit="bytes",
        slope_per_hour=1000.0,
        low_per_hour=-5000.0,
        high_per_hour=7000.0,
        confidence=0.95,
        verdict="flat",
    )
    return replace(found, **changes)


def experiment(engine: str = "vllm", **changes: Any) -> Experiment:
    """Two ladders, a steady stretch, a knee at 4 requests/s, every test passed."""
    found = Experiment(
        made_by="vramledger 0.1.0",
        began_s=BEGAN_S,
        plan=ExperimentPlan(slo=Slo(ttft_ms=2000.0, tpot_ms=200.0)),
        target=Target(
            url="http://127.0.0.1:8000",
            engine_url="http://127.0.0.1:8000",
            engine=engine,
            model="org/model",
        ),
        steps=(
            StepState(step=Step.LOAD, state="skipped", why="the engine was not started here"),
            StepState(step=Step.MIXED, state="done"),
        ),
        pool=PoolConfirmed(engine_tokens=32_768, engine_blocks=2048, block_size=16, source="metrics"),
        stages=(
            stage("short-1", 8.0, step=Step.SHORT),
            stage("mixed-1", 2.0),
            stage("mixed-2", 4.0),
            stage("mixed-3", 6.0),
            stage("steady", 3.2, step=Step.STEADY, seconds=1800.0),
        ),
        trends=(trend(),),
        checks=(
            check(
                "kv_returned_after_cancellation",
                Step.DISTURBED,
                before=0.0,
                after=0.0,
                unit="tokens",
            ),
            check("rolling_update", Step.RESTART, smallest_headroom_bytes=2 * 2**30),
            check("recovery_headroom", Step.RESTART, smallest_headroom_bytes=3 * 2**30),
            check("gateway reservations returned", Step.STEADY),
        ),
        latency_model=LatencyModel(
            step=StepModel(
                overhead_ps=2_000_000_000,
                floor_ps=8_000_000_000,
                token_ps=50_000_000,
                decode_seq_ps=100_000_000,
                kv_token_ps=20_000,
                evidence=measured("experiment"),
            ),
            stages=("short-1", "mixed-1"),
            fitted_requests=600,
            held_out_requests=100,
            relative_error=0.06,
        ),
        forecast_errors=(
            ForecastError(stage="mixed-2", figure="ttft_p50_ns", forecast=1.1, measured=1.0, relative=0.1),
            ForecastError(stage="mixed-3", figure="ttft_p50_ns", forecast=0.7, measured=1.0, relative=-0.3),
        ),
        point=point(),
        verdict="holds 4 requests/s",
    )
    return replace(found, **changes)
