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


def test_flags_are_of_both_where_the_engine_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    main([*ASK, "--tp", "2", "--new", "tp=4", "--new-engine", "vllm==0.27.1", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [document[side]["inputs"]["tp"] for side in ("old", "new")] == [2, 4]
    assert [document[side]["inputs"]["settings"]["max_model_len"] for side in ("old", "new")] == [32768] * 2


def test_another_engine_takes_its_own_flags(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*ASK, "--gpu-memory-utilization", "0.4"]
    assert main([*asked, "--new-engine", "llama.cpp", "--new", "-c=16K", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["old"]["kv_pool"]["context_len"] == 32768
    assert document["new"]["kv_pool"]["context_len"] == 16384
    assert main([*asked, "--new-engine", "sglang", "--new", "max_model_len=16K"]) == 2
    assert "sglang has no flag 'max_model_len'" in capsys.readouterr().err


def test_exit_zero(capsys: pytest.CaptureFixture[str]) -> None:
    never = ["rollout", MODEL, "--device", "custom:2GiB"]
    assert main(never) == 10
    assert main([*never, "--exit-zero"]) == 0
    tight = ["rollout", MODEL, "--device", "custom:17.5GiB", "--max-model-len", "8K"]
    assert main(tight) == 11
    assert main([*tight, "--exit-zero"]) == 0
    assert capsys.readouterr().err == ""


def test_a_narrow_page_keeps_steps_on_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    main(ASK)
    rows = capsys.readouterr().out.splitlines()
    assert max(map(len, rows)) <= 60
    steps = [row for row in rows if row.startswith(("  new ", "  old ", "  both "))]
    assert all(row.split()[-1].isdecimal() for row in steps)
    assert any(row.startswith("  new warms up ") for row in steps)
