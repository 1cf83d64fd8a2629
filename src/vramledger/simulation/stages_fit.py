"""A step model fitted to several runs of one engine, most of which may be far from full.

`step_fit` reads a run whose engine never rests. Where it rests between requests, only what happens while somebody is served says how
long steps take: a request's time to its first token, its tokens after that, and stretches of time in which somebody always was there. What a
request spends outside of steps (its text read, its answer sent) is a constant of its own, told apart from steps by prompts of unequal length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log as ln
from statistics import mean, median

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.evidence import Evidence, assumed, measured
from vramledger.simulation.first_step import CONTEXT_TOKENS
from vramledger.simulation.least_squares import robust_fit
from vramledger.simulation.outcome import RequestOutcome, Status
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_fit import (
    FEWEST,
    ROUNDS,
    STRETCHES,
    TOLERANCE,
    TRUST,
    Timing,
    check_timings,
    constants_of,
    model_of,
)
from vramledger.simulation.step_log import NAMES, RunLog, busy_spans, logged_run
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.timed_run import TimedRun

SETTLED = 0.02
"""A round that brings less than this share of the error is the last."""
EXACT = 0.01
"""No run is measured more exactly than to this share."""
MOST_HALVINGS = 3
UNBOUND = StepModel(
    overhead_ps=1,
    floor_ps=0,
    token_ps=0,
    decode_seq_ps=0,
    kv_token_ps=0,
    evidence=assumed("no step takes less than no time"),
)
"""The bound of a device that nothing is known of."""


class StagesFit(Struct, frozen=True, kw_only=True):
    """`outside_ps` is what a request takes besides the engine's steps. `step.relative_error` is the median relative error of the latencies of the
    requests held out, None without any; `rounds` are the errors by which the rounds were judged, one by one."""

    step: StepModel
    outside_ps: int
    fitted_requests: int
    held_out_requests: int
    rounds: tuple[float, ...]


def fit_stages(
    runs: Sequence[TimedRun],
    settings: SimulationSettings,
    *,
    starts: Sequence[StepModel],
    source: str,
    least: StepModel = UNBOUND,
    outside_ps: int = 0,
    rounds: int = ROUNDS,
) -> StagesFit:
    """The step model of one engine's `runs`, each begun with an engine at rest; `settings.step` is not looked at.

    The fit starts from that of `starts` whose runs are most like the measured ones, and from `outside_ps`. `rounds` is how often all runs are
    simulated at most. Raises InputError for fewer than eight known timings, for times out of order, and where the settings have more than one replica.
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
    trials = [_Trial(runs, settings, [*constants_of(step), float(outside_ps)], origin) for step in starts]
    best = min(trials, key=lambda trial: trial.error)
    if not best.rows:
        raise InputError(
            "none of the timed requests comes to its end in the simulated runs; are the pool's blocks and the scheduler's "
            "limits those of the measured engine?"
        )
    start, seen, halvings = best.constants, [best.error], 0
    solved = _solved(best, lower, start)
    for _ in range(rounds - len(trials)):
        trial = _Trial(runs, settings, solved, origin)
        seen.append(trial.error)
        if trial.error < best.error:
            gain, halvings = best.error - trial.error, 0
            best = trial
            if gain < SETTLED * trial.error or trial.error < EXACT:
                break
            solved = _solved(best, lower, start)
        else:
            # Other step times make other queues, for which the equations were not: less far at once.
            solved = [(one + two) / 2 for one, two in zip(solved, best.constants, strict=True)]
            halvings += 1
            if halvings == MOST_HALVINGS:
                break
    step, outside = model_of(best.constants[:-1], origin), round(best.constants[-1])
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


class _Trial:
    """All runs simulated with some constants: the equations of that, and by how much these constants miss what was measured.

    One run is judged by its equations. Several are judged by the median latencies of each, a run as much as any other: most equations are those of crowded
    runs, and constants that meet them may be off by twice in all runs that were not.
    """

    def __init__(
        self,
        runs: Sequence[TimedRun],
        settings: SimulationSettings,
        constants: list[float],
        origin: Evidence,
    ) -> None:
        self.constants = constants
        self.rows: list[list[float]] = []
        step = model_of(constants[:-1], origin)
        figures: list[float] = []
        for run in runs:
            outcomes, log = logged_run(run.requests, replace(settings, step=step), run.block_tokens)
            self.rows += _equations(run, outcomes, log)
            figures += _figure_errors(run, outcomes, constants[-1])
        self.error = mean(figures) if len(runs) > 1 and figures else _error(self.rows, constants)


def _solved(trial: _Trial, lower: Sequence[float], start: Sequence[float]) -> list[float]:
    """The constants that the equations ask for, what grows with a context held where they ask for more of it than any model has.

    Few requests tell a long prompt from a slow moment by chance alone, and what grows with the context takes that up; at ten times their length it would
    be a hundred times as much.
    """
    held: dict[int, float] = {}
    while True:
        rows = [[0.0 if place in held else value for place, value in enumerate(row)] for row in trial.rows]
        values = [1.0 - sum(row[place] * value for place, value in held.items()) for row in trial.rows]
        found = robust_fit(rows, values, lower=lower, start=start, trust=TRUST, tolerance=TOLERANCE)
        for place, value in held.items():
            found[place] = value
        step = dict(zip(NAMES, found[:-1], strict=True))
        lone_ps = step["overhead_ps"] + max(step["floor_ps"], step["token_ps"]) + step["decode_seq_ps"]
        most = {"kv_token_ps": lone_ps / CONTEXT_TOKENS, "pair_ps_per_1024": step["token_ps"]}
        over = {
            place: max(most[name], lower[place])
            for place, name in enumerate(NAMES)
            if name in most and place not in held and found[place] > max(most[name], lower[place])
        }
        if not over:
            return found
        held |= over


def _error(rows: Sequence[Sequence[float]], constants: Sequence[float]) -> float:
    """The mean relative error of the equations, none counted as more than the whole."""
    errors = [
        min(1.0, abs(1 - sum(one * two for one, two in zip(row, constants, strict=True)))) for row in rows
    ]
    return sum(errors) / len(errors)


def _figure_errors(run: TimedRun, outcomes: dict[int, RequestOutcome], outside_ps: float) -> Iterable[float]:
    """By how much the median time to the first token and the median time of a token after it are off: logarithms of their ratios, none more than 1."""
    pairs = _pairs(run.known, outcomes)
    if run.known and not pairs:
        yield 1.0
    waits, gaps = [], []
    for timing, outcome in pairs:
        waits.append(
            (timing.first_token_ps - outcome.sent_ps, outcome.first_token_ps - outcome.sent_ps + outside_ps)
        )
        if (steps := run.requests[timing.number].output_tokens - 1) > 0:
            gaps.append(
                (
                    (timing.end_ps - timing.first_token_ps) / steps,
                    (outcome.end_ps - outcome.first_token_ps) / steps,
                )
            )
    for found in (waits, gaps):
        if found:
            seen, made = (median(column) for column in zip(*found, strict=True))
            if seen > 0 and made > 0:
                yield min(1.0, abs(ln(made / seen)))


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
