"""What the tests behind Envoy ask, and an engine that does what a request's `user` says."""

from __future__ import annotations

import asyncio
import json

import pytest
from tools.envoy.proxy import as_it_is, duplex

from gateway.client import request, until
from gateway.engine import DONE, EVENT_STREAM, USAGE, WORD, Call, event

MODES = pytest.mark.parametrize("edit", [as_it_is, duplex])
OUT_OF_CONTEXT = event(
    {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}
)

DIES_NOW: list[Call] = []


async def opened(
    port: int, user: str = "", *, stream: bool = False
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(user=user, stream=stream))
    return reader, writer


def asked_for(call: Call) -> str:
    return str(json.loads(call.body or b"{}").get("user", ""))


async def by_user(call: Call) -> None:
    """What the engine does is what a request's `user` says."""
    match asked_for(call):
        case "hold":
            await call.left()
        case "hold in stream":
            await call.write(EVENT_STREAM)
            await call.chunk(WORD)
            await call.left()
        case "die":
            call.writer.transport.abort()
        case "die in stream":
            await call.write(EVENT_STREAM)
            await call.chunk(WORD)
            await until(lambda: call in DIES_NOW)
            call.writer.transport.abort()
        case "error in stream":
            await call.stream(WORD, OUT_OF_CONTEXT, DONE)
        case "fail":
            await call.whole(
                b'{"error": {"message": "x", "type": "y", "code": 500}}', b"500 Internal Server Error"
            )
        case "stream":
            await call.stream(WORD, WORD, event({"choices": [], "usage": USAGE}), DONE)
        case _:
            await call.whole()
