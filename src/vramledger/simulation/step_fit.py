"""A step model fitted to what was measured: to steps where an engine records them, else to a run's first and last tokens.

A run says when requests had their first and last token, not how long a step took. So the run is simulated, and every
interval between two observed instants becomes one equation: the sum over the steps that the simulation has between them is
what was measured. The equations are linear in the model's constants; their solution is simulated again, until what is simulated
and what is measured agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.evidence import Evidence, measured
from vramledger.simulation.least_squares import robust_fit
from vramledger.simulation.outcome import RequestOutcome, Status
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_log import NAMES, RunLog, StepWork, features, logged_run
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request

ROUNDS = 10
STRETCHES = 150
"""Into so many stretches of equal length the observed time is cut: what happens in each is an equation beside those of requests."""
TRUST = 1e-4
TOLERANCE = 0.05
FAR = 1.25
SCALINGS = 8
"""A first model whose answers take so many times as long as the measured ones is scaled before it is fitted, so often at most."""
FEWEST = 8
_CAP = 0.1


class Timing(Struct, frozen=True, kw_only=True):
    """When request `number` of a workload had its first and its last token, in picoseconds on the workload's clock."""

    number: int
    first_token_ps: int
    end_ps: int


class StepRecord(Struct, frozen=True, kw_only=True):
    """A step as an engine recorded it, in the terms of `StepModel.step_ps`."""

    tokens: int
    decode_seqs: int
    kv_tokens: int
    pairs: int = 0
    duration_ps: int


class Fit(Struct, frozen=True, kw_only=True):
    """A fitted model, and by how much simulated latencies differ from measured ones on requests that it was not fitted to:
    the median of their sizes, relative."""

    step: StepModel
    fitted_requests: int
    held_out_requests: int
    rounds: tuple[float, ...]


def fit_run(
    requests: Sequence[Request],
    timings: Sequence[Timing],
    settings: SimulationSettings,
    *,
    block_tokens: int | None,
    least: StepModel,
    source: str,
    rounds: int = ROUNDS,
) -> Fit:
    """The step model of a measured run of `requests`.

    Fitted to the timings of the first half of the requests, in order; those of the others are not looked at before the end,
    for its error. `settings.step` is where the fit starts (a roofline), `least` what no constant may fall below (the device's
    bound). Raises InputError for fewer than eight timings in the first half, for times out of order and for a replica or
    more that the fit knows nothing of.
    """
    if settings.fleet.replicas != 1:
        raise InputError("a step model is fitted to one replica's run", replicas=settings.fleet.replicas)
    check_timings(timings, len(requests))
    half = len(requests) // 2
    known = [timing for timing in timings if timing.number < half]
    if len(known) < FEWEST:
        raise InputError(
            f"{len(known)} timings in the first half of the requests: at least {FEWEST} are needed to fit a step's time"
        )
    origin = measured(f"fitted to first and last tokens of {len(known)} requests of {source}")
    start = _scaled_start(requests, known, settings, block_tokens, constants_of(least), origin)
    step, best, best_error = start, start, float("inf")
    seen: list[float] = []
    for turn in range(rounds):
        outcomes, log = logged_run(requests, replace(settings, step=step), block_tokens)
        rows, values = _equations(known, outcomes, log)
        if not rows:
            raise InputError(
                "none of the timed requests comes to its end in the simulated run; are the pool's blocks and the scheduler's "
                "limits those of the measured engine?"
            )
        found = robust_fit(
            rows,
            values,
            lower=constants_of(least),
            start=constants_of(start),
            trust=TRUST,
            tolerance=TOLERANCE,
        )
        error = mean_error(rows, values, constants_of(step))
        seen.append(error)
        if error < best_error:
            best, best_error = step, error
        now = constants_of(step)
        damped = found if turn < 3 else [(one + two) / 2 for one, two in zip(found, now, strict=True)]
        step = model_of(damped, origin)
    outcomes, _ = logged_run(requests, replace(settings, step=best), block_tokens)
    others = [timing for timing in timings if timing.number >= half]
    return Fit(
        step=replace(best, evidence=origin, relative_error=_latency_error(others, outcomes)),
        fitted_requests=len(known),
        held_out_requests=len(others),
        rounds=tuple(seen),
    )


def fit_records(
    records: Iterable[StepRecord], *, start: StepModel, least: StepModel, source: str
) -> StepModel:
    """The step model of recorded steps: fitted to every other one, its error the median over the rest.

    Raises InputError for fewer than sixteen records and for a step without duration.
    """
    steps = list(records)
    if len(steps) < 2 * FEWEST:
        raise InputError(
            f"{len(steps)} recorded steps: at least {2 * FEWEST} are needed to fit a step's time"
        )
    for place, step in enumerate(steps):
        if step.duration_ps <= 0:
            raise InputError(f"recorded step {place} takes {step.duration_ps} ps", step=place)
    chosen, rest = steps[::2], steps[1::2]
    model = start
    for _ in range(ROUNDS):
        rows = [
            [
                value / step.duration_ps
                for value in features(
                    StepWork(step.tokens, step.decode_seqs, step.kv_tokens, step.pairs), model
                )
            ]
            for step in chosen
        ]
        found = robust_fit(
            rows,
            [1.0] * len(rows),
            lower=constants_of(least),
            start=constants_of(start),
            trust=TRUST,
            tolerance=TOLERANCE,
        )
        model = model_of(found, measured(f"fitted to {len(chosen)} recorded steps of {source}"))
    errors = [
        abs(
            model.step_ps(
                tokens=step.tokens, decode_seqs=step.decode_seqs, kv_tokens=step.kv_tokens, pairs=step.pairs
            )
            / step.duration_ps
            - 1
        )
        for step in rest
    ]
    return replace(model, relative_error=median(errors))


