"""A server that answers at instants it chose itself, and notes when it did: what a load generator tells is held against that.

    python -m tools.load_generators.server PORT

POST streams words (of a chat, or of a completion, with token ids where they are asked for): the first `first_ms` after the request was read, each next `gap_ms` after the one before by the schedule (a late one delays
no other), and what it cost. `POST /script` with JSON sets how (see `Script`) and forgets what was noted; `GET /notes` gives what was noted as
JSON, in the order of arrival. Instants are CLOCK_MONOTONIC in nanoseconds, the same for every process of a machine.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import cast

import httptools
import msgspec

MODEL = "m"
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
EVENT = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]%b}\n\n'
TOKEN = re.compile(rb"[A-Za-z0-9_]+")
MARK = re.compile(rb"\bmark(\d+)x|\b(10\d{5})\b")
"""An answer's first word, or its token id, says which request it answered."""
MARK_ID = 1_000_000


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """How requests are answered. Every `refuse_every`th is told to come again after `retry_after_s` (0: none is)."""

    first_ms: float = 200.0
    gap_ms: float = 100.0
    events: int = 40
    refuse_every: int = 0
    retry_after_s: int = 1


class Note(msgspec.Struct, kw_only=True):
    """One request. `marks` are the numbers of earlier answers that its prompt carries."""

    number: int
    read_ns: int
    first_ns: int = -1
    last_ns: int = -1
    sent_events: int = 0
    asked_events: int = 0
    status: int = 200
    left_ns: int = -1
    marks: tuple[int, ...] = ()


class Books:
    """What all connections share."""

    def __init__(self) -> None:
        self.script = Script()
        self.notes: list[Note] = []


class Serving(asyncio.Protocol):
    """One connection; a request is answered before the next is read, as clients without pipelining expect."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._body: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._note: Note | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._note is not None:
            self._note.left_ns = time.monotonic_ns()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._target = url

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        read_ns = time.monotonic_ns()
        body = b"".join(self._body)
        self._body.clear()
        if self._parser.get_method() == b"GET":
            self._told()
        elif self._target == b"/script":
            self._books.script = msgspec.json.decode(body, type=Script)
            self._books.notes = []
            self._answer(b"{}")
        else:
            self._asked(body, read_ns)

    def _told(self) -> None:
        if self._target == b"/notes":
            self._answer(msgspec.json.encode(self._books.notes))
        elif self._target == b"/count":
            self._answer(b"%d" % len(self._books.notes))
        elif self._target == b"/v1/models":
            self._answer(
                b'{"object":"list","data":[{"id":"m","object":"model","max_model_len":32768,"owned_by":"m"}]}'
            )
        else:
            self._answer(b"{}")

    def _answer(self, body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> None:
        self._transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
            % (status, more, len(body), body)
        )

    def _asked(self, body: bytes, read_ns: int) -> None:
        script = self._books.script
        try:
            text = _text(body)
        except msgspec.MsgspecError:
            self._answer(b'{"error":{"message":"no JSON"}}', b"400 Bad Request")
            return
        words = len(TOKEN.findall(text))
        note = Note(
            number=len(self._books.notes),
            read_ns=read_ns,
            asked_events=script.events,
            marks=tuple(int(word or b"%d" % (int(one) - MARK_ID)) for word, one in MARK.findall(text)),
        )
        self._books.notes.append(note)
        if script.refuse_every and note.number % script.refuse_every == script.refuse_every - 1:
            note.status = 429
            self._answer(
                b'{"error":{"message":"later","type":"rate_limit_error","code":"later"}}',
                b"429 Too Many Requests",
                b"retry-after: %d\r\n" % script.retry_after_s,
            )
            return
        self._note = note
        self._is_chat = self._target.startswith(b"/v1/chat")
        self._tells_ids = b'"return_token_ids":true' in body
        self._began = self._loop.time() - (time.monotonic_ns() - read_ns) / 1e9 + script.first_ms / 1000
        self._usage = b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (
            words,
            script.events,
            words + script.events,
        )
        self._transport.write(HEAD)
        self._timer = self._loop.call_at(self._began, self._tick)

    def _tick(self) -> None:
        note, script = self._note, self._books.script
        assert note is not None
        now_ns = time.monotonic_ns()
        is_first = note.sent_events == 0
        word = b"mark%dx " % note.number if is_first else b"word "
        last = note.sent_events + 1 >= note.asked_events
        finish = b'"length"' if last else b"null"
        if self._is_chat:
            choice = b'"delta":{"role":"assistant","content":"%b"},"finish_reason":%b' % (word, finish)
        elif self._tells_ids:
            token = MARK_ID + note.number if is_first else MARK_ID // 2
            choice = b'"text":"%b","token_ids":[%d],"finish_reason":%b' % (word, token, finish)
        else:
            choice = b'"text":"%b","finish_reason":%b' % (word, finish)
        self._transport.write(_chunk(EVENT % (b'{"index":0,%b}' % choice, b"")))
        if note.first_ns < 0:
            note.first_ns = now_ns
        note.last_ns = now_ns
        note.sent_events += 1
        if last:
            self._note = None
            usage = EVENT % (b"", b',"usage":%b' % self._usage)
            self._transport.write(_chunk(usage) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            return
        self._timer = self._loop.call_at(self._began + note.sent_events * script.gap_ms / 1000, self._tick)


class _Asked(msgspec.Struct):
    messages: tuple[msgspec.Raw, ...] = ()
    prompt: msgspec.Raw = msgspec.Raw(b"")


def _text(body: bytes) -> bytes:
    asked = msgspec.json.decode(body, type=_Asked)
    return b" ".join(map(bytes, asked.messages)) + bytes(asked.prompt)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def main(port: int) -> None:
    """Serves until it is ended."""
    books = Books()
    server = await asyncio.get_running_loop().create_server(
        lambda: Serving(books), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
