"""Plans against llama.cpp's own no-allocation measure: as recorded, and live where the package is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools.accuracy.data import ModelSet
from tools.llamacpp_agreement.cases import Case, cases
from tools.llamacpp_agreement.compare import Outcome, ask, compare
from tools.llamacpp_agreement.tables import markdown

from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests/engines/recorded/llamacpp-b11549.jsonl"
MODELS = ModelSet(ROOT / "data")
CASES = {case.name: case for case in cases()}


@cache
def checkpoint(model: str) -> Checkpoint:
    return checkpoint_from_source(MODELS.source(model))


def answers() -> dict[str, dict[str, Any]]:
    return {item["case"]: item for item in map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())}


def test_every_question_has_an_answer_of_the_engine() -> None:
    assert set(answers()) == set(CASES)
    assert len(CASES) >= 40
    assert not [name for name, answer in answers().items() if "error" in answer]


@cache
def outcomes() -> tuple[Outcome, ...]:
    return tuple(
        compare(CASES[name], checkpoint(CASES[name].model), answer) for name, answer in answers().items()
    )


def test_buffers_are_the_engines_to_the_byte_and_compute_within_three_percent() -> None:
    assert [f"{item.case.name}: {item.problem}" for item in outcomes() if item.problem] == []


def test_compute_buffers_are_mostly_equal_to_the_byte() -> None:
    """The allocator is replayed, not fitted: a rule that only came close would show here."""
    exact = [
        item for item in outcomes() if item.engine and item.engine.compute_bytes == item.plan.compute_bytes
    ]
    assert len(exact) / len(outcomes()) > 0.9


def test_the_page_is_that_of_the_recorded_answers() -> None:
    page = (ROOT / "docs/llamacpp-agreement.md").read_text(encoding="utf-8")
    assert page == markdown(outcomes())


@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="llama.cpp's package is not installed"
)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_engine_says_the_same_today(case: Case, tmp_path: Path) -> None:
    answer = ask(sys.executable, case, checkpoint(case.model), tmp_path)
    assert compare(case, checkpoint(case.model), answer).problem == ""
