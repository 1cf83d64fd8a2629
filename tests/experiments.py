"""An experiment written by hand, with all that one may hold: for pages and documents that show any of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from vramledger.evidence import measured
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import (
    Check,
    Drift,
    Experiment,
    Failure,
    ForecastError,
    LatencyModel,
    LoadFigures,
    OperatingPoint,
    PoolConfirmed,
    Snapshot,
    Stage,
    StepState,
    Target,
    Trend,
)
from vramledger.experiment.served import Served
from vramledger.ledger import Phase
from vramledger.observation import Sample
from vramledger.simulation.settings import Slo
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.summary import Quantiles, quantiles_of
from vramledger.units import MIB

BEGAN_S = 1_796_037_000.0
PROCESS = "proc:41"
METRICS = "metrics:http://127.0.0.1:8080/metrics"
PLAN = ExperimentPlan(
    slo=Slo(ttft_ms=2000.0, tpot_ms=120.0), stage_s=60.0, steady_s=600.0, seed=7, arrivals="gamma", burstiness=0.5
)  # fmt: skip
RATES = (0.5, 0.75, 1.125, 1.6875, 2.53, 2.1)
TARGET = Target(
    url="http://127.0.0.1:8080",
    engine_url="http://127.0.0.1:8080",
    engine="llamacpp",
    engine_version="b11549",
    model="SmolLM2-135M-Instruct.Q4_1",
    context_len=2048,
    launched=("llama-server", "-m", "model.gguf", "--port", "8080"),
    pid=41,
)


def whole_experiment() -> Experiment:
    """One that went through every step, and holds."""
    stages = stages_of(Step.SHORT, Kind.SHORT, 3.0, 0.0)
    stages += stages_of(Step.MIXED, Kind.MIXED, 1.0, stages[-1].ended_s - BEGAN_S + 5)
    for step, kind in (
        (Step.PREFIX, Kind.PREFIX_HIT),
        (Step.PREFIX, Kind.PREFIX_MISS),
        (Step.DISTURBED, Kind.CANCELLED),
        (Step.DISTURBED, Kind.TOOLS),
    ):
        stages.append(stage(step, kind, 1.4, stages[-1].ended_s - BEGAN_S + 5, 60.0))
    stages.append(stage(Step.STEADY, Kind.MIXED, 1.35, stages[-1].ended_s - BEGAN_S + 5, 600.0))
    return Experiment(
        made_by="vramledger 0.7",
        began_s=BEGAN_S,
        plan=PLAN,
        target=TARGET,
        manifest_digest="content-sha256:" + "ab" * 32,
        steps=tuple(
            StepState(
                step=step,
                state="skipped" if step is Step.RESTART else "done",
                why="the engine was not started by this command" if step is Step.RESTART else "",
                began_s=BEGAN_S + 60 * number,
                ended_s=BEGAN_S + 60 * number + 55,
            )
            for number, step in enumerate(Step)
        ),
        snapshots=tuple(
            Snapshot(label=label, at_s=BEGAN_S + at_s, samples=(memory(at_s),))
            for label, at_s in (("before load", -8.0), ("after load", -4.0), ("after warm-up", -1.0), ("after drain", 1700.0))
        ),
        pool=PoolConfirmed(
            planned_tokens=8192, planned_tokens_low=8192, planned_tokens_high=8192, engine_tokens=8192, block_size=1,
            source="/props", agrees=True, words="8,192 tokens by the engine (/props), as planned",
        ),
        stages=tuple(stages),
        trends=(
            Trend(
                name="rss_bytes", source=PROCESS, unit="bytes", slope_per_hour=3.1 * MIB, low_per_hour=-0.4 * MIB,
                high_per_hour=6.6 * MIB, confidence=0.95, allowance_per_hour=16.0 * MIB, first=301.0 * MIB,
                last=301.5 * MIB, samples=600, verdict="flat", words="does not grow: 3.1 MiB an hour, 16.0 MiB allowed",
            ),
            Trend(
                name="kv_usage_at_rest_ratio", source=METRICS, unit="ratio", slope_per_hour=0.0, low_per_hour=-0.01,
                high_per_hour=0.01, confidence=0.95, samples=9, verdict="untold", words="too short or too few readings to say",
            ),
            Trend(
                name="ttft_ns", source="requests", unit="ns", slope_per_hour=4e6, low_per_hour=-90e6, high_per_hour=98e6,
                confidence=0.95, samples=810, verdict="flat", words="does not grow: 4 ms an hour",
            ),
        ),
        checks=(
            Check(
                name="kv_returned_after_cancellation", step=Step.DISTURBED, passed=True, before=8192, after=8192, unit="tokens",
                source="/slots", at_s=BEGAN_S + 900, words="free again 0.4 s after the last client left",
            ),
            Check(name="process_memory_back", step=Step.STEADY, passed=None, words="no threshold for it"),
        ),
        latency_model=LatencyModel(
            step=StepModel(
                overhead_ps=2_100_000_000, floor_ps=9_000_000_000, token_ps=700_000_000, decode_seq_ps=300_000_000,
                kv_token_ps=40_000, evidence=measured("stages short 1 to 3"),
            ),
            stages=("short 1", "short 2"), fitted_requests=80, held_out_requests=44, relative_error=0.083,
        ),
        forecast_errors=tuple(error for item in stages for error in errors(item)),
        point=OperatingPoint(
            per_s=1.69, low_per_s=1.52, high_per_s=1.83, confidence=0.95, goodput=0.962, risk=0.038, beyond_per_s=2.1,
            binds="time to first token", headroom_bytes=612 * MIB,
            words="holds 1.69 requests/s; time to first token is missed first",
        ),
        verdict="holds 1.69 requests/s (1.52 to 1.83 at 95 %) of this workload at TTFT 2 s, TPOT 120 ms; "
        "time to first token binds, 612 MiB of headroom",
        conditions=("one instance on 2 cores", "prompts made for this tokenizer"),
        notes=("the engine does not tell of preemptions",),
    )  # fmt: skip


def failed_experiment() -> Experiment:
    """One whose engine ran out of memory in the second ladder."""
    whole = whole_experiment()
    return replace(
        whole,
        steps=(
            *(item for item in whole.steps if item.step in (Step.LOAD, Step.WARM_UP, Step.POOL, Step.SHORT)),
            StepState(step=Step.MIXED, state="failed", why="the engine ended", began_s=BEGAN_S + 200, ended_s=BEGAN_S + 260),
        ),
        stages=whole.stages[:8],
        trends=(),
        checks=(),
        point=None,
        verdict="",
        failure=Failure(
            step=Step.MIXED, at_s=BEGAN_S + 260, stage="mixed 2", classification="activation peak",
            words="the engine ran out of device memory in prefill, before an aim was missed",
            evidence=("engine.log:311: CUDA out of memory. Tried to allocate 1.20 GiB",),
            remedies=("--max-num-batched-tokens 4096",),
        ),
    )  # fmt: skip


def stages_of(step: Step, kind: Kind, faster: float, from_s: float) -> list[Stage]:
    """A ladder, and a stage between its last two rungs."""
    out: list[Stage] = []
    for rate in RATES:
        out.append(stage(step, kind, rate * faster, from_s, 60.0, faster=faster, number=len(out) + 1))
        from_s += 63
    return out


def stage(
    step: Step,
    kind: Kind,
    per_s: float,
    from_s: float,
    seconds: float,
    *,
    faster: float = 1.0,
    number: int = 1,
) -> Stage:
    """A stretch of load of a queue that is full at twice the first knee."""
    name = f"{step.value} {number}" if kind.value == step.value else f"{step.value} {kind.value}"
    rows = rows_of(per_s / faster, seconds, seed=number)
    return Stage(
        step=step, kind=kind, name=name, per_s=per_s, seconds=seconds, seed=number, began_s=BEGAN_S + from_s,
        ended_s=BEGAN_S + from_s + seconds, records=f"records/{name.replace(' ', '-')}.parquet",
        measured=figures_of(rows, per_s, seconds), forecast=forecast_of(rows, per_s, seconds) if number > 2 else None,
        drift=Drift(late_ns=quantiles_of(range(0, 2_000_000, 20_000))),
    )  # fmt: skip


def rows_of(load: float, seconds: float, *, seed: int) -> tuple[Served, ...]:
    """One server that takes 0.35 s a request and more for a long one."""
    dice = random.Random(seed)
    at_s, free_s = 0.0, 0.0
    out: list[Served] = []
    while at_s < seconds:
        at_s += dice.expovariate(load * 1.0)
        work_s = 0.12 + dice.expovariate(1 / 0.3)
        begins = max(at_s, free_s)
        free_s = begins + work_s
        first, end = int((begins + 0.2 * work_s) * 1e9), int((begins + 3 * work_s) * 1e9)
        out.append(
            Served(
                number=len(out), due_ns=int(at_s * 1e9), sent_ns=int(at_s * 1e9) + 900_000, first_token_ns=first,
                last_token_ns=end, end_ns=end, asked_prompt_tokens=200, asked_output_tokens=40, prompt_tokens=200,
                cached_prompt_tokens=40, output_tokens=40, events=40, status=200, whole=True, attempts=1,
            )
        )  # fmt: skip
    return tuple(out)


def figures_of(rows: Sequence[Served], per_s: float, seconds: float) -> LoadFigures:
    """Rows in figures."""
    return LoadFigures(
        offered=len(rows), offered_per_s=per_s, finished=len(rows), good=sum(row.is_good(PLAN.slo) for row in rows),
        ttft_ns=times(row.ttft_ns for row in rows), tpot_ns=times(row.tpot_ns for row in rows),
        latency_ns=times(row.latency_ns for row in rows), prompt_tokens=200 * len(rows), cached_prompt_tokens=40 * len(rows),
        output_tokens=40 * len(rows), output_tokens_per_s=40 * len(rows) / seconds,
        kv_usage_peak_ratio=min(0.12 * per_s + 0.2, 1.0), running_peak=4,
    )  # fmt: skip


def forecast_of(rows: Sequence[Served], per_s: float, seconds: float) -> LoadFigures:
    """What was foretold: some tenths less than what came."""
    got = figures_of(rows, per_s, seconds)
    less = {
        name: scaled(getattr(got, name), factor)
        for name, factor in (("ttft_ns", 0.83), ("tpot_ns", 0.95), ("latency_ns", 0.9))
    }
    return replace(got, good=min(got.offered, round(got.good * 1.03)), **less)


def scaled(found: Quantiles, factor: float) -> Quantiles:
    """All of it times `factor`."""
    values = {name: int(getattr(found, name) * factor) for name in ("p50", "p90", "p95", "p99", "max")}
    return Quantiles(count=found.count, mean=found.mean * factor, **values)


def times(values: Iterable[int | None]) -> Quantiles:
    return quantiles_of(value for value in values if value is not None)


def errors(item: Stage) -> list[ForecastError]:
    if item.forecast is None:
        return []
    return [
        ForecastError(
            stage=item.name, figure="ttft_ns p99", forecast=float(item.forecast.ttft_ns.p99),
            measured=float(item.measured.ttft_ns.p99),
            relative=item.forecast.ttft_ns.p99 / item.measured.ttft_ns.p99 - 1,
        )
    ]  # fmt: skip


def memory(at_s: float, *, seed: int = 0) -> Sample:
    """What the process holds: nothing, then the weights, then the pool as it is touched."""
    dice = random.Random(f"{seed} {at_s}")
    size = 11.0 if at_s < -7 else 110 if at_s < -5 else 205 + 96 * min(max(at_s, 0) / 400, 1) + dice.random()
    return Sample(
        at_s=BEGAN_S + at_s,
        source=PROCESS,
        name="pss_bytes",
        value=int(size * MIB),
        pid=41,
        label="llama-server",
    )


def samples() -> tuple[Sample, ...]:
    """A reading a second from before the engine's start to after the last stage."""
    stages = whole_experiment().stages
    out = []
    for label, at_s, phase in (
        ("before load", -10, None), ("load", -8, Phase.LOAD), ("after load", -5, Phase.WARMUP), ("steady", 0, None)
    ):  # fmt: skip
        out.append(
            Sample(at_s=BEGAN_S + at_s, source="series", name="mark_count", value=1, label=label, phase=phase)
        )
    dice = random.Random(3)
    end = int(stages[-1].ended_s - BEGAN_S) + 20
    for at in range(-10, end):
        busy = next((item for item in stages if item.began_s <= BEGAN_S + at <= item.ended_s), None)
        running = 0 if busy is None else min(int(dice.expovariate(1 / (1 + busy.per_s))), 8)
        out.append(memory(float(at)))
        out.append(
            Sample(at_s=BEGAN_S + at, source=PROCESS, name="rss_bytes", value=out[-1].value + 9 * MIB, pid=41)
        )
        for name, value in (
            ("kv_used_tokens", running * 900 + dice.randrange(100)),
            ("running_requests", min(running, 4)),
            ("waiting_requests", max(running - 4, 0)),
        ):
            out.append(Sample(at_s=BEGAN_S + at, source=METRICS, name=name, value=value))
    return tuple(out)
