"""The real command under hostile requests for a while: `python -m tools.gateway_fuzz --seconds 60 --seed 1`. Ends with 1 where something is wrong."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.gateway_fuzz.answers import engine_problems, guarded_word
from tools.gateway_fuzz.attack import Attack
from tools.gateway_fuzz.bodies import CANARY
from tools.gateway_fuzz.engines import ENGINES, RecordingEngine

from vramledger.gateway.tenants.keys import new_key
from vramledger.telemetry.web import fetch_body

CONFIG = """
listen = "127.0.0.1:0"
[[upstream]]
url = "http://127.0.0.1:{port}"
engine = "{engine}"
pool_tokens = 65536
max_model_len = 4096
max_running = 64
[admin]
listen = "127.0.0.1:0"
[limits]
head_bytes = 16384
body_bytes = 1000000
held_body_bytes = 20000000
[timeouts]
head_ms = 500
body_ms = 500
idle_ms = 500
[telemetry]
request_log = "{log}"
{tenants}
"""
MOST_MIB = 600


async def run(seconds: float, seed: int, parser: str, reader: str, clients: int) -> list[str]:
    """What was wrong, in sentences."""
    with ENGINES[parser]() as engine, tempfile.TemporaryDirectory() as folder:
        keys = [new_key() for _ in range(2)]
        tenants = "\n".join(
            f'[tenants.{name}]\nkeys = ["{known.line}"]' for name, (_, known) in zip("ab", keys, strict=True)
        )
        log, config = Path(folder, "requests.log"), Path(folder, "gateway.toml")
        config.write_text(CONFIG.format(port=engine.port, engine=reader, log=log, tenants=tenants))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "vramledger", "gateway", "--json", "--config", str(config),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=os.environ,
        )  # fmt: skip
        try:
            return await _attacked(process, engine, seconds, seed, clients, [key for key, _ in keys], log)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _attacked(
    process: asyncio.subprocess.Process,
    engine: RecordingEngine,
    seconds: float,
    seed: int,
    clients: int,
    keys: list[str],
    log: Path,
) -> list[str]:
    assert process.stdout is not None
    lines: list[bytes] = []
    ports: dict[str, int] = {}
    while not {"started", "admin", "engine-up"} <= ports.keys():
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        if not line:
            return [f"the gateway did not start: {b''.join(lines).decode()}"]
        lines.append(line)
        event = json.loads(line)
        ports[event["event"]] = event.get("port", 0)
    listening = asyncio.create_task(_lines(process.stdout, lines))
    attack = Attack(ports["started"], engine.seen, seed=seed, keys=[*keys, "vl_" + "0" * 12 + "_" + "a" * 43])
    until = time.monotonic() + seconds
    await attack.run(clients=clients, go_on=lambda _: time.monotonic() < until)
    await asyncio.sleep(1)
    if process.returncode is not None:
        return [f"the gateway ended with {process.returncode}: {b''.join(lines[-20:]).decode()}"]
    state, metrics = await asyncio.to_thread(_administered, ports["admin"])
    most_mib = _most_mib(process.pid)
    process.terminate()
    await listening
    await process.wait()
    told = b"".join(lines).decode()
    found = [f"case {one.case}: {one.what}\n    {one.written[:600]!r}" for one in attack.problems]
    found += [f"the engine saw {what}" for what in engine_problems(engine.seen, f"127.0.0.1:{engine.port}")]
    found += [f"the engine's parser: {what}" for what in engine.problems]
    found += [f"answer {serial} came {many} times" for serial, many in attack.delivered.items() if many > 1]
    lost = [one for serial, one in enumerate(engine.seen) if serial not in attack.delivered]
    asked = [one for one in lost if _is_own(one.method, one.target)]
    for_nobody = [one for one in lost if one not in asked]
    if len(for_nobody) > attack.resets:  # a client that was cut off may have lost its last answers
        found += [f"the engine saw {one.method} {one.target!r} for nobody" for one in for_nobody]
    found += _left_over(state)
    for where, text in (
        ("the log", told),
        ("the request log", log.read_text()),
        ("/metrics", metrics),
        ("/state", json.dumps(state)),
    ):
        found += [f"{where} holds {what}" for what in (CANARY, *keys) if what in text]
    warned = [line for line in told.splitlines() if json.loads(line)["level"] != "info"]
    found += [f"the gateway says {line[:600]}" for line in warned]
    if most_mib > MOST_MIB:
        found.append(f"the gateway held {most_mib} MiB")
    print(
        f"{attack.conversations:,} conversations, {attack.bytes_written:,} bytes, {attack.resets} resets; answers "
        f"{dict(sorted(attack.told.items()))}; the engine saw {len(engine.seen):,} requests, {len(asked):,} of them the gateway's own; "
        f"{most_mib} MiB at the most; seed {seed}"
    )
    return found


async def _lines(stream: asyncio.StreamReader, lines: list[bytes]) -> None:
    while line := await stream.readline():
        lines.append(line)


def _administered(port: int) -> tuple[dict[str, Any], str]:
    state, metrics = (fetch_body(f"http://127.0.0.1:{port}/{name}") for name in ("state", "metrics"))
    return json.loads(state), metrics.decode()


def _left_over(state: dict[str, Any]) -> list[str]:
    """What a gateway that serves nobody still holds, and what failed in it."""
    gateway, counters = state["gateway"], state["counters"]
    held = {
        name: gateway[name]
        for name in gateway
        if name in ("waiting_requests", "admitted_requests", "in_flight", "held_body_bytes", "open_requests")
        and gateway[name]
    }
    for instance in gateway["instances"]:
        for name in ("admitted_requests", "queued_requests", "booked_blocks", "reserved_blocks"):
            if instance[name]:
                held[name] = instance[name]
    held |= {
        f"{one['name']}.{name}": one[name]
        for one in state["tenants"]
        for name in ("open", "queued")
        if one[name]
    }
    failed = {name: counters[name] for name in ("policy_failures", "upstream_failures") if counters.get(name)}
    return [f"afterwards {name} is {many}" for name, many in (held | failed).items()]


def _is_own(method: str, target: str) -> bool:
    """Whether the gateway itself asks so."""
    return (method == "GET" and (guarded_word(target) is not None or target in OWN)) or (
        method == "POST" and target in COUNTING
    )


OWN = frozenset(
    ("/prometheus/metrics", "/v1/models", "/version", "/load", "/loads", "/get_load", "/health", "/get_model_info", "/model_info")
)  # fmt: skip
COUNTING = frozenset(
    ("/tokenize", "/apply-template", "/_internal/tokenize", "/v1/messages/count_tokens", "/v1/responses/render", "/v1/responses/input_tokens")
)  # fmt: skip


def _most_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))) // 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gateway_fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None, help="a case is made anew by its seed and number")
    parser.add_argument("--parser", choices=sorted(ENGINES), default="h11", help="the engine's HTTP parser")
    parser.add_argument("--engine", choices=("vllm", "sglang", "llamacpp", "tensorrt-llm"), default="vllm")
    parser.add_argument("--clients", type=int, default=24)
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    found = asyncio.run(run(given.seconds, seed, given.parser, given.engine, given.clients))
    for sentence in found[:40]:
        print(sentence)
    print(f"{len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
