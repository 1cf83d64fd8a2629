"""A folder in which documented commands run: a clone's files, and stand-ins for those that a reader has."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.documented.blocks import ROOT, Block

_COPIED = ("examples", "schema", "deploy", "docs")
_LINKED = ("data", "src", "tools", "pyproject.toml", "Makefile", "README.md")
# What the pages call them, and what stands for them.
_MODELS = {"model": "Llama-3.1-8B-Instruct", "model-v1": "Llama-3.1-8B-Instruct", "model-v2": "Qwen3-30B-A3B"}
_TRACE = "data/traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz"
_TRACE_ROWS = 2000
_LOGS = {"server.log": "vllm-0.32.0-tiny-llama.log", "vllm.log": "vllm-0.32.0-tiny-llama.log"}
NOWHERE = "http://127.0.0.1:9"


def furnish(folder: Path) -> Path:
    """Fill `folder`, and give it back."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name)
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name)
    for name, example in _MODELS.items():
        shutil.copytree(ROOT / "examples" / example, folder / name)
    for name, log in _LOGS.items():
        shutil.copyfile(ROOT / "examples" / "logs" / log, folder / name)
    with gzip.open(ROOT / _TRACE, "rt", encoding="utf-8") as lines:
        (folder / "trace.csv").write_text(
            "".join(line for line, _ in zip(lines, range(_TRACE_ROWS), strict=False))
        )
    programs = folder / ".programs"
    programs.mkdir()
    ours = programs / "vramledger"
    ours.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vramledger "$@"\n')
    ours.chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    return folder


def run(block: Block, folder: Path, *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a block in a furnished folder, without a network, and stop at the first command that fails.

    Raises subprocess.TimeoutExpired after `timeout_s`.
    """
    if block.language == "python":
        command = [sys.executable, "-c", block.text]
    else:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    environment = {
        "PATH": f"{folder / '.programs'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
        "HOME": str(folder),
        # The compiled simulator is kept there, half a minute's work.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "LANG": "C.UTF-8",
        "COLUMNS": "80",
        "HF_HUB_OFFLINE": "1",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOWHERE),
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
