"""An upstream that does nothing, as fast as Python can: what a proxy adds shows beside it.

    python -m tools.gateway_overhead.upstream PORT

POST answers a chat completion, or where the body holds `"stream": true` a stream: of `TICKS` events every `TICK_S`, each with the
instant it was sent (CLOCK_MONOTONIC, nanoseconds), or with `"user": "hold"` of one event and then nothing until the client leaves. GET answers what
routers ask of an engine before they trust it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import httptools

TICKS = 20
TICK_S = 0.01
MODEL = "m"
WHOLE = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "word " * 40},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 80, "completion_tokens": 40, "total_tokens": 120},
    }
).encode()
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
TOLD = {
    "/health": b"",
    "/v1/models": json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 8192}]}).encode(),
    "/get_model_info": json.dumps({"model_path": MODEL, "tokenizer_path": "", "is_generation": True}).encode(),
    "/model_info": json.dumps({"model_path": MODEL, "tokenizer_path": "", "is_generation": True}).encode(),
    "/get_server_info": json.dumps({"model_path": MODEL, "served_model_name": MODEL, "tp_size": 1, "dp_size": 1}).encode(),
    "/server_info": json.dumps({"model_path": MODEL, "served_model_name": MODEL, "tp_size": 1, "dp_size": 1}).encode(),
}  # fmt: skip


class Serving(asyncio.Protocol):
    """One connection; requests are answered in order."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._body: list[bytes] = []
        self._ticking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticking is not None:
            self._ticking.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._target = url

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        if self._parser.get_method() != b"POST":
            told = TOLD.get(self._target.decode("latin-1").partition("?")[0])
            status = b"404 Not Found" if told is None else b"200 OK"
            self._answer(told or b"", status)
        elif b'"stream":true' not in body.replace(b" ", b""):
            self._answer(WHOLE)
        else:
            self._transport.write(STREAM_HEAD + _event("first"))
            if b'"hold"' not in body:
                self._tick(TICKS)

    def _answer(self, body: bytes, status: bytes = b"200 OK") -> None:
        self._transport.write(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (status, len(body), body)
        )

    def _tick(self, left: int) -> None:
        if not left:
            self._transport.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            return
        self._transport.write(_event(f"@{time.monotonic_ns()}@"))
        self._ticking = asyncio.get_running_loop().call_later(TICK_S, self._tick, left - 1)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(text: str) -> bytes:
    piece = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    event = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [piece],
    }
    return _chunk(b"data: " + json.dumps(event).encode() + b"\n\n")


async def main(port: int) -> None:
    """Serves until it is ended."""
    server = await asyncio.get_running_loop().create_server(Serving, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
