"""An engine's end told as its class, from recorded logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramledger.experiment.failure import failure_of
from vramledger.experiment.plan import Step
from vramledger.observation import Sample

TESTS = Path(__file__).parent.parent
RECORDED = TESTS / "diagnosis" / "recorded"
STARTS = TESTS / "engines" / "recorded" / "logs"
ENDED = "the engine ended with signal 9"
OOM = (
    "(EngineCore pid=27445) ERROR 11-29 16:08:10 [core.py:901] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
    "1.17 GiB. GPU 0 has a total capacity of 79.18 GiB of which 380.00 MiB is free. Process 7441 has 78.80 GiB memory in use. "
    "Of the allocated memory 70.10 GiB is allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but unallocated."
)
PROMPT = "the patient's name is"


@pytest.fixture
def died_loading(tmp_path: Path) -> Path:
    lines = (STARTS / "vllm-0.32.0-compile.log").read_text(encoding="utf-8").splitlines()
    end = next(place for place, text in enumerate(lines) if "Starting to load model" in text)
    log = tmp_path / "engine.log"
    log.write_text("\n".join([*lines[: end + 1], OOM, ""]), encoding="utf-8")
    return log


def test_memory_that_ran_out_while_weights_were_read(died_loading: Path) -> None:
    found = failure_of(Step.LOAD, 5.0, stage="start", log=died_loading, ending=ENDED)
    assert found is not None
    assert (found.step, found.stage, found.classification) == (Step.LOAD, "start", "load-time")
    assert ENDED in found.words
    assert any("Tried to allocate 1.17 GiB" in line for line in found.evidence)
    assert found.remedies
    assert all(len(line) < 300 for line in found.evidence)


def test_an_error_in_the_log_counts_though_the_engine_goes_on(died_loading: Path) -> None:
    found = failure_of(Step.SHORT, 5.0, log=died_loading)
    assert found is not None
    assert found.classification == "load-time"


def test_a_quiet_log_of_an_engine_that_runs_is_no_failure() -> None:
    assert failure_of(Step.SHORT, 5.0, log=STARTS / "vllm-0.32.0-compile.log") is None
    assert failure_of(Step.SHORT, 5.0) is None


def test_an_end_that_nothing_explains_is_told_without_a_class(tmp_path: Path) -> None:
    found = failure_of(Step.MIXED, 5.0, stage="mixed 3", log=tmp_path / "none.log", ending=ENDED)
    assert found is not None
    assert (found.classification, found.at_s) == ("", 5.0)
    assert found.words == f"{ENDED}; no message tells why"
    assert "none.log" in found.evidence[0]


def test_kills_that_the_control_group_counted_are_told() -> None:
    samples = [
        Sample(at_s=at, source="cgroup:/a", name="cgroup_oom_kill_count", value=count)
        for at, count in ((1, 4), (2, 5))
    ]
    found = failure_of(Step.MIXED, 5.0, samples=samples, ending=ENDED)
    assert found is not None
    assert "counted 1 kill for want of memory" in found.words
    assert failure_of(Step.MIXED, 5.0, samples=samples[:1]) is None


def test_a_prompt_that_the_engine_logged_is_not_repeated(died_loading: Path) -> None:
    text = died_loading.read_text(encoding="utf-8").splitlines()
    asked = (
        "(APIServer pid=27000) INFO 11-29 16:08:09 [logger.py:40] Received request cmpl-1: prompt: "
        f"'{PROMPT}', params: SamplingParams(n=1)."
    )
    died_loading.write_text("\n".join([*text[:-1], asked, text[-1], ""]), encoding="utf-8")
    found = failure_of(Step.LOAD, 5.0, log=died_loading, ending=ENDED)
    assert found is not None
    assert PROMPT not in str(found)
