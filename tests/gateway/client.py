"""A client of the tests that writes bytes and reads answers, so that it can do what no proper one does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from gateway.engine import Engine
from vramledger.gateway.admitter import Admitter
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.record import Observer
from vramledger.gateway.settings import Limits, Timeouts, Upstream
from vramledger.gateway.stages import PromptCounter

CHAT = "/v1/chat/completions"
WAIT_S = 60


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    """Whether the body had its proper end."""

    @property
    def error(self) -> dict[str, object]:
        error = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return dict(error)


def request(
    path: str = CHAT, *, method: str = "POST", headers: str = "", version: str = "1.1", **asked: object
) -> bytes:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}], **asked}).encode()
    return (
        f"{method} {path} HTTP/{version}\r\nHost: gateway\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
        + body
    )


async def read_answer(reader: asyncio.StreamReader, *, has_body: bool = True) -> Answer:
    """An answer that does not come fails the test instead of holding it up for ever."""
    async with asyncio.timeout(WAIT_S):
        return await _read_answer(reader, has_body=has_body)


async def _read_answer(reader: asyncio.StreamReader, *, has_body: bool) -> Answer:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
    status = int(lines[0].split(" ")[1])
    body, complete = b"", True
    try:
        if not has_body:
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readuntil(b"\r\n")
        elif "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        complete = False
    return Answer(status, headers, body, complete)


async def ask(port: int, message: bytes, *, has_body: bool = True) -> Answer:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(message)
        return await read_answer(reader, has_body=has_body)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def gateway_to(
    engine: Engine,
    admitter: Admitter,
    *,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    observers: Sequence[Observer] = (),
    counter: PromptCounter | None = None,
) -> AsyncIterator[Gateway]:
    gateway = Gateway(
        Upstream(host="127.0.0.1", port=engine.port),
        admitter,
        limits=limits,
        timeouts=timeouts,
        observers=observers,
        counter=counter,
    )
    await gateway.start("127.0.0.1", 0)
    try:
        yield gateway
    finally:
        await gateway.close()
    assert not gateway.connections
    assert gateway.desk.admitted == gateway.desk.waiting == gateway.in_flight == 0
    assert gateway.pool.open_connections == gateway.pool.idle_connections == 0
    assert gateway.held.bytes == 0


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Waits for something that must come, and fails after a time that no slow machine needs."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what or "it never came"
        await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], bool], what: str = "") -> None:
    """The same for a test without an event loop."""
    asyncio.run(until(condition, what))
