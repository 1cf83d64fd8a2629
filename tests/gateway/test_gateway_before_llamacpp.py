"""The command before llama.cpp's own server: it finds the engine, serves, and lets a stream end when it is told to stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.client import ask, request
from gateway.gateway_process import admin, gateway_process, write_config
from llamacpp_server import llamacpp_server, needs_llamacpp
from vramledger.gateway.tenants.keys import new_key

pytestmark = needs_llamacpp
KEY, HASH = new_key()
CELLS = 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("live")
    with llamacpp_server(
        folder, "-c", str(CELLS), "-np", "2", "--kv-unified", "--metrics", "--slots", "--props"
    ) as port:
        yield port


def test_a_stream_outlives_a_drain(server: int, tmp_path: Path) -> None:
    async def story() -> None:
        file = write_config(
            tmp_path,
            f'drain_s = 300\n[[upstream]]\nurl = "http://127.0.0.1:{server}"\n[tokens]\nask = "always"\nwithin_ms = 60000\n[tenants.alice]\nkeys = ["{HASH.line}"]\n',
        )
        key = f"Authorization: Bearer {KEY}\r\n"
        async with gateway_process("--config", file, environment=dict(os.environ)) as running:
            port = (await running.event("started"))["port"]
            admin_port = (await running.event("admin"))["port"]
            up = await running.event("engine-up")
            assert (up["engine"], up["total_blocks"]) == ("llamacpp", CELLS)
            assert f"{CELLS:,} KV tokens, 2 sequences at once" in str(up["message"])
            assert (up["reservation"], up["when_full"]) == ("no-evict", "fail")
            assert "2 slots" in str((await running.event("engine-note"))["message"])
            salts = await running.event("cache-salt")
            assert "no cache salt" in salts["message"]

            assert (await ask(port, request(max_tokens=4))).status == 401
            whole = await ask(port, request(headers=key, max_tokens=4, temperature=0))
            assert whole.status == 200
            usage = json.loads(whole.body)["usage"]
            assert usage["completion_tokens"] == 4
            never = await ask(
                port, request(headers=key, prompt="", messages=[{"role": "user", "content": "word " * 4000}])
            )
            assert (never.status, never.error["code"]) == (400, "never-fits")
            assert f"the model takes {CELLS:,}, of which the answer" in str(never.error["message"])

            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                request(headers=key + "Connection: close\r\n", stream=True, max_tokens=120, ignore_eos=True)
            )
            async with asyncio.timeout(120):
                head = await reader.readuntil(b"data: ")
            assert b"x-vramledger-rule: fits" in head
            state = json.loads((await admin(admin_port, "/state")).body)
            [instance] = state["gateway"]["instances"]
            assert instance["admitted_requests"] == 1
            assert 120 <= instance["reserved_blocks"] <= CELLS
            assert state["tenants"][0]["tokens_used"] == usage["prompt_tokens"] + 4
            metrics = (await admin(admin_port, "/metrics")).body
            assert b'tenant="alice"' in metrics
            assert KEY.encode() not in metrics
            running.signal(signal.SIGTERM)
            await running.event("draining")
            async with asyncio.timeout(120):
                rest = await reader.read()
            assert rest.count(b"data: ") > 20
            assert rest.rstrip().endswith(b"0") and b"[DONE]" in rest
            writer.close()
            code, errors = await running.ended()
            assert (code, errors) == (0, "")

    asyncio.run(story())
