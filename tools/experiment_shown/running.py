"""Whole experiments by the command, on real engines: straight, and through the gateway."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.gateway_shown.engines import CELLS, engine, gateway
from tools.real_engines.cases import config_of, small_model
from tools.real_engines.models import make_model
from tools.real_engines.running import environment

ENDS_S = 60.0


def launch_words(name: str, folder: Path, venv: Path | None, cells: int) -> tuple[str, str]:
    """The command of an engine for --launch, and its model: llama.cpp's server with slots that share `cells` cells, or vLLM with 64 blocks of 128."""
    if name == "llamacpp":
        words = [
            sys.executable, "-m", "vramledger.release.xllamacpp_server", "-m", "{model}", "--host", "{host}", "--port", "{port}",
            "-c", str(cells), "-np", "8", "--kv-unified", "-t", "1", "--cache-ram", "0", "--metrics", "--slots", "--props",
        ]  # fmt: skip
        return shlex.join(words), str(small_model())
    make_model(folder / "model", config_of("llama-gqa"))
    words = [
        "vllm" if venv is None else str(venv / "bin" / "vllm"), "serve", "{model}", "--served-model-name", "m",
        "--host", "{host}", "--port", "{port}", "--max-model-len", "2048", "--enforce-eager",
        "--kv-cache-memory-bytes", "8M", "--disable-uvicorn-access-log",
    ]  # fmt: skip
    return shlex.join(words), str(folder / "model")


def straight(
    name: str, folder: Path, venv: Path | None, out: Path, more: Sequence[str], *, cells: int = CELLS
) -> int:
    """The command starts the engine itself. Returns its exit code."""
    launch, model = launch_words(name, folder, venv, cells)
    return _experiment(folder, venv, ["--launch", launch, "--model", model, "-o", str(out), *more])


def through_gateway(
    name: str, folder: Path, venv: Path | None, out: Path, more: Sequence[str], *, cells: int = CELLS
) -> int:
    """A running engine behind a running gateway."""
    with engine(name, folder, venv, cells=cells) as (port, _), gateway(name, port, folder) as front:
        target = [
            "--target", f"http://127.0.0.1:{front.port}", "--gateway", f"http://127.0.0.1:{front.admin_port}",
            "--engine-url", f"http://127.0.0.1:{port}", "-o", str(out), *more,
        ]  # fmt: skip
        return _experiment(folder, venv, target)


WAYS = {"straight": straight, "gateway": through_gateway}


def _experiment(folder: Path, venv: Path | None, options: Sequence[str]) -> int:
    command = [sys.executable, "-m", "vramledger", "experiment", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment(venv, folder))
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def experiment_files(work: Path) -> list[Path]:
    """What is there of earlier runs, engine by engine and way by way."""
    return sorted(path for path in work.glob("*/*/experiment.json") if json.loads(path.read_bytes()))