def _scaled_start(
    requests: Sequence[Request],
    timings: Sequence[Timing],
    settings: SimulationSettings,
    block_tokens: int | None,
    lower: Sequence[float],
    origin: Evidence,
) -> StepModel:
    """The first model, as a whole made slower or faster until its answers take about as long as the measured ones.

    An engine that is far from the first model has another queue and other batches; equations between what it did and what that model
    did say nothing of either.
    """
    step = settings.step
    for _ in range(SCALINGS):
        outcomes, _ = logged_run(requests, replace(settings, step=step), block_tokens)
        ratios = [
            (timing.end_ps - timing.first_token_ps) / (outcome.end_ps - outcome.first_token_ps)
            for timing in timings
            if (outcome := outcomes.get(timing.number)) is not None
            and outcome.status is Status.FINISHED
            and timing.end_ps > timing.first_token_ps
            and outcome.end_ps > outcome.first_token_ps
        ]
        ratio = median(ratios) if ratios else 1.0
        if 1 / FAR < ratio < FAR:
            break
        scaled = [max(ratio * one, least) for one, least in zip(constants_of(step), lower, strict=True)]
        step = model_of(scaled, origin)
    return step


def _equations(
    timings: Sequence[Timing], outcomes: dict[int, RequestOutcome], log: RunLog
) -> tuple[list[list[float]], list[float]]:
    """One equation for every request's tokens after its first, one for every stretch of time between observed instants; each
    relative to what was measured."""
    pairs = [
        (timing, outcomes[timing.number])
        for timing in timings
        if timing.number in outcomes and outcomes[timing.number].status is Status.FINISHED
    ]
    spans = [
        (timing.first_token_ps, timing.end_ps, outcome.first_token_ps, outcome.end_ps)
        for timing, outcome in pairs
    ]
    instants = sorted(
        {(timing.first_token_ps, outcome.first_token_ps) for timing, outcome in pairs}
        | {(timing.end_ps, outcome.end_ps) for timing, outcome in pairs}
    )
    stretch = (instants[-1][0] - instants[0][0]) / STRETCHES if instants else 0
    last = instants[0] if instants else (0, 0)
    for instant in instants[1:]:
        if instant[0] - last[0] >= stretch:
            spans.append((last[0], instant[0], last[1], instant[1]))
            last = instant
    rows = []
    for start, end, simulated_start, simulated_end in spans:
        if end > start:
            rows.append([value / (end - start) for value in log.between(simulated_start, simulated_end)])
    return rows, [1.0] * len(rows)


def mean_error(rows: Sequence[Sequence[float]], values: Sequence[float], constants: Sequence[float]) -> float:
    """The mean relative error of the equations, those far off counted as a tenth."""
    errors = [
        min(_CAP, abs(value - sum(one * two for one, two in zip(row, constants, strict=True))))
        for row, value in zip(rows, values, strict=True)
    ]
    return sum(errors) / len(errors)


def _latency_error(timings: Sequence[Timing], outcomes: dict[int, RequestOutcome]) -> float | None:
    errors = [
        abs((outcome.end_ps - outcome.sent_ps) / (timing.end_ps - outcome.sent_ps) - 1)
        for timing in timings
        if (outcome := outcomes.get(timing.number)) is not None and outcome.status is Status.FINISHED
    ]
    return median(errors) if errors else None


def constants_of(step: StepModel) -> list[float]:
    """Its constants, in the order of `NAMES`."""
    return [float(getattr(step, name)) for name in NAMES]


def model_of(constants: Sequence[float], evidence: Evidence) -> StepModel:
    """The model of constants in the order of `NAMES`."""
    return StepModel(
        **{name: round(value) for name, value in zip(NAMES, constants, strict=True)}, evidence=evidence
    )


def check_timings(timings: Sequence[Timing], count: int) -> None:
    """Raises InputError for a request that is none of `count`, and for times out of order."""
    for timing in timings:
        if not 0 <= timing.number < count:
            raise InputError(
                f"a timing of request {timing.number}: the workload has {count}", number=timing.number
            )
        if not 0 <= timing.first_token_ps <= timing.end_ps:
            raise InputError(
                f"request {timing.number}: its last token at {timing.end_ps} ps comes before its first at "
                f"{timing.first_token_ps} ps",
                number=timing.number,
            )
