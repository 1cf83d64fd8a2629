"""What is said of an experiment while it runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from experiment_values import point
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import Experiment, Failure, LoadFigures, Stage, StepState, Target
from vramledger.report.experiment_progress import minutes_text, progress_text
from vramledger.report.experiment_words import notes_of
from vramledger.simulation.summary import Quantiles

FOUND = Experiment(
    began_s=0.0,
    plan=ExperimentPlan(
        steady_s=1200.0, skip=tuple(step for step in Step if step not in (Step.STEADY, Step.POINT))
    ),
    target=Target(url="http://a:1", engine_url="http://a:1"),
)
SENT = Stage(
    step=Step.SHORT,
    name="short-2",
    kind=Kind.SHORT,
    per_s=2.5,
    seconds=60.0,
    seed=0,
    began_s=0.0,
    ended_s=31.0,
    records="",
    measured=LoadFigures(offered=150, good=147, ttft_ns=Quantiles(count=150, p99=1_234_000_000)),
)


def test_a_step_that_begins_is_told_with_how_long_is_left() -> None:
    open_step = StepState(step=Step.STEADY)
    assert progress_text(FOUND, open_step) == "[8/10] steady; about 20 min left"
    assert (
        progress_text(replace(FOUND, steps=(replace(open_step, state="done"),)), open_step) == "[8/10] steady"
    )


def test_a_stage_is_told_by_what_it_says_of_the_engine() -> None:
    over = replace(FOUND, failure=Failure(step=Step.SHORT, at_s=0.0))
    assert (
        progress_text(over, SENT)
        == "  short-2: 2.50/s, 150 requests, 98.0 % within the aims, TTFT p99 1.23 s"
    )
    cut = replace(SENT, measured=LoadFigures(), is_whole=False)
    assert progress_text(over, cut) == "  short-2: 2.50/s, 0 requests, cut off after 31.0 s"


def test_what_was_not_done_is_told_with_why() -> None:
    skipped = StepState(step=Step.RESTART, state="skipped", why="not started here")
    assert progress_text(FOUND, skipped) == "[9/10] restart skipped: not started here"
    assert progress_text(FOUND, replace(skipped, state="done")) is None
    # After an engine's end all that was to come is skipped, and one line says it.
    over = replace(FOUND, failure=Failure(step=Step.SHORT, at_s=0.0))
    assert progress_text(over, skipped) is None
    assert progress_text(over, replace(skipped, state="failed")) == "[9/10] restart failed: not started here"


@pytest.mark.parametrize(
    ("time_s", "text"), [(3, "10 s"), (84, "80 s"), (100, "2 min"), (3540, "59 min"), (4800, "1 h 20 min")]
)
def test_an_estimate_is_no_more_exact_than_it_is(time_s: float, text: str) -> None:
    assert minutes_text(time_s) == text


def test_who_gave_no_manifest_is_told_how_to_make_one() -> None:
    assert notes_of(replace(FOUND, notes=("a",))) == ("a",)
    over = replace(FOUND, notes=("a",), point=point())
    assert len(notes_of(over)) == 2
    assert "--experiment DIR" in notes_of(over)[1]
    assert notes_of(replace(over, manifest_digest="sha256:0")) == ("a",)
