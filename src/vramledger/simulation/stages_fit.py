"""A step model fitted to several runs of one engine, most of which may be far from full.

`step_fit` reads a run whose engine never rests. Where it rests between requests, only what happens while somebody is served says how
long steps take: a request's time to its first token, its tokens after that, and stretches of time in which somebody always was there. What a
request spends outside of steps (its text read, its answer sent) is a constant of its own, told apart from steps by prompts of unequal length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.evidence import assumed, measured
from vramledger.simulation.least_squares import robust_fit
from vramledger.simulation.outcome import RequestOutcome, Status
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_fit import (
    FAR,
    FEWEST,
    ROUNDS,
    SCALINGS,
    STRETCHES,
    TOLERANCE,
    TRUST,
    Timing,
    check_timings,
    constants_of,
    model_of,
)
from vramledger.simulation.step_log import RunLog, busy_spans, logged_run
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request

SETTLED_AFTER = 3
SETTLED = 0.02
"""From the fourth round on, one that brings less than this share of the error ends the fit."""
NARROW = 0.02
"""Of how many were served at once, the variance by the mean's square below which it says nothing of what each costs."""
UNBOUND = StepModel(
    overhead_ps=1,
    floor_ps=0,
    token_ps=0,
    decode_seq_ps=0,
    kv_token_ps=0,
    evidence=assumed("no step takes less than no time"),
)
"""The bound of a device that nothing is known of."""


class TimedRun(Struct, frozen=True, kw_only=True):
    """Requests as the engine got them, at the instants at which it did, and when some of them had their tokens.

    Those in `known` are fitted to, those in `held_out` are for the error alone. Both are by the place of the request, times in picoseconds on the
    requests' clock. `block_tokens` is that of the requests' blocks.
    """

    requests: tuple[Request, ...]
    known: tuple[Timing, ...]
    held_out: tuple[Timing, ...] = ()
    block_tokens: int | None = None


class StagesFit(Struct, frozen=True, kw_only=True):
    """`outside_ps` is what a request takes besides the engine's steps. `step.relative_error` is the median relative error of the latencies of the
    requests held out, None without any; `rounds` are the mean errors of the equations, round by round."""

    step: StepModel
    outside_ps: int
    fitted_requests: int
    held_out_requests: int
    rounds: tuple[float, ...]


def fit_stages(
    runs: Sequence[TimedRun],
    settings: SimulationSettings,
    *,
    source: str,
    least: StepModel = UNBOUND,
    outside_ps: int = 0,
    rounds: int = ROUNDS,
) -> StagesFit:
    """The step model of one engine's `runs`, each begun with an engine at rest.

    `settings.step` and `outside_ps` are where the fit starts. Raises InputError for fewer than eight known timings, for times out of order, and where
    the settings have more than one replica.
    """
    if settings.fleet.replicas != 1:
        raise InputError("a step model is fitted to one replica's runs", replicas=settings.fleet.replicas)
    for run in runs:
        check_timings((*run.known, *run.held_out), len(run.requests))
    count = sum(len(run.known) for run in runs)
    if count < FEWEST:
        raise InputError(f"{count} timed requests: at least {FEWEST} are needed to fit a step's time")
    origin = measured(f"fitted to first and last tokens of {count} requests of {source}")
    lower = [*constants_of(least), 0.0]
    start = [*_scaled(runs, settings, constants_of(least)), float(outside_ps)]
    found, best, best_error = start, start, float("inf")
    seen: list[float] = []
    for turn in range(rounds):
        rows: list[list[float]] = []
        for run in runs:
            outcomes, log = logged_run(
                run.requests, replace(settings, step=model_of(found[:-1], origin)), run.block_tokens
            )
            rows += _equations(run, outcomes, log)
        if not rows:
            raise InputError(
                "none of the timed requests comes to its end in the simulated runs; are the pool's blocks and the scheduler's "
                "limits those of the measured engine?"
            )
        values = [1.0] * len(rows)
        error = _error(rows, found)
        seen.append(error)
        is_settled = turn >= SETTLED_AFTER and (1 - SETTLED) * best_error < error < FAR - 1
        if error < best_error:
            best, best_error = found, error
        if is_settled:
            break
        solved = robust_fit(rows, values, lower=lower, start=start, trust=TRUST, tolerance=TOLERANCE)
        found = solved if turn < 3 else [(one + two) / 2 for one, two in zip(solved, found, strict=True)]
    step, outside = model_of(best[:-1], origin), round(best[-1])
    errors = [
        error for run in runs if run.held_out for error in _errors(run, replace(settings, step=step), outside)
    ]
    return StagesFit(
        step=replace(step, relative_error=median(errors) if errors else None),
        outside_ps=outside,
        fitted_requests=count,
        held_out_requests=sum(len(run.held_out) for run in runs),
        rounds=tuple(seen),
    )


