"""The folder of an experiment: whole at any moment, and gone on with."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from experiments import whole_experiment
from vramledger.errors import InputError
from vramledger.experiment.folder import JOURNAL
from vramledger.experiment.journal import (
    experiment_bytes,
    is_blank,
    open_journal,
    read_experiment,
    refuse_changed,
)
from vramledger.experiment.plan import ExperimentPlan, Step
from vramledger.experiment.result import Experiment, Failure, LoadFigures, Snapshot, StepState, Target

BEGUN = Experiment(
    began_s=1.0, plan=ExperimentPlan(), target=Target(url="http://a:1", engine_url="http://a:1", model="m")
)
# Goes on from what is there, one note after another, and says each that is kept.
WRITER = """
import sys
from pathlib import Path
from msgspec.structs import replace
from vramledger.experiment.journal import open_journal
with open_journal(Path(sys.argv[1])) as journal:
    found = journal.load()
    while True:
        found = replace(found, notes=(*found.notes, str(len(found.notes))))
        journal.save(found)
        print(len(found.notes), flush=True)
"""


def test_a_process_that_is_killed_at_any_moment_leaves_what_it_had_kept(tmp_path: Path) -> None:
    with open_journal(tmp_path / "x") as journal:
        journal.save(BEGUN)
    kept = 0
    for lines in (1, 2, 7, 19, 3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "x")], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                kept = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            writer.wait(60)
        found = read_experiment(tmp_path / "x" / JOURNAL)
        assert len(found.notes) >= kept
        assert found.notes == tuple(str(number) for number in range(len(found.notes)))
    with open_journal(tmp_path / "x") as journal:
        assert journal.load() == found
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [".lock", JOURNAL]


def test_two_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with open_journal(tmp_path / "x") as journal:
        journal.save(BEGUN)
        for fresh in (False, True):
            with (
                pytest.raises(InputError, match="another experiment is at work"),
                open_journal(tmp_path / "x", fresh=fresh),
            ):
                pass
    with open_journal(tmp_path / "x") as journal:
        assert journal.load() == BEGUN


def test_beginning_anew_keeps_the_old_one(tmp_path: Path) -> None:
    for number in range(3):
        with open_journal(tmp_path / "x", fresh=True) as journal:
            assert journal.load() is None
            journal.save(replace(BEGUN, began_s=float(number)))
    began = {name: read_experiment(tmp_path / name / JOURNAL).began_s for name in ("x", "x.1", "x.2")}
    assert began == {"x": 2.0, "x.1": 0.0, "x.2": 1.0}


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"thesis\.tex"), open_journal(tmp_path):
        pass


def test_what_was_begun_otherwise_is_refused_with_what_differs() -> None:
    refuse_changed(BEGUN, replace(BEGUN, began_s=9.0), Path("x"))
    changed = replace(
        BEGUN,
        plan=ExperimentPlan(seed=3),
        target=Target(url="http://b:1", engine_url="http://a:1", model="m", engine="vllm"),
        manifest_digest="sha256:0",
    )
    with pytest.raises(InputError) as caught:
        refuse_changed(BEGUN, changed, Path("x"))
    assert caught.value.facts["differences"] == (
        "seed 0 is now 3",
        "url http://a:1 is now http://b:1",
        "the manifest is another one",
    )


def test_the_address_of_an_engine_that_is_started_here_may_change() -> None:
    launched = replace(BEGUN, target=replace(BEGUN.target, launched=("serve {port}",)))
    moved = replace(launched, target=replace(launched.target, url="http://a:2", engine_url="http://a:2"))
    refuse_changed(launched, moved, Path("x"))


def test_an_experiment_that_asked_nobody_binds_nobody() -> None:
    skipped = StepState(step=Step.PREFIX, state="skipped", why="the plan says so")
    assert is_blank(BEGUN)
    assert is_blank(replace(BEGUN, steps=(skipped,)))
    assert not is_blank(replace(BEGUN, steps=(skipped, StepState(step=Step.LOAD))))
    assert not is_blank(replace(BEGUN, snapshots=(Snapshot(label="found running", at_s=1.0),)))
    assert not is_blank(replace(BEGUN, failure=Failure(step=Step.LOAD, at_s=1.0)))


@given(data=st.binary(max_size=300), cut=st.integers(0, 2000))
def test_any_file_is_an_experiment_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    for content in (data, experiment_bytes(BEGUN)[:cut], data + experiment_bytes(BEGUN)):
        path.write_bytes(content)
        try:
            assert isinstance(read_experiment(path), Experiment)
        except InputError:
            continue


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"per_s": 1e308}, "the load is 1e\\+308 requests"),
        ({"per_s": 0.0}, "the load is 0 requests"),
        ({"seconds": -1.0}, "for -1 s"),
        ({"measured": LoadFigures(offered=1, good=2)}, "counts are of no requests"),
        ({"measured": LoadFigures(offered=1, refused=-1)}, "counts are of no requests"),
        ({"forecast": LoadFigures(prompt_tokens=2**70)}, "larger than any stage's"),
    ],
)
def test_figures_that_no_stage_has_are_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    stage = whole_experiment().stages[0]
    path = tmp_path / JOURNAL
    path.write_bytes(experiment_bytes(replace(BEGUN, stages=(stage,))))
    assert read_experiment(path).stages == (stage,)
    path.write_bytes(experiment_bytes(replace(BEGUN, stages=(replace(stage, **change),))))
    with pytest.raises(InputError, match=says):
        read_experiment(path)
