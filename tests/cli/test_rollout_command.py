"""`vramledger rollout` as a process would see it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from vramledger.cli import main
from vramledger.report.schema import schema_of

MODEL = str(Path(__file__).parents[2] / "examples" / "Llama-3.1-8B-Instruct")
ASK = ["rollout", MODEL, "--device", "H100-80GB", "--max-model-len", "32K"]


def test_the_document_is_valid_and_says_which_ways_hold(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*ASK, "--new", "gpu_memory_utilization=0.4", "--host-memory", "8GiB", "--json"])
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema_of("rollout"))
    held = {item["way"] + item["level"]: item["holds"] for item in document["rollouts"]}
    assert code == 0
    assert held == {"recreate": True, "side-by-side": False, "asleep1": False, "asleep2": True, "surge": True}
    assert document["new"]["inputs"]["settings"]["gpu_memory_utilization"] == 0.4


def test_the_page_shows_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ASK) == 0
    page = capsys.readouterr().out
    for text in (
        "recreate: holds",
        "side-by-side: does not hold",
        "old sleeps (level 1)",
        "--enable-sleep-mode",
    ):
        assert text in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--new", "max_model_len"], "is not NAME=VALUE"),
        (["--new", "max_model_length=1"], "did you mean max_model_len"),
        (["--host-memory", "lots"], "--host-memory"),
        (["--new-engine", "vlm"], "unknown engine 'vlm'"),
    ],
)
def test_wrong_input_is_named(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASK, *more]) == 2
    assert said in capsys.readouterr().err
