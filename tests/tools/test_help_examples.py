"""The examples that `--help` and docs/reference/commands show answer: run one after the other where what they name is given."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
from tools.documented.blocks import ROOT, blocks
from tools.documented.sandbox import furnish
from tools.documented.spelling import commands
from tools.reference.commands import NOT_RUN

from adapter_files import lora, write_adapter
from telemetry.caching_allocator import CachingAllocator
from vramledger.cli import main

AZURE = "data/traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz"
MOONCAKE = "data/traces/mooncake-fast25/conversation_trace.first-300000ms.jsonl.gz"
ROWS = 2000
PAGES = sorted((ROOT / "docs" / "reference" / "commands").glob("*.md"))
# Of other commands what cannot be given here, or takes minutes.
LEFT = (
    "...", "--ray", "--follow", "./experiment", ".gguf", " - ", "./c ", "org/adapter", "series.parquet", "sessions.jsonl",
    "--device all", "--speculative-config", "--requests 1000000", "--picture load.svg", "--limit 2000", "--admission default",
)  # fmt: skip
ANSWERS = {0, 10, 11, 12, 13, 14, 15, 16, 18}


def examples(page: Path) -> list[list[str]]:
    found = [words for block in blocks(page) if block.language == "sh" for words in commands(block.text)]
    return [words[1:] for words in found if words[0] == "vramledger"]


def test_nothing_is_left_out_that_is_not_there() -> None:
    shown = {page.stem: [f" {' '.join(words)} " for words in examples(page)] for page in PAGES}
    assert [name for name in NOT_RUN if not shown.get(name)] == []
    others = [line for name, lines in shown.items() if name not in NOT_RUN for line in lines]
    assert [part for part in LEFT if not any(part in line for line in others)] == []


def is_left(words: list[str]) -> bool:
    return any(part in f" {' '.join(words)} " for part in LEFT)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples name."""
    folder = furnish(tmp_path_factory.mktemp("examples"))
    for name in ("Llama-3.1-8B-Instruct", "Llama-3.1-8B", "org/name", "deepseek-ai/DeepSeek-V3.2", "a", "b"):
        shutil.copytree(folder / "model", folder / name)
    for name in ("sql", "support"):
        modules = {"self_attn.q_proj": (4096, 4096), "self_attn.v_proj": (1024, 4096)}
        config = {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]}
        write_adapter(folder / name, config, lora(modules, 16, layers=range(32)))
    log = (folder / "server.log").read_bytes()
    for name in ("serve.log", "startup.log", "log", "log.1", "dmesg.txt"):
        (folder / name).write_bytes(log)
    shutil.copyfile(folder / "examples" / "workloads" / "short-qa.toml", folder / "cohorts.toml")
    shutil.copyfile(folder / "examples" / "steps" / "RTX4090_Llama-3.1-8B.json", folder / "step.json")
    shutil.copyfile(folder / "examples" / "facts.json", folder / "facts.json")
    for name in ("release-policy.toml", "floors.toml"):
        shutil.copyfile(folder / "examples" / "release-policy.toml", folder / name)
    (folder / "log.2.gz").write_bytes(gzip.compress(log))
    _traces(folder)
    _documents(folder)
    allocator = CachingAllocator()
    allocator.malloc(64 << 20)
    (folder / "oom.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
    return folder


def _traces(folder: Path) -> None:
    shutil.copyfile(folder / AZURE, folder / "AzureLLMInferenceTrace_conv.csv.gz")
    rows = (folder / "trace.csv").read_text(encoding="utf-8").splitlines(keepends=True)[:ROWS]
    (folder / "trace.csv").write_text("".join(rows), encoding="utf-8")
    with gzip.open(folder / MOONCAKE, "rt", encoding="utf-8") as lines:
        (folder / "trace.jsonl").write_text(
            "".join(line for line, _ in zip(lines, range(ROWS), strict=False))
        )
    calls = ({"time": 100 * number, "ctx": 900, "gen": 50} for number in range(ROWS))
    (folder / "calls.jsonl").write_text("".join(f"{json.dumps(call)}\n" for call in calls))


def _documents(folder: Path) -> None:
    """A plan, a measurement and manifests, made by the commands that make them."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        for name, device in (("plan", "H100-80GB"), ("h100", "H100-80GB"), ("l40s", "L40S")):
            with contextlib.redirect_stdout(io.StringIO()) as plan:
                main(["plan", "./model", "--device", device, "--json", "--exit-zero"])
            Path(f"{name}.json").write_text(plan.getvalue(), encoding="utf-8")
        assert main(["measure", "--log", "vllm.log", "-o", "measurement.json"]) == 0
        for name in ("release", "released", "candidate", "v1", "v2"):
            revision = ["--engine-revision", "5f2d" * 10, "-o", f"{name}.json"]
            assert main(["manifest", "./model", "--device", "H100-80GB", *revision]) == 0
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in NOT_RUN], ids=lambda page: page.stem
)
def test_the_examples_of_a_command_answer(
    page: Path, reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(reader)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for words in examples(page):
        if not is_left(words):
            code = main(words)
            assert code in ANSWERS, f"{' '.join(words)}: {code}\n{capsys.readouterr().err}"
