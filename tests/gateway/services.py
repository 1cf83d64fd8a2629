"""A whole gateway of the tests: with a policy before one engine and a tenant, and a configuration that a test changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway.client import request
from gateway.engine import Call
from vramledger.gateway.assembly import assembled
from vramledger.gateway.config import GatewayConfig, read_config
from vramledger.gateway.service import GatewayService
from vramledger.gateway.tenants.keys import new_key

(KEY_A, HASH_A), (KEY_B, HASH_B) = new_key(), new_key()


class Says:
    """The configuration's file: whatever it holds now."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    def read(self) -> GatewayConfig:
        return read_config(self.text.encode(), "g.toml")

    def say(self, event: str, sentence: str, facts: dict[str, Any]) -> None:
        self.told.append((event, sentence, facts))


def text(port: int, policy: str = "", more: str = "") -> str:
    return f"""
listen = "127.0.0.1:0"
[[upstream]]
url = "http://127.0.0.1:{port}"
name = "one"
engine = "vllm"
pool_tokens = 640
max_model_len = 400
max_running = 4
[admin]
listen = ""
[policy]
goal = "no-failure"
{policy}
[tokens]
ask = "never"
[tenants.a]
keys = ["{HASH_A.line}"]
{more}
"""


@asynccontextmanager
async def service_of(says: Says) -> AsyncIterator[GatewayService]:
    service = await assembled(says.read(), reread=says.read, told=says.say)
    await service.start()
    try:
        yield service
    finally:
        await service.close()
    assert service.gateway.desk.admitted == service.gateway.desk.waiting == 0


async def slow(call: Call) -> None:
    """An engine that tells nothing of itself, and answers a chat when it is let."""
    if "chat" not in call.path:
        await call.whole(b"not here", b"404 Not Found")
        return
    await call.left()


def chat(key: str, **asked: Any) -> bytes:
    return request(headers=f"x-api-key: {key}\r\n", **asked)
