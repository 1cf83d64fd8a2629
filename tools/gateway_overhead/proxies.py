"""The proxies that are measured, and how each is started before an upstream."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from vramledger.telemetry.engine_process import EngineProcess, free_port

START_S = 120.0
KEY = "sk-1234"


def ours(port: int, upstream: int, folder: Path) -> list[str]:
    """The gateway as users run it, its policy deciding over a pool that takes all that is asked here."""
    config = folder / "gateway.toml"
    config.write_text(
        f"[[upstream]]\nurl = 'http://127.0.0.1:{upstream}'\nengine = 'vllm'\npool_tokens = 100_000_000\n"
        "max_model_len = 8192\nmax_running = 100_000\n",
        encoding="utf-8",
    )
    return [
        sys.executable, "-m", "vramledger", "gateway", "--config", str(config),
        "--listen", f"127.0.0.1:{port}", "--admin", "127.0.0.1:0",
    ]  # fmt: skip


def sglang_router(venv: Path, port: int, upstream: int) -> list[str]:
    """SGLang's router, in Rust."""
    return [
        str(venv / "bin" / "python"), "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", f"http://127.0.0.1:{upstream}", "--policy", "round_robin", "--prometheus-port", str(free_port()),
        "--log-level", "error",
    ]  # fmt: skip


def litellm(venv: Path, port: int, upstream: int, folder: Path) -> list[str]:
    """LiteLLM's proxy with one worker."""
    config = folder / "litellm.json"
    server = {"model": "openai/m", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": KEY}
    config.write_text(
        json.dumps({"model_list": [{"model_name": "m", "litellm_params": server}]}), encoding="utf-8"
    )
    return [
        str(venv / "bin" / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1",
    ]  # fmt: skip


@contextmanager
def running(command: Sequence[str], port: int, log: Path, cores: set[int]) -> Iterator[int]:
    """A program that answers on a port, on some cores alone; its process id. Raises RuntimeError where it does not come up."""
    environment = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "NO_PROXY": "*",
    }
    own = os.sched_getaffinity(0)
    engine = EngineProcess(list(command), url=f"http://127.0.0.1:{port}", log=log, environment=environment)
    os.sched_setaffinity(0, cores)  # what is started inherits it
    try:
        engine.__enter__()
    finally:
        os.sched_setaffinity(0, own)
    try:
        end = time.monotonic() + START_S
        while not _serves(port):
            if engine.exit_code is not None or time.monotonic() > end:
                raise RuntimeError(
                    f"{command[0]} does not serve; its log ends: {log.read_text(errors='replace')[-800:]}"
                )
            time.sleep(0.1)
        yield engine.pid
    finally:
        engine.stop()


def _serves(port: int) -> bool:
    """Whether a completion comes through."""
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
    ).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    connection = HTTPConnection("127.0.0.1", port, timeout=5)  # whatever proxy the environment names
    try:
        connection.request("POST", "/v1/chat/completions", body, headers)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
