"""The ladders: short requests, then long ones among them, their rate raised until the aims are missed."""

from __future__ import annotations

from vramledger.experiment.ladder import SLOWEST_PER_S, Ladder, bracket, rounded
from vramledger.experiment.plan import Kind, Step
from vramledger.experiment.warm_up import SHORT_OUTPUT_TOKENS, SHORT_PROMPT_TOKENS
from vramledger.release.experiment.live import Live
from vramledger.release.experiment.sending import learn, made_requests, send
from vramledger.release.experiment.work import Skipped, Work

FIRST_SHARE = 0.25
"""Of what the warm-up says could be served at most: the first load is one that surely holds."""
LOOKED_AT = 200
"""Requests whose lengths say how much longer those of one kind are than those of another."""


def short(work: Work, live: Live) -> None:
    _climb(work, live, Step.SHORT, Kind.SHORT)


def mixed(work: Work, live: Live) -> None:
    _climb(work, live, Step.MIXED, Kind.MIXED)


def knee_per_s(work: Work, live: Live) -> float:
    """The largest load of the widest mix that held. Raises Skipped where none did."""
    for step in (Step.MIXED, Step.SHORT):
        stages = work.stages(step)
        held = bracket(work.plan, stages).held_per_s
        if held is not None:
            ratio = (
                1.0
                if step is Step.MIXED
                else _tokens(work, live, Kind.SHORT) / _tokens(work, live, Kind.MIXED)
            )
            return held * ratio
    raise Skipped("no load held that could be gone on with")


def steady_per_s(work: Work, live: Live) -> float:
    """The load of the steps after the ladders."""
    return rounded(knee_per_s(work, live) * work.plan.steady_load)


def _climb(work: Work, live: Live, step: Step, kind: Kind) -> None:
    ladder = Ladder(work.plan, start_per_s(work, live, step))
    while (per_s := ladder.next(stages := work.stages(step))) is not None:
        number = len(stages) + 1
        send(work, live, step=step, kind=kind, name=f"{step.value}-{number}", per_s=per_s, number=number)
        learn(work, live)


def start_per_s(work: Work, live: Live, step: Step) -> float:
    """A load to begin with. The plan's own is for the first ladder; the second begins at the first one's knee, less as its requests are
    longer."""
    if work.stages(step):
        return work.stages(step)[0].per_s
    held = bracket(work.plan, work.stages(Step.SHORT)).held_per_s
    if step is Step.MIXED and held is not None:
        lengths = _tokens(work, live, Kind.SHORT) / _tokens(work, live, Kind.MIXED)
        return max(held * lengths / work.plan.growth, SLOWEST_PER_S)
    if work.plan.start_per_s is not None:
        return work.plan.start_per_s
    warm = live.warm if live.warm is not None else live.warm_up(work.told)
    kind = Kind.SHORT if step is Step.SHORT else Kind.MIXED
    tokens = SHORT_PROMPT_TOKENS + SHORT_OUTPUT_TOKENS
    return max(FIRST_SHARE * warm.short_per_s * tokens / _tokens(work, live, kind), SLOWEST_PER_S)


def _tokens(work: Work, live: Live, kind: Kind) -> float:
    """Tokens of a request of a kind, on average."""
    _, requests = made_requests(work, live, kind, per_s=1.0, seconds=float(LOOKED_AT), seed=work.plan.seed)
    return sum(one.prompt_tokens + one.output_tokens for one in requests) / max(len(requests), 1)
