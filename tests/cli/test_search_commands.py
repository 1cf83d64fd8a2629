"""compare, fit and sweep at the command line: pages, documents, exit codes, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from five_kinds import DENSE, MIXTURE, write_config
from vramledger.cli import main
from vramledger.report.schema import schema_of
from vramledger.search.terms import asked_engines


@pytest.fixture
def dense(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "dense", DENSE))


@pytest.fixture
def mixture(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "mixture", MIXTURE))


def page(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    shown = capsys.readouterr()
    assert shown.err == ""
    return code, shown.out


def document(capsys: pytest.CaptureFixture[str], kind: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, text = page(capsys, *arguments, "--json")
    found: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(schema_of(kind)).validate(found)
    assert found["kind"] == kind
    return code, found


def test_versions_side_by_side(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", dense, "-d", "L40S", "--engine", "vllm==0.11.0", "--engine", "vllm==0.32.0"]
    asked += ["--context", "16K", "--concurrency", "8", "--flags", "vllm:gpu_memory_utilization=0.9"]
    code, found = document(capsys, "comparison", *asked)
    assert code == 0
    assert [column["plan"]["inputs"]["engine_version"] for column in found["columns"]] == ["0.11.0", "0.32.0"]
    settings = [column["plan"]["inputs"]["settings"] for column in found["columns"]]
    assert {item["gpu_memory_utilization"] for item in settings} == {0.9}
    assert {item["max_model_len"] for item in settings} == {16384}
    code, text = page(capsys, *asked)
    assert code == 0
    pools = [column["plan"]["kv_pool"]["tokens"]["expected"] for column in found["columns"]]
    row = next(line for line in text.splitlines() if line.startswith("pool tokens"))
    assert row.split()[2:] == [f"{tokens:,}" for tokens in pools]
    assert f"{abs(pools[1] - pools[0]):,} tokens" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_many_columns_are_more_tables_not_longer_lines(
    dense: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    versions = [f"vllm==0.{minor}.0" for minor in (8, 11, 14, 20, 24, 27, 30)]
    asked = [part for version in versions for part in ("--engine", version)]
    code, text = page(capsys, "compare", dense, "-d", "H100-80GB", *asked)
    assert code == 0
    assert max(map(len, text.splitlines())) <= int(columns)
    for version in versions:
        assert text.count(version.replace("==", " ")) >= 3


def test_all_engines_are_columns_unless_some_are_named(
    dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["compare", dense, "-d", "H100-80GB", "--context", "8K"]
    _, every = document(capsys, "comparison", *asked)
    assert tuple(column["engine"] for column in every["columns"]) == asked_engines()
    assert all(column["plan"] is not None for column in every["columns"])
    _, some = document(capsys, "comparison", *asked, "--engine", "vllm,trtllm", "--engine", "sglang")
    assert [column["engine"] for column in some["columns"]] == ["vllm", "trtllm", "sglang"]


def test_exit_codes_say_whether_anything_holds(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["compare", dense, "--device", "custom:8GiB", "--engine", "vllm"],
        ["fit", dense, "--devices", "custom:8GiB", "--tp", "1", "--pp", "1"],
        ["sweep", dense, "--device", "custom:8GiB"],
    ):
        assert page(capsys, *command)[0] == 10
        assert page(capsys, *command, "--exit-zero")[0] == 0
    both = ["sweep", dense, "--device", "custom:8GiB,L40S", "--context", "8K"]
    assert page(capsys, *both)[0] == 0


def test_fit_orders_marks_and_explains(mixture: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fit", mixture, "--devices", "H100-80GB,L4", "--weights", "stored,awq-int4", "--kv", "auto,fp8"]
    asked += ["--context", "32K", "--concurrency", "8", "--ep", "off,on", "--limit", "500"]
    asked += ["--price", "H100-80GB=2.5", "--price", "L4=0.7"]
    asked += ["--tp", "1,2,4", "--pp", "1"]
    for order in ("devices", "price", "tokens", "tokens-per-price"):
        code, found = document(capsys, "fit", *asked, "--order", order)
        assert code == 0
        assert len(found["holding"]) == found["holding_count"]
        plans = [item["plan"] for item in found["holding"]]
        keys = {
            "devices": [row["devices"] for row in plans],
            "price": [row["price"] for row in plans],
            "tokens": [-row["pool_tokens"] for row in plans],
            "tokens-per-price": [-row["pool_tokens"] / row["price"] for row in plans],
        }[order]
        assert keys == sorted(keys)
        assert any(item["is_best"] for item in found["holding"])
        assert all(row["shortfall_bytes"] > 0 and row["owner"] for row in found["near"])
    code, text = page(capsys, *asked, "--limit", "5")
    assert code == 0
    assert "the most useful near miss first" in text
    assert "GiB short" in text
    assert "vllm: kv_cache," in " ".join(text.split())
    assert "the first: vllm --" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_is_on_the_front_alone(mixture: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "fit",
        mixture,
        "--devices",
        "H100-80GB,L40S",
        "--weights",
        "all",
        "--context",
        "8K",
        "--limit",
        "900",
    ]
    _, whole = document(capsys, "fit", *asked)
    _, front = document(capsys, "fit", *asked, "--front")
    assert front["holding"] == [item for item in whole["holding"] if item["is_best"]]
    assert front["holding_count"] == whole["holding_count"]


def test_prices_come_from_a_file_too(dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("# an hour\nL40S,1.2\nH100-80GB=2.5\n", encoding="utf-8")
    asked = ["fit", dense, "--devices", "L40S,H100-80GB", "--context", "8K", "--order", "price"]
    _, found = document(capsys, "fit", *asked, "--prices", str(prices))
    assert {item["plan"]["price"] for item in found["holding"] if item["plan"]["devices"] == 1} == {1.2, 2.5}
    code, found = document(capsys, "fit", *asked, "--prices", str(prices), "--price", "L40S=0.1")
    assert found["holding"][0]["plan"]["price"] == 0.1
    assert code == 0


def test_sweep_writes_the_same_table_everywhere(
    dense: str, mixture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["sweep", dense, mixture, "--device", "H100-80GB,L4", "--tp", "1,2", "--context", "8K"]
    asked += ["--price", "L4=1"]
    code, text = page(capsys, *asked)
    assert code == 0
    assert len(text.splitlines()) == 1 + 2 * 2 * 2
    assert page(capsys, *asked, "--out", str(tmp_path / "t.csv")) == (0, "")
    assert (tmp_path / "t.csv").read_bytes().decode().replace("\r\n", "\n") == text.replace("\r\n", "\n")
    _, found = document(capsys, "sweep", *asked)
    assert page(capsys, *asked, "--out", str(tmp_path / "t.json")) == (0, "")
    assert json.loads((tmp_path / "t.json").read_text()) == found
    code, text = page(capsys, "sweep", "--columns")
    assert code == 0
    assert "shortfall_bytes" in text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["compare", "{}", "--device", "L4", "--engine", "tgi"], 2, "tgi"),
        (["compare", "{}", "--device", "none", "--engine", "vllm"], 2, "none"),
        (["compare", "{}", "--device", "L4", "--kv", "int3"], 2, "int3"),
        (["compare", "{}", "--device", "L4", "--flags", "vllm:nope=1"], 2, "nope"),
        (["compare", "{}", "--device", "L4", "--context", "many"], 2, "many"),
        (["compare", "{}", "--device", "L4", "--context", "8K,16K"], 2, "takes one number"),
        (["compare", "{}", "--device", "L4", "--engine", ""], 2, "--engine '' names nothing"),
        (["compare", "{}", "--device", "L4", "--engine", "vllm==99"], 2, "vllm version '99'"),
        (["compare", "{}", "--device", "L4", "--flags", "vllm:max_num_seqs=few"], 2, "--max-num-seqs 'few'"),
        (["compare", "{}", "--device", "L4", "--concurrency", "9" * 20], 2, "number from 1 to"),
        (["compare", "{}"], 2, "--device"),
        (["fit", "{}", "--devices", "L4", "--order", "price"], 2, "L4"),
        (["fit", "{}", "--devices", "L4", "--price", "L4"], 2, "DEVICE=PRICE"),
        (["fit", "{}", "--devices", "L4", "--prices", "/nonexistent/file"], 4, "/nonexistent/file"),
        (["fit", "{}", "--devices", "L4", "--weights", "int3"], 2, "int3"),
        (["fit", "{}", "--devices", "L4", "--weights", "what"], 2, "known: stored, bf16"),
        (["fit", "{}", "--devices", " , "], 2, "names nothing"),
        (["fit", "{}", "--devices", "L4", "--ep", "maybe"], 2, "maybe"),
        (["fit", "{}", "--devices", "L4", "--tp", "0"], 2, "tp"),
        (["sweep", "{}"], 2, "--device"),
        (["sweep", "--device", "L4"], 2, "MODEL"),
        (["sweep", "{}", "--device", "L4", "--out", "t.xlsx"], 2, "t.xlsx"),
        (["sweep", "{}", "--device", "L4", "--out", "/nonexistent/t.csv"], 74, "/nonexistent/t.csv"),
        (["sweep", "/nonexistent", "--device", "L4"], 4, "/nonexistent"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    dense: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    assert main([dense if text == "{}" else text for text in arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert says in shown.err
    assert "Traceback" not in shown.err


def test_all_among_names_is_the_rest(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", dense, "-d", "H200", "--context", "4K"]
    for axis, named in (("--kv", "fp8"), ("--weights", "fp8"), ("--engine", "sglang")):
        code, found = document(capsys, "sweep", *asked, axis, f"{named},ALL")
        assert code == 0
        _, every = document(capsys, "sweep", *asked, axis, "all")
        column = axis[2:]
        names = [row[column] for row in found["rows"]]
        assert names[0] == named
        assert sorted(names) == sorted(row[column] for row in every["rows"])


def test_a_file_of_prices(dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("\ufeff# an hour\n\nL40S,1.5\nH100-80GB = 2.5\n")
    asked = ["fit", dense, "--devices", "L40S,H100-80GB", "--tp", "1", "--pp", "1", "--prices", str(prices)]
    code, found = document(capsys, "fit", *asked, "--context", "4K", "--order", "price", "--price", "L40S=3")
    assert code == 0
    assert [item["plan"]["price"] for item in found["holding"]] == [2.5, 3.0]
    for data, says in ((b"L40S,1\n\nL40S,one\n", "line 3"), (b"H900=1", "line 1"), (b"\xff\xfe", "UTF-8")):
        prices.write_bytes(data)
        assert main([*asked, "--order", "price"]) == 2
        shown = capsys.readouterr().err
        assert str(prices) in shown and says in shown


def test_a_home_that_nobody_has_is_no_traceback(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    for code, asked in (
        (4, ["fit", dense, "--devices", "L4", "--prices", "~nobody-here/prices"]),
        (74, ["sweep", dense, "--device", "L4", "--out", "~nobody-here/table.csv"]),
        (4, ["layout", dense, "--device", "L4", "--lengths", "~nobody-here/trace.csv"]),
        (4, ["compare", "~nobody-here/model", "--device", "L4"]),
    ):
        assert main(asked) == code
        shown = capsys.readouterr()
        assert "~nobody-here" in shown.err and shown.out == ""


def test_what_an_engine_wants_to_be_known_is_beside_its_answer(
    dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["compare", dense, "-d", "H200", "--engine", "sglang", "--context", "1M"]
    _, found = document(capsys, "comparison", *asked)
    notes = [" ".join(note.split()) for note in found["columns"][0]["plan"]["notes"]]
    assert any("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN" in note for note in notes)
    _, text = page(capsys, *asked)
    told = " ".join(text.split())
    assert all(f"note {note}" in told for note in notes)


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_a_page_of_what_holds_is_as_wide_as_it_may_be(
    dense: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    asked = [
        "fit",
        dense,
        "--devices",
        "H100-80GB",
        "--engine",
        "vllm,llamacpp",
        "--weights",
        "gptq-int4,q4_k_m",
    ]
    asked += ["--kv", "fp16,int4", "--tp", "1", "--pp", "1", "--context", "8K"]
    code, text = page(capsys, *asked)
    assert code == 0
    assert max(map(len, text.splitlines())) <= int(columns)
    head = next(row.split() for row in text.splitlines() if row.lstrip().startswith("device "))
    assert {"tp", "weights", "KV", "tokens", "engine"} <= set(head)
    assert ("requests" in head) is (columns != "60")


def test_what_cannot_be_told_says_what_would_have_to_be_known(
    dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tight = [dense, "--device", "custom:18.4GiB", "--engine", "vllm", "--context", "8K"]
    code, found = document(capsys, "comparison", "compare", *tight)
    assert code == 11
    (unknown,) = found["columns"][0]["plan"]["verdict"]["missing"]
    assert "GiB are needed" in unknown
    for command in ("compare", "fit", "sweep"):
        code, text = page(
            capsys, command, *tight, *(["--tp", "1", "--pp", "1"] if command != "compare" else [])
        )
        assert code == 11
        assert unknown in " ".join(text.split())
