"""The largest load that is served well, how sure that is, and what is missed first beyond it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from vramledger.diagnosis.terms import FailureClass
from vramledger.experiment.goodput import Crossing, Tried, crossing_of, fitted, joined, tried
from vramledger.experiment.load_figures import NS_PER_S
from vramledger.experiment.misses import closeness, misses
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import Failure, OperatingPoint, Stage
from vramledger.experiment.served import Served
from vramledger.experiment.slope import binned, slope_of
from vramledger.simulation.summary import FULL

KV = "kv"
GROWING = "; requests took ever longer there until the stage ended, so that less may hold for long"
MEMORY = "memory"
ENDED = "the engine's end"
RAISES_OR_HOLDS = (Step.SHORT, Step.MIXED, Step.STEADY)
"""The steps whose stages the point is found from."""


def operating_point(
    stages: Sequence[Stage],
    rows_of: Callable[[Stage], Sequence[Served]],
    plan: ExperimentPlan,
    *,
    kind: Kind | None = None,
    headroom_bytes: int | None = None,
    failure: Failure | None = None,
) -> OperatingPoint:
    """By the whole stages of one kind of the steps that raise or hold a load: of `kind`, else mixed ones where there are any, else short ones.

    The point is the largest load tried at which goodput, fitted so that it never rises with load, meets the aim. Its interval is that of
    the load at which goodput crosses the aim, straight between the loads tried. A stage counts at the load that it was to have, its requests in the
    order in which they were due. Where every load held, the interval ends at the largest, and more was not tried; where the upper end may lie
    above all that was tried, it is the largest load tried and the words say so. So do they where requests at the point came ever nearer to missing
    the aims while the stage lasted. A load at which the engine ended (`failure` names its stage, which `stages` has, whole or not) is not held,
    nor is any above it, whatever was measured there before.
    """
    wanted = kind or point_kind(stages)
    climbed = [stage for stage in stages if stage.step in RAISES_OR_HOLDS and stage.kind is wanted]
    chosen = [stage for stage in climbed if stage.is_whole and stage.measured.offered]
    ended = [stage.per_s for stage in climbed if failure is not None and stage.name == failure.stage]
    most = min(ended, default=inf)
    rows = {stage.name: sorted(rows_of(stage), key=lambda row: (row.due_ns, row.number)) for stage in chosen}
    usual_s = min((stage.seconds for stage in chosen), default=1.0)
    points = joined([_tried(stage, rows[stage.name], plan, usual_s) for stage in chosen])
    if not points:
        return OperatingPoint(
            per_s=0.0,
            low_per_s=0.0,
            high_per_s=0.0,
            confidence=plan.confidence,
            goodput=0.0,
            risk=1.0,
            headroom_bytes=headroom_bytes,
            beyond_per_s=None if most == inf else most,
            binds="" if most == inf else _ending(failure),
            words="no whole stage of requests was measured"
            + ("" if most == inf else f"; the engine ended at {most:.4g}/s"),
        )
    shares = fitted(points)
    held = [
        place for place, share in enumerate(shares) if share >= plan.goodput and points[place].per_s < most
    ]
    per_s = points[held[-1]].per_s if held else 0.0
    goodput = shares[held[-1]] if held else shares[0]
    beyond = min((point.per_s for point in points[len(held) :]), default=inf)
    crossing = crossing_of(points, aim=plan.goodput, confidence=plan.confidence, seed=plan.seed)
    low, high, is_open = _ends(points, crossing, per_s, most, is_limit=beyond == inf == most)
    if most <= beyond:
        beyond, binds = most, "" if most == inf else _ending(failure)
    else:
        binds = _binds([stage for stage in chosen if stage.per_s == beyond], rows, plan)
    return OperatingPoint(
        per_s=per_s,
        low_per_s=low,
        high_per_s=high,
        confidence=plan.confidence,
        goodput=goodput,
        risk=1 - goodput,
        beyond_per_s=None if beyond == inf else beyond,
        binds=binds,
        headroom_bytes=headroom_bytes,
        is_limit_of_load=beyond == inf,
        words=_words(per_s, low, high, goodput, beyond, binds, plan, is_open=is_open)
        + (
            GROWING if any(_grows(rows[stage.name], plan) for stage in chosen if stage.per_s == per_s) else ""
        ),
    )


def point_kind(stages: Iterable[Stage]) -> Kind:
    """Of which requests the point is told: mixed ones where a load of them was raised or held whole, else short ones."""
    is_mixed = any(
        stage.is_whole and stage.kind is Kind.MIXED for stage in stages if stage.step in RAISES_OR_HOLDS
    )
    return Kind.MIXED if is_mixed else Kind.SHORT


def _tried(stage: Stage, rows: Sequence[Served], plan: ExperimentPlan, usual_s: float) -> Tried:
    return tried(
        stage.per_s,
        [row.is_good(plan.slo) for row in rows],
        [closeness(row, plan.slo) for row in rows],
        stretches=max(1, round(stage.seconds / usual_s)),
    )


def _grows(rows: Sequence[Served], plan: ExperimentPlan) -> bool:
    """Whether requests came surely nearer to missing the aims the later they were due: a queue that still filled when the stage ended."""
    near = [(row.due_ns / NS_PER_S, closeness(row, plan.slo)) for row in rows]
    answered = [pair for pair in near if pair[1] < inf]
    times, values = binned([at_s for at_s, _ in answered], [share for _, share in answered])
    found = slope_of(times, values, plan.confidence)
    return found is not None and found.low > 0


def _ends(
    points: Sequence[Tried], crossing: Crossing, per_s: float, most: float, *, is_limit: bool
) -> tuple[float, float, bool]:
    """The interval's ends, and whether more may hold than was tried."""
    low = min(crossing.low_per_s, per_s)
    if is_limit:
        return low, per_s, True
    if crossing.high_per_s is None or crossing.high_per_s > most:
        return low, max(points[-1].per_s if most == inf else most, per_s), most == inf
    return low, max(crossing.high_per_s, per_s), False


