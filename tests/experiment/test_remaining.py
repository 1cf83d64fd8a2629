"""How much longer an experiment takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vramledger.experiment.ladder import Ladder, bracket
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.remaining import DRAIN_S, remaining_s
from vramledger.experiment.result import Experiment, Failure, LoadFigures, Stage, StepState, Target

OTHERS = tuple(step for step in Step if step not in (Step.SHORT, Step.POINT))
LAUNCHED = Target(url="http://a:1", engine_url="http://a:1", launched=("serve", "{port}"))


def begun(plan: ExperimentPlan, **fields: Any) -> Experiment:
    return replace(Experiment(began_s=0.0, plan=plan, target=replace(LAUNCHED, launched=())), **fields)


def stage(
    per_s: float, *, good: int, began_s: float, seconds: float = 60.0, step: Step = Step.SHORT
) -> Stage:
    return Stage(
        step=step,
        name=f"{step} at {per_s}",
        kind=Kind.SHORT,
        per_s=per_s,
        seconds=seconds,
        seed=0,
        began_s=began_s,
        ended_s=began_s + seconds,
        records="",
        measured=LoadFigures(offered=100, good=good),
    )


@given(
    growth=st.floats(1.1, 4.0),
    resolution=st.floats(0.02, 0.5),
    capacity_per_s=st.floats(0.1, 100.0),
    beside_s=st.floats(0.0, 30.0),
)
def test_a_ladder_whose_knee_is_caught_takes_as_long_as_was_said(
    growth: float, resolution: float, capacity_per_s: float, beside_s: float
) -> None:
    plan = ExperimentPlan(
        growth=growth, resolution=resolution, stage_requests=1, most_stages=100, skip=OTHERS
    )
    ladder = Ladder(plan, 1.0)
    stages: list[Stage] = []
    said: list[tuple[float, float]] = []
    at_s = 0.0
    while (per_s := ladder.next(stages)) is not None:
        stages.append(stage(per_s, good=100 if per_s <= capacity_per_s else 0, began_s=at_s))
        at_s += plan.stage_s + beside_s
        if bracket(plan, stages).width is not None:
            said.append((at_s, remaining_s(begun(plan, stages=tuple(stages)))))
    assert said[-1][1] == 0
    for now_s, left_s in said:
        # Loads are rounded to four digits, which may spare or cost a stage.
        assert abs(now_s + left_s - at_s) <= 1.01 * (plan.stage_s + beside_s)


def test_the_steady_stretch_and_a_restart_count_while_they_are_to_come() -> None:
    others = {Step.STEADY, Step.RESTART, Step.POINT}
    plan = ExperimentPlan(steady_s=1800.0, skip=tuple(step for step in Step if step not in others))
    loaded = StepState(step=Step.LOAD, state="done", began_s=0.0, ended_s=100.0)
    found = begun(plan, steps=(loaded,))
    assert remaining_s(found) == 1800 + DRAIN_S
    # An engine that is started here is started twice more, with load before, meanwhile and after: at 0.2 requests a second eight take 40 s.
    assert remaining_s(replace(found, target=LAUNCHED)) == 1800 + DRAIN_S + 2 * 100 + 5 * 40
    held = stage(1.0, good=100, began_s=0.0, seconds=1800.0, step=Step.STEADY)
    assert remaining_s(replace(found, stages=(held,))) == 0


def test_nothing_is_left_of_what_is_over() -> None:
    over = tuple(StepState(step=step, state="done") for step in Step)
    assert remaining_s(begun(ExperimentPlan(), steps=over)) == 0
    failure = Failure(step=Step.SHORT, at_s=1.0)
    assert remaining_s(begun(ExperimentPlan(), failure=failure)) == 0


@pytest.mark.parametrize("step", [Step.SHORT, Step.MIXED, Step.PREFIX, Step.DISTURBED, Step.STEADY])
def test_each_step_that_is_over_leaves_less(step: Step) -> None:
    plan = ExperimentPlan()
    before = begun(plan)
    after = begun(plan, steps=(StepState(step=step, state="skipped"),))
    assert remaining_s(after) < remaining_s(before)
