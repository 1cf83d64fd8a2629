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
SHORT_QA = TRACES.parents[1] / "examples" / "workloads" / "short-qa.toml"
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


def test_cohorts_fitted_to_a_trace_are_sampled_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted, sampled = str(tmp_path / "cohorts.toml"), str(tmp_path / "sampled.parquet")
    assert run(["workload", str(AZURE), "--json", "--fit", fitted, "--cohorts", "12"]) == 0
    trace = json.loads(capsys.readouterr().out)["workloads"][0]
    assert run(["workload", fitted, "--json", "--requests", "40000", "--output", sampled]) == 0
    back = json.loads(capsys.readouterr().out)["workloads"][0]
    assert back["requests"] == 40_000
    for tokens in ("prompt_tokens", "output_tokens"):
        assert back[tokens]["p95"] == pytest.approx(trace[tokens]["p95"], rel=0.03)
    assert back["rate_per_s"] == pytest.approx(trace["rate_per_s"], rel=0.03)
    assert run(["workload", sampled, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workloads"][0] == back | {"file": sampled}


def test_a_trace_without_times_is_sent_at_a_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("prompt_tokens,output_tokens\n" + "100,7\n" * 400, encoding="utf-8")
    assert run(["workload", str(lengths), "--json", "--rate", "4"]) == 0
    found = json.loads(capsys.readouterr().out)["workloads"][0]
    assert found["rate_per_s"] == pytest.approx(4, rel=0.2)
    assert found["arrival_cv"] == pytest.approx(1, abs=0.2)
    assert any("arrivals drawn" in note for note in found["notes"])


def test_clients_are_sampled_at_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    clients = TRACES / "servegen-bailian" / "reason-deepseek-r1.3-clients.rates.parquet"
    assert run(["workload", str(clients), "--json", "--requests", "3000", "--rate", "2"]) == 0
    found = json.loads(capsys.readouterr().out)["workloads"][0]
    assert found["requests"] == 3000
    assert {tenant["tenant"] for tenant in found["tenants"]} <= {"client 13", "client 41", "client 46"}


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
        ([str(AZURE), "--fit", "x.txt"], 2, "neither .toml nor .json"),
        ([str(AZURE), "--cohorts", "3"], 2, "--cohorts is how many"),
        ([str(AZURE), "--rate", "3"], 2, "--scale-time changes"),
        ([str(SHORT_QA), "--format", "azure"], 2, "is sampled"),
        ([str(SHORT_QA), "--time-unit", "ms"], 2, "--time-unit is for traces"),
        ([str(SHORT_QA), "--arrivals-at", "3"], 2, "--arrivals-at is for traces"),
        ([str(SHORT_QA), "--rate", "nan"], 2, "nan is no finite number"),
        ([str(SHORT_QA), "--fit", str(SHORT_QA)], 2, "--fit names the source"),
        ([str(AZURE), "--scale-time", "nan"], 2, "nan is no finite number"),
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


def test_a_trace_is_not_written_onto_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,10\n")
    assert run(["workload", str(path), "--output", str(path)]) == 2
    assert "--output names the source" in capsys.readouterr().err


def test_json_that_holds_no_cohorts_is_told_from_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.json"
    path.write_text('[{"arrival_s": 1, "prompt_tokens": 5, "output_tokens": 5}]')
    assert run(["workload", str(path)]) == 2
    told = capsys.readouterr().err
    assert "calls.json is no file of cohorts" in told
    assert "ends in .jsonl" in told


@pytest.mark.parametrize(("column", "scale"), [("arrival_s", 1000), ("arrival_ms", 0.001)])
def test_a_usual_service_in_the_wrong_unit_is_doubted(
    column: str, scale: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 5 requests a second, their milliseconds under a name for seconds and the other way round.
    path = tmp_path / "wrong.csv"
    rows = "".join(f"{number * 0.2 * scale},500,100\n" for number in range(100))
    path.write_text(f"{column},prompt_tokens,output_tokens\n{rows}")
    assert run(["workload", str(path)]) == 0
    assert "is time_unit (--time-unit) right?" in " ".join(capsys.readouterr().out.split())


def test_a_negative_time_is_told_in_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "early.csv"
    path.write_text("arrival_ms,prompt_tokens,output_tokens\n-2500,100,10\n")
    assert run(["workload", str(path)]) == 2
    assert "arrival_ms is negative ('-2.5 s')" in capsys.readouterr().err


def test_a_page_of_long_figures_stays_within_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "1,16000000,16000000\n" * 3000)
    assert run(["workload", str(path)]) == 0
    page = [text for text in capsys.readouterr().out.splitlines() if str(tmp_path) not in text]
    assert max(map(len, page)) <= 80
    assert any("p99" in text and "max" in text and "total" not in text for text in page)
