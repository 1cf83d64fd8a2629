"""A measured run simulated: with its recorded blocks, and a step model fitted on its first half."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace
from tools.fidelity.pools import Planned
from tools.fidelity.runs import PS_PER_S, MeasuredRun, Served

from vramledger.errors import InputError
from vramledger.simulation.from_plan import layout_of, scheduler_of
from vramledger.simulation.outcome import PoolCounters, PoolSample, RequestOutcome
from vramledger.simulation.roofline import IDEAL, roofline_step
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_fit import Timing, fit_run
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import WorkloadHeader

BLOCK_TOKENS = 16
SAMPLES = 2048
BOOST = 1.2


class Figure(Struct, frozen=True, kw_only=True):
    """One figure over some requests, in seconds."""

    name: str
    measured_s: float
    simulated_s: float

    @property
    def percent(self) -> float:
        return 100 * (self.simulated_s / self.measured_s - 1)


class Part(Struct, frozen=True, kw_only=True):
    """Figures over the fitted half, the other half, or all requests."""

    name: str
    figures: tuple[Figure, ...]


class Replay(Struct, frozen=True, kw_only=True):
    """What a simulation made of a run. `rounds` are the fit's mean errors, round by round; `roofline` the parts as simulated
    with the step model of the data sheet alone."""

    step: StepModel
    start: StepModel
    rounds: tuple[float, ...]
    parts: tuple[Part, ...]
    roofline: tuple[Part, ...]
    counters: PoolCounters
    usable_blocks: int
    samples: tuple[PoolSample, ...]
    admission_median_s: float
    admission_p95_s: float
    same_order: bool
    first: Figure


def replay(run: MeasuredRun, made: Planned) -> Replay:
    """Fits and simulates."""
    start = roofline_step(made.plan, made.checkpoint, made.device)
    # Memory keeps its clock, and a card's cores pass the data sheet's when they boost.
    fastest = replace(IDEAL, compute=BOOST)
    least = roofline_step(made.plan, made.checkpoint, made.device, efficiency=fastest)
    settings = settings_of(run, made, start)
    timings = [
        Timing(number=number, first_token_ps=row.first_token_ps, end_ps=row.end_ps)
        for number, row in enumerate(run.served)
    ]
    fit = fit_run(
        run.requests,
        timings,
        settings,
        block_tokens=BLOCK_TOKENS,
        least=least,
        source=f"{run.name}, vllm {run.engine_version}",
    )
    outcomes, counters, samples = simulated(run, replace(settings, step=fit.step))
    assumed, _, _ = simulated(run, settings)
    late = [abs(one.admitted_ps - row.scheduled_ps) for one, row in zip(outcomes, run.served, strict=True)]
    return Replay(
        step=fit.step,
        start=start,
        rounds=fit.rounds,
        parts=parts(run.served, outcomes),
        roofline=parts(run.served, assumed),
        counters=counters,
        usable_blocks=settings.layout.usable_blocks,
        samples=samples,
        admission_median_s=median(late) / PS_PER_S,
        admission_p95_s=percentile(late, 95) / PS_PER_S,
        first=Figure(
            name="first TTFT",
            measured_s=(run.served[0].first_token_ps - run.served[0].sent_ps) / PS_PER_S,
            simulated_s=(outcomes[0].first_token_ps - outcomes[0].sent_ps) / PS_PER_S,
        ),
        same_order=_order(row.scheduled_ps for row in run.served)
        == _order(one.admitted_ps for one in outcomes),
    )


def settings_of(run: MeasuredRun, made: Planned, step: StepModel) -> SimulationSettings:
    """The run's engine with its recorded blocks, the planned ones where none were recorded."""
    return SimulationSettings(
        layout=layout_of(made.plan, run.num_gpu_blocks),
        scheduler=scheduler_of(made.plan),
        step=step,
    )


def simulated(
    run: MeasuredRun, settings: SimulationSettings
) -> tuple[list[RequestOutcome], PoolCounters, tuple[PoolSample, ...]]:
    """The run's workload under `settings`."""
    from vramledger.workload.columns import Workload, columns_of

    header = WorkloadHeader(name=run.name, source=run.name, block_tokens=BLOCK_TOKENS)
    result, columns = simulate(Workload.of(header, columns_of(run.requests)), settings, samples=SAMPLES)
    if columns is None:
        raise InputError(f"{run.name}: no outcomes")
    return list(columns.outcomes()), result.counters[0], result.samples


def parts(served: Sequence[Served], outcomes: Sequence[RequestOutcome]) -> tuple[Part, ...]:
    """The three parts: the fitted half, the other one, all."""
    half = len(served) // 2
    return tuple(
        Part(name=name, figures=tuple(_figures(served[where], outcomes[where])))
        for name, where in (
            ("fitted half", slice(0, half)),
            ("other half", slice(half, None)),
            ("whole run", slice(None)),
        )
    )


def _figures(served: Sequence[Served], outcomes: Sequence[RequestOutcome]) -> list[Figure]:
    """Times count from when the client sent the request; TPOT is over the tokens after the first."""
    quantities: tuple[tuple[str, list[float], list[float]], ...] = (
        (
            "TTFT",
            [row.first_token_ps - row.sent_ps for row in served],
            [one.first_token_ps - one.sent_ps for one in outcomes],
        ),
        (
            "TPOT",
            [(row.end_ps - row.first_token_ps) / max(row.output_tokens - 1, 1) for row in served],
            [(one.end_ps - one.first_token_ps) / max(one.output_tokens - 1, 1) for one in outcomes],
        ),
        (
            "latency",
            [row.end_ps - row.sent_ps for row in served],
            [one.end_ps - one.sent_ps for one in outcomes],
        ),
    )
    found = []
    for name, measured, simulated in quantities:
        found.append(
            Figure(
                name=f"{name} mean",
                measured_s=fmean(measured) / PS_PER_S,
                simulated_s=fmean(simulated) / PS_PER_S,
            )
        )
        found += [
            Figure(
                name=f"{name} p{percent}",
                measured_s=percentile(measured, percent) / PS_PER_S,
                simulated_s=percentile(simulated, percent) / PS_PER_S,
            )
            for percent in (50, 90, 99)
        ]
    found.append(
        Figure(
            name="makespan",
            measured_s=max(row.end_ps for row in served) / PS_PER_S,
            simulated_s=max(one.end_ps for one in outcomes) / PS_PER_S,
        )
    )
    return found


def percentile(values: Iterable[float], percent: float) -> float:
    """With linear interpolation between ranks, as the published table has it."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def _order(times: Iterable[int]) -> list[int]:
    known = list(times)
    return sorted(range(len(known)), key=lambda number: (known[number], number))
