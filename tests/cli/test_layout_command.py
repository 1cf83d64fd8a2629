"""`vramledger layout`: the page, the document, lengths from files, exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import click
import jsonschema
import msgspec
import pytest

from five_kinds import DENSE, FIVE, write_config
from vramledger.cli import main
from vramledger.cli.layout_command import command
from vramledger.cli.lengths_file import read_lengths
from vramledger.engines import engine_names
from vramledger.errors import FlagError, SourceError
from vramledger.report.layout_document import LayoutDocument
from vramledger.report.schema import schema_of

ASKED = (
    "--device",
    "H200-141GB",
    "--tp",
    "2",
    "--max-model-len",
    "8K",
    "--prompt",
    "500,2000,4000",
    "--output",
    "100,400,1000",
)


@pytest.fixture
def dense(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "dense", DENSE))


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["layout", *arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("layout")).validate(found)
    return code, found


@pytest.mark.parametrize("kind", FIVE)
def test_every_kind_of_model_has_a_page_and_a_valid_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    config = str(write_config(tmp_path / kind, FIVE[kind]))
    assert main(["layout", config, *ASKED]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    code, found = document(capsys, config, *ASKED, "--concurrency", "16")
    assert code == 0
    assert found["requests"] == 16
    assert found["allocations"][0]["scheme"] == "paged"
    for item in found["allocations"]:
        waste = sum(item["waste"].values())
        assert item["refusal"] or item["used_bytes"] + waste == item["held_bytes"]["expected"]
    text = json.dumps(found)
    assert json.loads(msgspec.json.encode(msgspec.json.decode(text, type=LayoutDocument))) == found


def test_as_many_requests_as_the_blocks_hold_without_a_number(
    dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = document(capsys, dense, *ASKED)
    assert found["requests"] == found["allocations"][0]["fit_running"] > 100


def test_exit_codes(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", dense, *ASKED, "--concurrency", "100000"]) == 10
    assert main(["layout", dense, *ASKED, "--concurrency", "100000", "--exit-zero"]) == 0
    capsys.readouterr()
    code, found = document(capsys, dense, "-d", "custom:10GiB", "--prompt", "100", "--output", "10")
    assert code == 10
    assert "does not fit" in found["refusal"]
    assert found["allocations"] == []


@pytest.mark.parametrize("columns", ["60", "100", "120"])
def test_pages_of_any_width(
    dense: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["layout", dense, *ASKED, "--vmm-page", "64KiB", "--vmm-page", "4MiB"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= int(columns)
    assert "kvcached 4 MiB" in page


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--prompt", "100"], "--output"),
        ([], "--lengths"),
        (["--prompt", "5,4,3", "--output", "1"], "prompt"),
        (["--prompt", "x", "--output", "1"], "whole number"),
        (["--prompt", "0", "--output", "1"], "0"),
        (["--prompt", "1", "--output", "1", "--vmm-page", "3MiB"], "vmm-page"),
        (["--prompt", "1", "--output", "1", "--vmm-page", "big"], "big"),
        (["--prompt", "1", "--lengths", "a.csv"], "leave --prompt"),
    ],
)
def test_refusals(dense: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(["layout", dense, "--device", "H200-141GB", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_trace_gives_its_lengths(tmp_path: Path, dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nx,374,44\ny,396,109\n", encoding="utf-8")
    code, found = document(capsys, dense, "--device", "H200-141GB", "--lengths", str(trace))
    assert code == 0
    assert (found["mean_prompt_tokens"], found["longest_tokens"]) == (385, 396 + 109 - 1)


@pytest.mark.parametrize(
    "text",
    [
        "prompt,output\n3,4\n3,4\n5,6\n",
        "3,4\n3,4\n5,6\n",
        "num_prefill_tokens,num_decode_tokens,x\n3,4,1\n3,4,\n\n5,6,z\n",
        '{"prompt": 3, "output": 4}\n{"prompt": 3, "output": 4}\n{"Input_Length": 5, "output_len": 6, "hash_ids": []}\n',
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_lengths(tmp_path: Path, text: str, packed: bool) -> None:
    path = tmp_path / "lengths"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert read_lengths(path) == {(3, 4): 2, (5, 6): 1}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"a,b\n1,2\n", b"prompt,output\n", b"prompt,output\n1\n", b"prompt,output\n1,-2\n", b"1,2\n1,2.5\n",
        b"prompt,output\n1,99999999999999999999\n", b"\xff\xfe1,2\n", b'{"prompt": 1}\n', b'{"prompt": 1, "output": true}\n',
        b'{"prompt": 1, "output": 2}\n[1]\n', b'{"prompt": 1,\n', b"\x1f\x8b\x08nonsense", gzip.compress(b"1,2\n", mtime=0)[:-4],
        b'{"a": ' * 100_000, b'prompt,output\n"1,2\n',
    ],
)  # fmt: skip
def test_files_that_are_no_lengths_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "lengths"
    path.write_bytes(data)
    with pytest.raises(FlagError, match="--lengths"):
        read_lengths(path)


def test_a_json_array_is_no_csv(tmp_path: Path) -> None:
    path = tmp_path / "lengths.json"
    path.write_text('[{"prompt": 1, "output": 2}]', encoding="utf-8")
    with pytest.raises(FlagError, match="line 1 is not a JSON object"):
        read_lengths(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        read_lengths(tmp_path / "nothing.csv")
    with pytest.raises(SourceError):
        read_lengths(tmp_path)


@pytest.mark.parametrize("engine", engine_names())
def test_no_flag_of_an_engine_is_one_of_the_command(engine: str) -> None:
    context = click.Context(command)
    command.parse_args(context, ["model", "--device", "x", "--engine", engine])
    names = [name for param in command.get_params(context) for name in (*param.opts, *param.secondary_opts)]
    assert len(names) == len(set(names))
