"""Real engines with a small pool, each in a process of its own, and the gateway's command before them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.real_engines.cases import config_of, small_model
from tools.real_engines.models import make_model
from tools.real_engines.running import environment

from vramledger.errors import SourceError
from vramledger.telemetry.engine_process import EngineProcess, free_port
from vramledger.telemetry.exposition import parse_exposition
from vramledger.telemetry.web import fetch

READY_S = 600.0
CELLS = 2048


def engine_command(
    engine: str, port: int, folder: Path, venv: Path | None, *, cells: int = CELLS
) -> list[str]:
    """llama.cpp's server with slots that share `cells` cells, or vLLM with 64 blocks of 128."""
    if engine == "llamacpp":
        return [
            sys.executable, "-m", "vramledger.release.xllamacpp_server", "-m", str(small_model()), "--port", str(port),
            "-c", str(cells), "-np", "8", "--kv-unified", "-t", "1", "--cache-ram", "0", "--metrics", "--slots", "--props",
        ]  # fmt: skip
    make_model(folder / "model", config_of("llama-gqa"))
    program = "vllm" if venv is None else str(venv / "bin" / "vllm")
    return [
        program, "serve", str(folder / "model"), "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", "2048", "--enforce-eager", "--kv-cache-memory-bytes", "8M", "--disable-uvicorn-access-log",
    ]  # fmt: skip


@contextmanager
def engine(
    name: str, folder: Path, venv: Path | None, *, port: int = 0, cells: int = CELLS
) -> Iterator[tuple[int, EngineProcess]]:
    """A running engine and its port."""
    port = port or free_port()
    command = engine_command(name, port, folder, venv, cells=cells)
    process = EngineProcess(
        command,
        url=f"http://127.0.0.1:{port}",
        log=folder / f"{name}-{port}.log",
        environment=environment(venv, folder),
    )
    with process:
        process.wait_ready(READY_S)
        yield port, process


class Gateway:
    """The command before one engine: its ports, and what it says of itself."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, admin_port: int) -> None:
        self.process = process
        self.port = port
        self.admin_port = admin_port

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(fetch(f"http://127.0.0.1:{self.admin_port}/state").body)
        return found

    def books(self) -> dict[str, int]:
        """What is held or waits."""
        gateway = self.state()["gateway"]
        instances = gateway["instances"]
        return {
            "admitted": gateway["admitted"],
            "waiting": gateway["queue"]["requests"],
            "in flight": gateway["in_flight"],
            "held body bytes": gateway["held_body_bytes"],
            "reserved blocks": sum(one["reserved_blocks"] or 0 for one in instances),
            "engine's used blocks": sum(one["used_blocks"] or 0 for one in instances),
            "engine's running": sum(one["running_requests"] or 0 for one in instances),
        }

    def empty_after_s(self, within_s: float = 120.0) -> float | None:
        """Seconds until nothing is held any more, on either side; None where something stays."""
        began = time.monotonic()
        while time.monotonic() - began < within_s:
            if not any(self.books().values()):
                return time.monotonic() - began
            time.sleep(0.1)
        return None


@contextmanager
def gateway(
    engine_name: str, engine_port: int, folder: Path, *, settings: str = "", environ: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[Gateway]:  # fmt: skip
    """The command in a process of its own. `settings` is TOML beside what is needed."""
    port, admin_port = port or free_port(), free_port()
    config = folder / f"gateway-{admin_port}.toml"
    config.write_text(
        f"{settings}\n[[upstream]]\nurl = 'http://127.0.0.1:{engine_port}'\nengine = '{engine_name}'\n"
        f"[admin]\nlisten = '127.0.0.1:{admin_port}'\n",
        encoding="utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "vramledger",
        "gateway",
        "--json",
        "--config",
        str(config),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    with (folder / f"gateway-{admin_port}.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**environment(None, folder), **(environ or {})}
        )  # fmt: skip
    found = Gateway(process, port, admin_port)
    try:
        _wait_up(found)
        yield found
    finally:
        process.kill()
        process.wait(30)


def _wait_up(found: Gateway) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        if found.process.poll() is not None:
            raise SystemExit(f"the gateway ended with {found.process.returncode}")
        try:
            if all(one["is_up"] for one in found.state()["gateway"]["instances"]):
                return
        except SourceError:
            pass
        time.sleep(0.1)
    raise SystemExit("the gateway did not find its engine")


def preemptions(engine_port: int) -> int | None:
    """How often the engine has preempted, where it says."""
    body = fetch(f"http://127.0.0.1:{engine_port}/metrics").body
    counts = [
        one.value for one in parse_exposition(body).readings if one.name == "vllm:num_preemptions_total"
    ]
    return int(sum(counts)) if counts else None
