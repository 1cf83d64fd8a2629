"""`vramledger workload`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from vramledger.cli.app import run
from vramledger.report.schema import schema_of

TRACES = Path(__file__).parents[2] / "data" / "traces"
AZURE = TRACES / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv.gz"
MEASURED = TRACES / "vllm-measured-runs" / "RTX4090_Llama-3.1-8B" / "workload.jsonl.gz"


def test_the_page_says_what_a_trace_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workload", str(AZURE), str(MEASURED)]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "19,366 requests over 3,501.7 s, 5.53 a second; CV of the gaps 1.094" in page
    assert "1,220 of 15,942 prompt blocks of 16 tokens (7.65%) came before" in page


def test_the_document_is_of_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workload", str(MEASURED), "--json", "--limit", "10", "--scale-time", "0.5"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("workload")).validate(document)
    assert document["workloads"][0]["requests"] == 10


@pytest.mark.parametrize("name", ["out.parquet", "out.csv.gz"])
def test_what_it_writes_it_reads(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / name)
    assert run(["workload", str(MEASURED), "--json", "--output", out]) == 0
    first = json.loads(capsys.readouterr().out)["workloads"][0]
    assert run(["workload", out, "--json"]) == 0
    second = json.loads(capsys.readouterr().out)["workloads"][0]
    assert second == first | {"file": out}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.csv"], 4, "nowhere.csv"),
        ([str(AZURE), "--column", "prompt_tokens"], 2, "--column takes FIELD=NAME"),
        ([str(AZURE), "--column", "prompt_tokens=ctx"], 2, "its columns are 'TIMESTAMP'"),
        ([str(AZURE), "--format", "mooncake"], 2, "looks like azure"),
        ([str(AZURE), str(AZURE), "--output", "x.csv"], 2, "--output takes one FILE"),
        ([str(AZURE), "--output", "x.txt"], 2, "ends in none of"),
        ([str(AZURE), "--scale-time", "0"], 2, "--scale-time"),
    ],
)
def test_wrong_questions(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workload", *arguments]) == code
    assert message in capsys.readouterr().err


def test_lengths_without_times_get_arrivals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n" + "100,10\n" * 50)
    assert run(["workload", str(path), "--json"]) == 0
    bare = json.loads(capsys.readouterr().out)["workloads"][0]
    assert bare["rate_per_s"] is None
    assert any("no arrival times" in note for note in bare["notes"])
    assert run(["workload", str(path), "--json", "--arrivals-at", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["workloads"][0]["rate_per_s"] == pytest.approx(5, rel=0.5)
