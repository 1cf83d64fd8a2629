"""Plans that were made before, side by side: nothing of a difference is lost where model, device and engine differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from vramledger.cli import main
from vramledger.report.schema import schema_of

LLAMA, QWEN = "builtin:Llama-3.1-8B-Instruct", "builtin:Qwen3-30B-A3B"


@pytest.fixture
def plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    asked = {
        "small": [LLAMA, "--device", "L40S", "--max-model-len", "8K"],
        "large": [LLAMA, "--device", "H200", "--max-model-len", "8K", "--kv-cache-dtype", "fp8"],
        "other": [
            QWEN,
            "--device",
            "H100-80GB",
            "--engine",
            "sglang",
            "--tp",
            "2",
            "--context-length",
            "16K",
        ],
    }
    files = []
    for name, words in asked.items():
        assert main(["plan", *words, "--json"]) == 0
        file = tmp_path / f"{name}.json"
        file.write_text(capsys.readouterr().out, encoding="utf-8")
        files.append(str(file))
    return files


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["compare", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("comparison")).validate(found)
    return found


def test_plans_of_other_models_and_devices_add_up(
    plans: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, *plans)
    assert [column["name"] for column in found["columns"]] == ["small", "large", "other"]
    for column, file in zip(found["columns"], plans, strict=True):
        stored = json.loads(Path(file).read_text(encoding="utf-8"))
        # How an engine is started belongs to the command line, which a comparison does not have.
        del stored["start"]
        assert column["plan"] == stored
    for item in found["differences"]:
        here, there = (found["columns"][item[side]] for side in ("column", "against"))
        tokens = [column["plan"]["kv_pool"]["tokens"]["expected"] for column in (here, there)]
        assert item["tokens"] == tokens[0] - tokens[1] == sum(term["tokens"] for term in item["terms"])
        assert item["bytes"] == sum(term["bytes"] for term in item["terms"])
        device = next(term["bytes"] for term in item["terms"] if term["name"] == "device")
        assert device == here["held"]["device_total_bytes"] - there["held"]["device_total_bytes"]


def test_ranges_are_those_of_the_entries(plans: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for column in compared(capsys, *plans)["columns"]:
        held = column["held"]
        assert {owner: size["expected"] for owner, size in held["ranges"].items()} == held["by_owner"]
        assert sum(held["by_owner"].values()) == held["peak_bytes"]
        assert held["peak_bytes"] + held["unused_bytes"] == held["device_total_bytes"]
        for owner, size in held["ranges"].items():
            entries = [
                entry["bytes"]
                for entry in column["plan"]["ranks"][0]["entries"]
                if entry["owner"] == owner and held["phase"] in entry["phases"]
            ]
            for end in ("low", "expected", "high"):
                assert size[end] == sum(entry[end] for entry in entries)


def test_the_page_says_what_each_plan_is_of(plans: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *plans]) == 0
    text = capsys.readouterr().out
    assert "small: meta-llama/Llama-3.1-8B-Instruct · bfloat16 · L40S 44.53 GiB" in text
    assert "large has" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_same_name_twice_is_told_apart(
    plans: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again"
    again.mkdir()
    (again / "small.json").write_bytes(Path(plans[0]).read_bytes())
    names = [column["name"] for column in compared(capsys, plans[0], str(again / "small.json"))["columns"]]
    assert names == [plans[0], str(again / "small.json")]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{0}"], 2, "Missing option '--device'"),
        (["{0}", "{1}", "--tp", "2"], 2, "--tp asks about a MODEL"),
        (["{0}", "{1}", "--engine", "vllm"], 2, "--engine asks about a MODEL"),
        (["{0}", "{1}", "--device", "L4"], 2, "One MODEL"),
        (["{0}", "nowhere.json"], 4, "nowhere.json"),
        (["{0}", LLAMA], 4, LLAMA),
        (["{0}", "{none}"], 2, "kind"),
        (["{0}", "{cut}"], 2, "cut.json"),
    ],
)
def test_what_is_no_plan_is_refused(
    plans: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    (tmp_path / "none.json").write_text('{"kind": "manifest"}', encoding="utf-8")
    (tmp_path / "cut.json").write_text(Path(plans[0]).read_text(encoding="utf-8")[:5000], encoding="utf-8")
    files = {"none": str(tmp_path / "none.json"), "cut": str(tmp_path / "cut.json")}
    assert main(["compare", *(word.format(*plans, **files) for word in words)]) == code
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message
