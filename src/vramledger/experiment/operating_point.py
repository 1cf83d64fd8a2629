"""The largest load that is served well, how sure that is, and what is missed first beyond it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

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
_CLIMBED = (Step.SHORT, Step.MIXED, Step.STEADY)


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
    the aims while the stage lasted.
    """
    chosen = [stage for stage in stages if stage.step in _CLIMBED and stage.is_whole]
    kinds = {stage.kind for stage in chosen}
    wanted = kind or (Kind.MIXED if Kind.MIXED in kinds else Kind.SHORT)
    chosen = [stage for stage in chosen if stage.kind is wanted and stage.measured.offered]
    rows = {stage.name: sorted(rows_of(stage), key=lambda row: (row.due_ns, row.number)) for stage in chosen}
    points = joined([_tried(stage, rows[stage.name], plan) for stage in chosen])
    if not points:
        return OperatingPoint(
            per_s=0.0,
            low_per_s=0.0,
            high_per_s=0.0,
            confidence=plan.confidence,
            goodput=0.0,
            risk=1.0,
            headroom_bytes=headroom_bytes,
            words="no whole stage of requests was measured",
        )
    shares = fitted(points)
    held = [place for place, share in enumerate(shares) if share >= plan.goodput]
    per_s = points[held[-1]].per_s if held else 0.0
    goodput = shares[held[-1]] if held else shares[0]
    beyond = points[len(held)].per_s if len(held) < len(points) else None
    crossing = crossing_of(points, aim=plan.goodput, confidence=plan.confidence, seed=plan.seed)
    low, high = _ends(points, crossing, per_s, is_limit=beyond is None)
    binds = _binds([stage for stage in chosen if stage.per_s == beyond], rows, plan, failure)
    return OperatingPoint(
        per_s=per_s,
        low_per_s=low,
        high_per_s=high,
        confidence=plan.confidence,
        goodput=goodput,
        risk=1 - goodput,
        beyond_per_s=beyond,
        binds=binds,
        headroom_bytes=headroom_bytes,
        is_limit_of_load=beyond is None,
        words=_words(per_s, low, high, goodput, beyond, binds, plan, crossing)
        + (
            GROWING if any(_grows(rows[stage.name], plan) for stage in chosen if stage.per_s == per_s) else ""
        ),
    )


def _tried(stage: Stage, rows: Sequence[Served], plan: ExperimentPlan) -> Tried:
    return tried(
        stage.per_s,
        [row.is_good(plan.slo) for row in rows],
        [closeness(row, plan.slo) for row in rows],
    )


def _grows(rows: Sequence[Served], plan: ExperimentPlan) -> bool:
    """Whether requests came surely nearer to missing the aims the later they were due: a queue that still filled when the stage ended."""
    near = [(row.due_ns / NS_PER_S, closeness(row, plan.slo)) for row in rows]
    answered = [pair for pair in near if pair[1] < inf]
    times, values = binned([at_s for at_s, _ in answered], [share for _, share in answered])
    found = slope_of(times, values, plan.confidence)
    return found is not None and found.low > 0


def _ends(
    points: Sequence[Tried], crossing: Crossing, per_s: float, *, is_limit: bool
) -> tuple[float, float]:
    low = min(crossing.low_per_s, per_s)
    if is_limit:
        return low, per_s
    return low, max(points[-1].per_s if crossing.high_per_s is None else crossing.high_per_s, per_s)


def _binds(
    beyond: Sequence[Stage],
    rows: dict[str, list[Served]],
    plan: ExperimentPlan,
    failure: Failure | None,
) -> str:
    """What is missed first at the least load beyond the point: memory where the engine failed for it, the pool where it was full or requests were
    preempted, else the aim that most requests missed."""
    if failure is not None:
        return MEMORY
    if not beyond:
        return ""
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
    beyond: float | None,
    binds: str,
    plan: ExperimentPlan,
    crossing: Crossing,
) -> str:
    aim = f"{plan.goodput:.1%} of requests within the aims"
    if not per_s:
        least = "" if beyond is None else f"; at {beyond:.4g}/s {goodput:.1%} were, the least load tried"
        return f"no load tried has {aim}{least}{f' ({binds})' if binds else ''}"
    told = f"{per_s:.4g} requests/s: {goodput:.1%} of them within the aims"
    if beyond is None:
        return f"{told}; every load tried held, more was not tried (at least {low:.4g}/s at {plan.confidence:.0%})"
    upper = (
        f"{high:.4g}/s" if crossing.high_per_s is not None else f"{high:.4g}/s, the largest tried, or more"
    )
    return (
        f"{told}, by {plan.confidence:.0%} between {low:.4g} and {upper}; "
        f"at {beyond:.4g}/s the aims are missed{f', first {binds}' if binds else ''}"
    )
