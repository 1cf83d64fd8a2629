"""llama.cpp at the command line: its flags in both spellings, its pages and documents, its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from gguf_builder import llama

from five_kinds import DENSE, FIVE, write_config
from vramledger.cli import main
from vramledger.report.schema import schema_of

COMMAND = ("--device", "RTX 4090", "--engine", "llamacpp==b11549")


@pytest.fixture
def dense(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "dense", DENSE))


@pytest.mark.parametrize("kind", FIVE)
def test_json_of_each_kind_follows_the_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    config = str(write_config(tmp_path / kind, FIVE[kind]))
    code = main(["plan", config, *COMMAND, "-c", "4096", "--ftype", "Q4_K_M", "--json"])
    said = capsys.readouterr()
    assert code in (0, 1), said.err
    document = json.loads(said.out)
    jsonschema.Draft202012Validator(schema_of("plan")).validate(document)
    assert document["inputs"]["engine"] == "llamacpp"
    assert document["host"]


def test_short_and_long_spellings_are_one_flag(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    short = [
        "-c",
        "4096",
        "-np",
        "2",
        "-ub",
        "256",
        "-ngl",
        "9",
        "-fa",
        "on",
        "-ctk",
        "q8_0",
        "-ctv",
        "q8_0",
        "-kvu",
    ]
    long = [
        "--ctx-size", "4096", "--parallel", "2", "--ubatch-size", "256", "--gpu-layers", "9", "--flash-attn", "on",
        "--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--kv-unified",
    ]  # fmt: skip
    pages = []
    for flags in (short, long):
        assert main(["plan", dense, *COMMAND, *flags]) == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]
    assert "llama_kv_cache: size =" in pages[0]


def test_the_alias_of_the_engine(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", dense, "--device", "H100", "--engine", "llama.cpp", "-c", "2048"]) == 0
    assert "CUDA0 model buffer" in capsys.readouterr().out


def test_a_host_alone(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", dense, "--device", "cpu:64GiB", "--engine", "llamacpp", "-c", "2048"]) == 0
    out = capsys.readouterr().out
    assert "CPU KV buffer" in out and "CUDA" not in out


def test_a_gguf_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = llama(layers=3).write(tmp_path / "small.gguf")
    assert main(["plan", str(path), "--device", "H100", "--engine", "llamacpp", "-c", "512"]) == 0
    assert "GGUF" in capsys.readouterr().out.upper()


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--ftype", "Q9"], "--ftype"),
        (["-ctk", "fp8"], "cache-type-k"),
        (["-fa", "off", "-ctv", "q8_0"], "cache-type-v"),
        (["--lora", "/nowhere/adapter.gguf"], "adapter.gguf"),
        (["--mmproj", "/nowhere/mmproj.gguf"], "mmproj.gguf"),
        (["-np", "0"], "parallel"),
    ],
)
def test_refusals_name_what_was_wrong(
    dense: str, capsys: pytest.CaptureFixture[str], flags: list[str], named: str
) -> None:
    assert main(["plan", dense, *COMMAND, *flags]) not in (0, 1)
    assert named in capsys.readouterr().err
