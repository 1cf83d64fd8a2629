"""Two gateways before one engine with a real store between them: together they let in no more than one alone, and what one leaves the other gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.client import ask, request, until
from gateway.engine import Call, Engine
from gateway.services import Says, service_of
from gateway.shared.valkey_server import ValkeyServer, needs_valkey, valkey_server
from vramledger.gateway.service import GatewayService
from vramledger.telemetry.exposition import parse_exposition

pytestmark = needs_valkey
AT_ONCE = 4
"""Requests of 150 tokens that a pool of 640 holds."""


async def script(call: Call) -> None:
    if "completions" not in call.path:
        await call.whole(b"not here", b"404 Not Found")
        return
    await call.left()


def text(port: int) -> str:
    return f"""
listen = "127.0.0.1:0"
admin = {{listen = ""}}
[[upstream]]
url = "http://127.0.0.1:{port}"
engine = "vllm"
pool_tokens = 640
max_model_len = 400
max_running = 64
[policy]
goal = "no-failure"
[tokens]
ask = "never"
[shared]
url_env = "SHARED_STORE"
lease_ms = 4000
"""


@asynccontextmanager
async def asked(service: GatewayService, requests: int) -> AsyncIterator[list[asyncio.Task[object]]]:
    """So many requests whose answers do not come, until it is left."""
    message = request("/v1/completions", prompt=[*range(20)], max_tokens=130)
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(ask(service.gateway.port, message)) for _ in range(requests)
    ]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_two_gateways_and_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(server: ValkeyServer) -> None:
        async with Engine(script) as engine:
            says = Says(text(engine.port))
            async with service_of(says) as one:
                most = 0
                async with asked(one, 8):
                    await until(lambda: one.gateway.desk.admitted >= AT_ONCE)
                    alone = one.gateway.desk.admitted
                    async with service_of(says) as other, asked(other, 8):
                        for _ in range(40):
                            await asyncio.sleep(0.02)
                            most = max(most, one.gateway.desk.admitted + other.gateway.desk.admitted)
                        state = one.state()["policy"]["shared"]
                        assert state["answers"] > 0
                        [grant] = state["grants"].values()
                        assert grant["standing"] == "granted"
                        assert grant["blocks"] <= 640
                        told = {
                            line.name: line.value for line in parse_exposition(one.metrics("")[0]).readings
                        }
                        assert told["vramledger_store_answers_total"] >= state["answers"]
                        assert 0 < told["vramledger_granted_blocks"] <= 640
                        assert told["vramledger_is_granted"] == 1
                    assert most <= AT_ONCE
                assert alone == AT_ONCE
                await until(lambda: one.gateway.desk.admitted == 0)
                async with service_of(says) as other, asked(other, 8):
                    await until(lambda: other.gateway.desk.admitted >= AT_ONCE)  # what the first gave back

    with valkey_server() as server:
        monkeypatch.setenv("SHARED_STORE", f"unix://{server.socket}")
        asyncio.run(story(server))
