"""Which loads are tried, and that the knee is found between two of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramledger.experiment.ladder import Ladder, bracket, holds
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import LoadFigures, Stage


def stage(per_s: float, *, good: int = 100, is_whole: bool = True) -> Stage:
    return Stage(
        step=Step.SHORT,
        name=f"short at {per_s}",
        kind=Kind.SHORT,
        per_s=per_s,
        seconds=60.0,
        seed=0,
        began_s=0.0,
        ended_s=60.0,
        records="",
        measured=LoadFigures(offered=100, good=good),
        is_whole=is_whole,
    )


def climbed(plan: ExperimentPlan, start_per_s: float, capacity_per_s: float) -> list[Stage]:
    """Every stage of an engine that serves all up to its capacity and nothing above it."""
    ladder = Ladder(plan, start_per_s)
    stages: list[Stage] = []
    while (per_s := ladder.next(stages)) is not None:
        stages.append(stage(per_s, good=100 if per_s <= capacity_per_s else 0))
    return stages


def test_a_load_is_raised_until_it_is_missed_and_then_halved_in() -> None:
    plan = ExperimentPlan(growth=2.0, resolution=0.1)
    stages = climbed(plan, 1.0, 5.0)
    assert [one.per_s for one in stages] == [1.0, 2.0, 4.0, 8.0, 5.657, 4.757, 5.188]
    assert bracket(plan, stages).held_per_s == 4.757


def test_a_start_beyond_the_knee_is_lowered() -> None:
    stages = climbed(ExperimentPlan(growth=2.0, resolution=0.5), 8.0, 1.5)
    assert [one.per_s for one in stages] == [8.0, 4.0, 2.0, 1.0, 1.414]


def test_one_miss_below_a_load_that_held_is_bad_luck() -> None:
    plan = ExperimentPlan(growth=2.0)
    stages = [stage(1.0), stage(2.0, good=0), stage(4.0)]
    assert Ladder(plan, 1.0).next(stages) == 8.0
    assert bracket(plan, stages).missed_per_s is None


def test_what_was_cut_off_did_not_hold() -> None:
    assert not holds(ExperimentPlan(), stage(1.0, is_whole=False))


@given(
    start=st.floats(0.01, 1000.0),
    capacity=st.floats(0.01, 1000.0),
    growth=st.floats(1.05, 10.0),
    resolution=st.floats(0.005, 1.0),
    most=st.integers(1, 100),
)
def test_the_knee_is_between_the_ends_or_the_ladder_was_too_short(
    start: float, capacity: float, growth: float, resolution: float, most: int
) -> None:
    plan = ExperimentPlan(growth=growth, resolution=resolution, most_stages=most)
    stages = climbed(plan, start, capacity)
    found = bracket(plan, stages)
    assert len(stages) <= most
    assert len({one.per_s for one in stages}) == len(stages)
    if found.held_per_s is not None:
        assert found.held_per_s <= capacity
    if found.missed_per_s is not None:
        assert found.missed_per_s > capacity
    if len(stages) < most:
        assert found.width is not None
        assert found.width <= max(resolution, 0.002)  # four digits of a rate