def first_step(runs: Sequence[TimedRun]) -> StepModel:
    """Where a fit may start when nothing is known of the device: what a decoding step costs by how many were served beside it, and a prompt's token
    as the fastest prompts have it. Raises InputError where no request had two tokens."""
    gaps: list[tuple[float, float]] = []
    tokens, lengths = [], []
    for run in runs:
        beside = _Beside(run)
        for timing in run.known:
            request = run.requests[timing.number]
            if request.output_tokens > 1 and timing.end_ps > timing.first_token_ps:
                gap = (timing.end_ps - timing.first_token_ps) / (request.output_tokens - 1)
                gaps.append((beside.mean(timing.first_token_ps, timing.end_ps), gap))
            waited_ps = timing.first_token_ps - request.arrival_ns * 1000
            if waited_ps > 0:
                tokens.append(waited_ps / request.prompt_tokens)
            lengths.append(request.prompt_tokens + request.output_tokens)
    if not gaps or not tokens:
        raise InputError("no request had two tokens: a step's time cannot be told")
    fixed, each = _line(gaps)
    token = min(sorted(tokens)[len(tokens) // 4], fixed + each)
    kv_token = each / 10 / median(lengths)
    return model_of(
        [0.2 * fixed, 0.8 * fixed, token, each, kv_token, 0.0],
        assumed("answers measured, by how many were served at once, and the fastest prompts"),
    )


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """What a step costs, and each sequence in it, neither below nothing: through points (sequences, time), a fiftieth of the usual time for
    each where all had about as many beside them."""
    (_, usual), mean_seqs = min(points, key=lambda point: point[1]), fmean(seqs for seqs, _ in points)
    mean_ps = fmean(time for _, time in points)
    spread = fmean((seqs - mean_seqs) ** 2 for seqs, _ in points)
    each = fmean((seqs - mean_seqs) * (time - mean_ps) for seqs, time in points) / spread if spread else 0.0
    if spread < NARROW * mean_seqs**2 or each <= 0:
        each = usual / 50 / max(mean_seqs, 1.0)
    fixed = mean_ps - each * mean_seqs
    return (fixed, each) if fixed > 0 else (usual / 50, (mean_ps - usual / 50) / mean_seqs)


class _Beside:
    """How many requests were there at any instant, those of which no end is known to the last."""

    def __init__(self, run: TimedRun) -> None:
        ends = {timing.number: timing.end_ps for timing in (*run.known, *run.held_out)}
        last_ps = max(ends.values(), default=0)
        self._spans = [
            (request.arrival_ns * 1000, ends.get(number, last_ps))
            for number, request in enumerate(run.requests)
        ]

    def mean(self, start_ps: int, end_ps: int) -> float:
        there = sum(max(0, min(end, end_ps) - max(start, start_ps)) for start, end in self._spans)
        return max(1.0, there / (end_ps - start_ps))


def _scaled(runs: Sequence[TimedRun], settings: SimulationSettings, lower: Sequence[float]) -> list[float]:
    """The first constants, as a whole made slower or faster until answers take about as long as the measured ones: an engine far from the
    first model has other batches, and equations between the two say nothing."""
    now = constants_of(settings.step)
    for _ in range(SCALINGS):
        ratios = []
        for run in runs:
            step = model_of(now, settings.step.evidence)
            outcomes, _ = logged_run(run.requests, replace(settings, step=step), run.block_tokens)
            ratios += [
                (timing.end_ps - timing.first_token_ps) / (outcome.end_ps - outcome.first_token_ps)
                for timing, outcome in _pairs(run.known, outcomes)
                if timing.end_ps > timing.first_token_ps and outcome.end_ps > outcome.first_token_ps
            ]
        ratio = median(ratios) if ratios else 1.0
        if 1 / FAR < ratio < FAR:
            break
        now = [max(ratio * one, least) for one, least in zip(now, lower, strict=True)]
    return now


def _error(rows: Sequence[Sequence[float]], constants: Sequence[float]) -> float:
    """The mean relative error of the equations, none counted as more than the whole."""
    errors = [
        min(1.0, abs(1 - sum(one * two for one, two in zip(row, constants, strict=True)))) for row in rows
    ]
    return sum(errors) / len(errors)


def _pairs(
    timings: Iterable[Timing], outcomes: dict[int, RequestOutcome]
) -> list[tuple[Timing, RequestOutcome]]:
    return [
        (timing, outcome)
        for timing in timings
        if (outcome := outcomes.get(timing.number)) is not None and outcome.status is Status.FINISHED
    ]


def _equations(run: TimedRun, outcomes: dict[int, RequestOutcome], log: RunLog) -> list[list[float]]:
    """Rows of what multiplies each constant, the last of them what a request takes outside of steps; each relative to what was measured,
    so that all of them are to be 1."""
    pairs = _pairs(run.known, outcomes)
    rows = []
    for timing, outcome in pairs:
        waited_ps = timing.first_token_ps - outcome.sent_ps
        if waited_ps > 0:
            work = log.since(outcome.sent_ps, outcome.first_token_ps)
            rows.append([value / waited_ps for value in (*work, 1.0)])
        decoded_ps = timing.end_ps - timing.first_token_ps
        if decoded_ps > 0:
            work = log.between(outcome.first_token_ps, outcome.end_ps)
            rows.append([value / decoded_ps for value in (*work, 0.0)])
    for start, end in _stretches(pairs):
        work = log.between(start[1], end[1])
        rows.append([value / (end[0] - start[0]) for value in (*work, 0.0)])
    return rows


Instant = tuple[int, int]


def _stretches(pairs: Sequence[tuple[Timing, RequestOutcome]]) -> Iterable[tuple[Instant, Instant]]:
    """Stretches between two observed instants, measured and simulated, in which the engine rested neither here nor there."""
    instants = sorted(
        {(timing.first_token_ps, outcome.first_token_ps) for timing, outcome in pairs}
        | {(timing.end_ps, outcome.end_ps) for timing, outcome in pairs}
    )
    if not instants:
        return
    seen = _Busy((outcome.sent_ps, timing.end_ps) for timing, outcome in pairs)
    made = _Busy((outcome.sent_ps, outcome.end_ps) for _, outcome in pairs)
    least_ps = (instants[-1][0] - instants[0][0]) / STRETCHES
    last = instants[0]
    for instant in instants[1:]:
        if not (seen.holds(last[0], instant[0]) and made.holds(last[1], instant[1])):
            last = instant
        elif instant[0] - last[0] >= max(least_ps, 1):
            yield last, instant
            last = instant


class _Busy:
    """Time in which somebody was served."""

    def __init__(self, spans: Iterable[Instant]) -> None:
        self._spans = list(busy_spans(spans))

    def holds(self, start_ps: int, end_ps: int) -> bool:
        return any(start <= start_ps and end_ps <= end for start, end in self._spans)


def _errors(run: TimedRun, settings: SimulationSettings, outside_ps: int) -> list[float]:
    outcomes, _ = logged_run(run.requests, settings, run.block_tokens)
    return [
        abs((outcome.end_ps - outcome.sent_ps + outside_ps) / (timing.end_ps - outcome.sent_ps) - 1)
        for timing, outcome in _pairs(run.held_out, outcomes)
        if timing.end_ps > outcome.sent_ps
    ]
