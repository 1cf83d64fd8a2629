"""The wheel in an environment that has nothing but what it requires: everything that needs no extra runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from tools.distributions import Distributions

import vramledger
from clean_install import PATIENCE_S, CleanInstall, required_by
from vramledger.cli.app import _COMMANDS as COMMANDS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MODEL = "builtin:Llama-3.1-8B-Instruct"
CARD = ("--device", "H100-80GB")

HELPS = """
import contextlib, io, json, sys
from vramledger.cli import main

answers = {}
for command in sys.argv[1:]:
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        code = main([command, "--help"])
    answers[command] = [code, page.getvalue()]
print(json.dumps({"helps": answers, "file": sys.modules["vramledger"].__file__, "modules": sorted(sys.modules)}))
"""


def test_pip_finds_nothing_missing_and_nothing_more_is_there(
    installed: CleanInstall, built: Distributions, tmp_path: Path
) -> None:
    checked = installed.python_run("-m", "pip", "--disable-pip-version-check", "check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    listed = installed.python_run(
        "-m", "pip", "--disable-pip-version-check", "list", "--format", "json", cwd=tmp_path
    )
    names = {item["name"].lower().replace("_", "-") for item in json.loads(listed.stdout)}
    assert names - {"pip", "setuptools"} == required_by(built.wheel) | {"vramledger"}
    assert not names & {"numpy", "pyarrow", "httptools", "huggingface-hub"}


def test_the_version_is_that_of_the_package(installed: CleanInstall, tmp_path: Path) -> None:
    assert vramledger.__version__ in installed.run("--version", cwd=tmp_path).stdout
    module = installed.python_run("-I", "-m", "vramledger", "--version", cwd=tmp_path)
    assert vramledger.__version__ in module.stdout


def test_every_command_has_its_help(installed: CleanInstall, tmp_path: Path) -> None:
    done = installed.python_run("-I", "-c", HELPS, *COMMANDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert Path(answer["file"]).is_relative_to(installed.packages)
    assert answer["helps"].keys() == COMMANDS.keys()
    for command, (code, page) in answer["helps"].items():
        assert code == 0, command
        assert page.startswith(f"Usage: vramledger {command} ")
    assert "numpy" not in answer["modules"]


QUESTIONS: dict[str, tuple[str | Path, ...]] = {
    "plan": ("plan", MODEL, *CARD, "--max-model-len", "32K"),
    "plan-sglang": ("plan", MODEL, *CARD, "--engine", "sglang"),
    "plan-llamacpp": ("plan", MODEL, *CARD, "--engine", "llamacpp"),
    "plan-trtllm": ("plan", MODEL, *CARD, "--engine", "tensorrt-llm"),
    "rollout": ("rollout", MODEL, *CARD),
    "compare": ("compare", MODEL, *CARD, "--engine", "vllm==0.11.0", "--engine", "vllm"),
    "fit": ("fit", MODEL, "--devices", "H100-80GB,L40S", "--context", "32K"),
    "sweep": ("sweep", MODEL, "--device", "H100-80GB,L40S"),
    "kv": ("kv", MODEL),
    "model": ("model", "builtin:DeepSeek-V3"),
    "model-list": ("model", "--list"),
    "model-folder": ("model", EXAMPLES / "gpt-oss-120b"),
    "devices": ("devices",),
    "log": ("log", EXAMPLES / "logs" / "vllm-0.32.0-tiny-llama.log"),
    "measure": ("measure", "--log", EXAMPLES / "logs" / "vllm-0.32.0-tiny-llama.log"),
    "diagnose": ("diagnose", EXAMPLES / "logs" / "llamacpp-kv-exhausted.log"),
    "manifest": (
        "manifest",
        EXAMPLES / "Llama-3.1-8B-Instruct",
        *CARD,
        "--engine-revision",
        "0123456789abcdef" * 2 + "01234567",
        "--at",
        "2026-01-01T00:00:00Z",
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_are_answered_without_an_extra(installed: CleanInstall, tmp_path: Path, name: str) -> None:
    done = installed.run(*QUESTIONS[name], "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["schema_version"]
    assert list(tmp_path.iterdir()) == []


def test_a_release_is_gone_through_on_paper(installed: CleanInstall, tmp_path: Path) -> None:
    """A manifest is written, verified, audited, compared with itself and put to a gate; its schema is printed."""
    made = installed.run(*QUESTIONS["manifest"], "-o", "m.json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert installed.run("manifest", "verify", "m.json", cwd=tmp_path).returncode == 0
    assert installed.run("diff", "m.json", "m.json", cwd=tmp_path).returncode == 0
    assert installed.run("audit", "m.json", cwd=tmp_path).returncode == 14
    policy = EXAMPLES / "release-policy.toml"
    assert installed.run("gate", "m.json", "--policy", policy, cwd=tmp_path).returncode == 11
    assert json.loads(installed.run("schema", "manifest", cwd=tmp_path).stdout)["title"]


def test_a_tenants_key_is_made(installed: CleanInstall, tmp_path: Path) -> None:
    assert re.search(r"[0-9a-f]{12}:[0-9a-f]{64}", installed.run("gateway-key", "alice", cwd=tmp_path).stdout)


@pytest.mark.skipif(
    "VRAMLEDGER_NETWORK" not in os.environ, reason="installs from an index: make release-check"
)
def test_the_oldest_series_that_are_allowed_will_do(built: Distributions, tmp_path: Path) -> None:
    """click 8.1 beside today's, and so on: the lower bounds of pyproject.toml are no guesses."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*declared["dependencies"], *declared["optional-dependencies"]["web"]]
    (tmp_path / "oldest.txt").write_text("\n".join(map(oldest, lines)) + "\n", encoding="utf-8")
    venv.create(tmp_path / "oldest", with_pip=True)
    python = str(tmp_path / "oldest" / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    wanted = ["--constraint", str(tmp_path / "oldest.txt"), f"{built.wheel}[web]"]
    subprocess.run([*pip, *wanted], check=True, timeout=PATIENCE_S)
    old = CleanInstall(tmp_path / "oldest")
    helped = old.python_run("-I", "-c", HELPS, *COMMANDS, cwd=tmp_path)
    assert helped.returncode == 0, helped.stderr
    assert {code for code, _ in json.loads(helped.stdout)["helps"].values()} == {0}
    for name, question in QUESTIONS.items():
        done = old.run(*question, "--json", cwd=tmp_path)
        assert done.returncode == 0, f"{name}: {done.stderr}"


def oldest(line: str) -> str:
    """The series that a lower bound begins with: "click>=8.1" is "click==8.1.*"."""
    requirement = Requirement(line)
    (bound,) = requirement.specifier
    series = ".".join(bound.version.split(".")[:2])
    return f"{requirement.name}=={series}.*"
