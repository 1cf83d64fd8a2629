"""How much longer an experiment takes, by its plan and by what its stages took until now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, log, log2
from statistics import median

from vramledger.experiment.ladder import SLOWEST_PER_S, Ladder, bracket, holds
from vramledger.experiment.plan import ExperimentPlan, Step
from vramledger.experiment.result import Experiment, Stage
from vramledger.experiment.settling import SETTLES, settle_s

RAISES = 2
"""Stages until a ladder meets a load that misses the aims, on average: it begins at a quarter of what the warm-up says, or at the knee before it."""
LONGER = 4.0
"""By how much rarer mixed requests come than short ones, before any mixed ones were sent."""
DRAIN_S = 5.0
_LADDERS = (Step.SHORT, Step.MIXED)
_APART = {Step.PREFIX: 2, Step.DISTURBED: 3}


def remaining_s(found: Experiment) -> float:
    """Seconds until it is over, about: how many stages a ladder needs is known when it has been climbed. 0 where no step is left."""
    over = {one.step for one in found.steps if one.state != "open"} | set(found.plan.skip)
    if found.failure is not None or Step.POINT in over:
        return 0.0
    return sum(_of_step(found, step) for step in Step if step not in over)


def _of_step(found: Experiment, step: Step) -> float:
    plan = found.plan
    done = [stage for stage in found.stages if stage.step is step and stage.is_whole]
    if step in _LADDERS:
        return _stages_left(plan, done) * _stage_s(found, step)
    if step in _APART:
        return max(_APART[step] - len(done), 0) * _stage_s(found, Step.MIXED)
    if step is Step.STEADY:
        return 0.0 if done else plan.steady_s + DRAIN_S
    if step is Step.RESTART and found.target.launched:
        per_s = max(_per_s(found, Step.MIXED) * plan.steady_load / 2, SLOWEST_PER_S)
        return 2 * _start_s(found) + SETTLES * settle_s(plan, per_s)
    return 0.0


def _stages_left(plan: ExperimentPlan, done: Sequence[Stage]) -> int:
    if done and Ladder(plan, 1.0).next(done) is None:
        return 0
    width = bracket(plan, done).width if done else None
    halvings = _halvings(plan.growth - 1 if width is None else width, plan.resolution)
    raises = 0 if width is not None else RAISES if done else RAISES + 1
    return max(min(raises + halvings, plan.most_stages - len(done)), 0)


def _halvings(width: float, resolution: float) -> int:
    """How often a gap is cut at its geometric middle until it is narrow enough."""
    times = log(1 + width) / log(1 + resolution)
    return ceil(log2(times)) if times > 1 else 0


def _stage_s(found: Experiment, step: Step) -> float:
    """A stage of a ladder: as long as it sends, and what the stages until now took beside that: their last answers, forecasts and fits."""
    plan = found.plan
    lasts_s = max(plan.stage_s, plan.stage_requests / max(_per_s(found, step), SLOWEST_PER_S))
    beside = list(_beside_s(found.stages))
    return lasts_s + (max(median(beside), 0.0) if beside else 0.0)


def _per_s(found: Experiment, step: Step) -> float:
    """The load of the step's last stage, or as it may be by the step before it, whose knee may lie above what was tried yet."""
    for tried, by in ((step, 1.0), (Step.SHORT, LONGER)):
        rates = [stage.per_s for stage in found.stages if stage.step is tried and stage.is_whole]
        if rates:
            is_open = all(holds(found.plan, stage) for stage in found.stages if stage.step is tried)
            return rates[-1] / by * (found.plan.growth**RAISES if is_open and tried is not step else 1.0)
    return found.plan.start_per_s or found.plan.stage_requests / found.plan.stage_s


def _beside_s(stages: Sequence[Stage]) -> Iterator[float]:
    """From a stage's beginning to that of the next one of its step, without the time in which it sent."""
    for stage, later in pairwise(stages):
        if stage.step is later.step:
            yield later.began_s - stage.began_s - stage.seconds


def _start_s(found: Experiment) -> float:
    """How long the engine's start took."""
    took = [one.ended_s - one.began_s for one in found.steps
            if one.step is Step.LOAD and one.began_s is not None and one.ended_s is not None]  # fmt: skip
    return max(took, default=0.0)
