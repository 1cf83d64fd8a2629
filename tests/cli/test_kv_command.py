"""`vramledger kv`: the page, the document, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from five_kinds import DENSE, FIVE, write_config
from vramledger.cli import main
from vramledger.report.kv_document import KvDocument
from vramledger.report.schema import schema_of


@pytest.fixture
def dense(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "dense", DENSE))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["kv", *arguments])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("kind", FIVE)
def test_every_kind_of_model_has_a_page_of_80_columns_and_a_valid_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    config = str(write_config(tmp_path / kind, FIVE[kind]))
    code, page = run(capsys, config)
    assert code == 0
    assert max(map(len, page.splitlines())) <= 80
    code, text = run(capsys, config, "--json", "--context", "1000,4K", "--batch", "2")
    assert code == 0
    found: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(schema_of("kv")).validate(found)
    assert json.loads(msgspec.json.encode(msgspec.json.decode(text, type=KvDocument))) == found
    for item in found["formats"]:
        assert bool(item["refusal"]) is not bool(item["lengths"])
        assert [length["context_len"] for length in item["lengths"]] in ([], [1000, 4096])
        for length in item["lengths"]:
            parts = sum(length["key"].values()) + sum(length["value"].values()) + length["index_bytes"]
            assert parts == length["bytes"]


def test_the_page_says_what_comes_of_the_bits(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, page = run(capsys, dense, "-f", "kivi_2:residual=64", "-f", "q8_0", "--context", "8K")
    assert code == 0
    rows = [row.split() for row in page.splitlines()]
    assert ["format", "bits", "8K", "eff", "GiB", "ratio", "work"] in rows
    assert ["q8_0", "8", "69,632", "8.50", "0.53", "0.53", "0-0.03"] in rows
    # 8192 tokens are whole windows of keys; of values 64 stay in 16 bits: 24576 + 64 x (32768 - 12288) / 8192 bytes.
    assert ["kivi_2:residual=64", "2", "24,992", "3.05", "0.19", "0.19", "0"] in rows
    assert "[PPPPPPPP" in page


@pytest.mark.parametrize("columns", ["60", "70", "120"])
def test_narrow_pages_drop_columns(
    dense: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, page = run(capsys, dense)
    assert code == 0
    assert max(map(len, page.splitlines())) <= int(columns)
    _, page = run(capsys, dense, "--context", "1K,2K,3K,4K,5K,6K,7K,8K,9K,10K,11K,12K,1M")
    assert max(map(len, page.splitlines())) <= int(columns)
    assert "too narrow a page for 1K, 2K" in " ".join(page.split())
    assert "at 1M:" in " ".join(page.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "q9_0"], "q9_0"),
        (["--format", "kivi_2:residual=-1"], "residual"),
        (["--context", "long"], "long"),
        (["--context", "0"], "0"),
        (["--context", "1K,,2K"], "whole number"),
        (["--tp", "3"], "3"),
    ],
)
def test_refusals(dense: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(["kv", dense, *arguments]) == 2
    assert says in capsys.readouterr().err
