"""An engine's HTTP server of the tests, on a real socket: it answers by path, well or badly, and notes what it got."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable

USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 7}}
ANSWER = json.dumps({"choices": [{"message": {"content": "a b c"}}], "usage": USAGE}).encode()
EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

Script = Callable[["Call"], Awaitable[None]]


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


WORD = event({"choices": [{"index": 0, "delta": {"content": "word "}}]})
DONE = event(b"[DONE]")


class Call:
    """One request as the engine got it, and the means to answer."""

    def __init__(
        self, head: bytes, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.head = head
        self.body = body
        self.reader = reader
        self.writer = writer

    @property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def whole(self, body: bytes = ANSWER, status: bytes = b"200 OK", more: bytes = b"") -> None:
        await self.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
            % (status, more, len(body), body)
        )

    async def stream(self, *events: bytes) -> None:
        await self.write(EVENT_STREAM)
        for one in events:
            await self.chunk(one)
        await self.write(b"0\r\n\r\n")

    async def left(self) -> None:
        """Waits until the other side closes."""
        while await self.reader.read(4096):
            pass


class Engine:
    """`script` answers every request; `connections` and `calls` are what came."""

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None, listen: int = 0) -> None:
        self.script = script
        self._listen = listen
        self._tls = tls
        self.calls: list[Call] = []
        self.connections = 0
        self.working = 0
        self.writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Engine:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self._listen, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_connections()
        await asyncio.sleep(0)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def stop_listening(self) -> None:
        assert self._server is not None
        self._server.close()

    def drop_connections(self) -> None:
        for writer in list(self.writers):
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length, chunked = 0, False
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                    chunked = chunked or line.startswith(b"transfer-encoding: chunked")
                body = await _chunks(reader) if chunked else await reader.readexactly(length)
                call = Call(head, body, reader, writer)
                self.calls.append(call)
                self.working += 1
                try:
                    await self.script(call)
                finally:
                    self.working -= 1
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass
    return body
