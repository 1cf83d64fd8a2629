"""Clients that keep a number of requests under way, and note how long each takes. Closed loop: it is a proxy that is measured, not an engine."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import cast

import httptools

PROMPT = "hello " * 80
STAMP = re.compile(rb"@(\d+)@")
PATIENCE_S = 20.0


class Client(asyncio.Protocol):
    """One connection with one request under way."""

    def __init__(self) -> None:
        self.stamps_ns: list[int] = []
        self.began: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for waited in (self.began, self._ended):
            if waited is not None and not waited.done():
                waited.set_exception(ConnectionResetError("the proxy closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        self.stamps_ns += [now_ns - int(stamp) for stamp in STAMP.findall(data)]
        if self.began is not None and not self.began.done():
            self.began.set_result(None)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._parser = httptools.HttpResponseParser(self)
        if self._ended is None or self._ended.done():
            return
        if status == 200:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(RuntimeError(f"the proxy answered {status}"))

    async def ask(self, message: bytes) -> int:
        """Nanoseconds until the whole answer was there."""
        self._ended = asyncio.get_running_loop().create_future()
        began_ns = time.perf_counter_ns()
        self.transport.write(message)
        await self._ended
        return time.perf_counter_ns() - began_ns

    async def hold(self, message: bytes) -> None:
        """Until the answer's first piece is there; the stream stays open."""
        self.began = asyncio.get_running_loop().create_future()
        self.transport.write(message)
        async with asyncio.timeout(PATIENCE_S):
            await self.began


def message(port: int, **asked: object) -> bytes:
    """A request as OpenAI's client library writes it."""
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 64, **asked}
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Authorization: Bearer sk-1234\r\nUser-Agent: OpenAI/Python 2.1\r\nAccept: application/json\r\n"
        f"X-Stainless-Lang: python\r\nX-Stainless-OS: Linux\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _connected(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


async def timed(
    port: int, *, concurrency: int, seconds: float, **asked: object
) -> tuple[list[int], list[int], float]:
    """(nanoseconds of each request, nanoseconds that each stamped event was on its way, seconds in all), after as many unnoted ones as clients."""
    sent, end = message(port, **asked), 0.0
    took_ns: list[int] = []
    clients = await asyncio.gather(*(_connected(port) for _ in range(concurrency)))
    await asyncio.gather(*(client.ask(sent) for client in clients))

    async def work(client: Client) -> None:
        client.stamps_ns.clear()
        while time.perf_counter() < end:
            took_ns.append(await client.ask(sent))

    began = time.perf_counter()
    end = began + seconds
    await asyncio.gather(*map(work, clients))
    lasted_s = time.perf_counter() - began
    for client in clients:
        client.transport.abort()
    return took_ns, [stamp for client in clients for stamp in client.stamps_ns], lasted_s


async def held(port: int, streams: int) -> list[Client]:
    """So many open streams. The caller closes them."""
    sent = message(port, stream=True, user="hold")
    clients: list[Client] = []
    while len(clients) < streams:
        some = await asyncio.gather(*(_connected(port) for _ in range(min(100, streams - len(clients)))))
        await asyncio.gather(*(client.hold(sent) for client in some))
        clients += some
    return clients