def _ending(failure: Failure | None) -> str:
    """Memory where the failure has one of the classes of a lack of it."""
    lacks = failure is not None and failure.classification not in ("", FailureClass.NONE)
    return MEMORY if lacks else ENDED


def _binds(beyond: Sequence[Stage], rows: dict[str, list[Served]], plan: ExperimentPlan) -> str:
    """What is missed first at the least load beyond the point: the pool where it was full or requests were preempted, else the aim that most
    requests missed."""
    for stage in beyond:
        figures = stage.measured
        if (figures.kv_usage_peak_ratio or 0.0) >= FULL or figures.preemptions:
            return KV
    found = misses((row for stage in beyond for row in rows[stage.name]), plan.slo)
    return found.most_common(1)[0][0] if found else ""


def _words(
    per_s: float,
    low: float,
    high: float,
    goodput: float,
    beyond: float,
    binds: str,
    plan: ExperimentPlan,
    *,
    is_open: bool,
) -> str:
    missed = (
        f"the engine ended ({binds})"
        if binds in (MEMORY, ENDED)
        else f"the aims are missed, first by {binds}"
    )
    if not per_s:
        return f"no load tried holds; at {beyond:.4g}/s {missed}; {goodput:.1%} of requests were within the aims at the least load"
    told = f"{per_s:.4g} requests/s: {goodput:.1%} of them within the aims"
    if beyond == inf:
        least = f"at least {low:.4g}/s" if low else "too few requests to say at least how much"
        return f"{told}; every load tried held, more was not tried ({least} at {plan.confidence:.0%})"
    upper = f"{high:.4g}/s, the largest tried, or more" if is_open else f"{high:.4g}/s"
    between = (
        f"between {low:.4g} and {upper}"
        if low
        else f"at most {upper}, too few requests to say at least how much"
    )
    return f"{told}, by {plan.confidence:.0%} {between}; at {beyond:.4g}/s {missed}"
