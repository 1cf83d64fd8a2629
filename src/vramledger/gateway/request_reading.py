"""Requests out of a connection's bytes: whole, in order, and bounded in everything that a sender may make long.

The parser is llhttp in its strict mode: two Content-Lengths, Content-Length beside Transfer-Encoding, folded headers, bare line
feeds, control characters and bytes after `Connection: close` end in an error. What it lets through and this gateway does not is
in `messages.fault_of`. No clock and no socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

import httptools

from vramledger.gateway.messages import RequestHead, fault_of
from vramledger.gateway.replies import Headers, Reply, error_reply
from vramledger.gateway.settings import Limits

CHUNK_LINE_BYTES = 32
COUNTED_CHUNKS = 65_536
SHORT_BYTES = 16_384
"""Of a body: so much is read of anybody."""


class IncomingRequest:
    """A request as it arrived, whole."""

    __slots__ = ("body", "head", "status")

    def __init__(self, head: RequestHead) -> None:
        self.head = head
        self.body = b""
        self.status = 0
        """Of its answer, once that began."""


class HeldBodies:
    """How many bytes of bodies all connections hold."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0


class Part(Enum):
    """What of a request has begun to arrive."""

    NOTHING = "nothing"
    HEAD = "head"
    BODY = "body"


class RequestReader:
    """`ready` are whole requests; `refusal` answers the one after them, which cannot be served. After a refusal, and after `is_last`,
    nothing more is read."""

    def __init__(
        self,
        limits: Limits,
        held: HeldBodies,
        expected: Callable[[], None],
        refuses: Callable[[RequestHead], Reply | None] = lambda _: None,
    ) -> None:
        """`expected` is called when a client waits to be told that its body is wanted, and `refuses` before a long body is held."""
        self._limits = limits
        self._held = held
        self._expected = expected
        self._refuses = refuses
        self._parser = httptools.HttpRequestParser(self)
        self._incoming: IncomingRequest | None = None
        self._in_head = False
        self._target = b""
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._body_bytes = self._held_bytes = 0
        self._head_bytes = self._overhead_bytes = self._chunks = 0
        self.ready: deque[IncomingRequest] = deque()
        self.refusal: Reply | None = None
        self.refused = BROKEN
        """The head of what is refused, as far as it was understood."""
        self.is_last = False
        self.begun = 0
        """Requests that have begun to arrive."""

    @property
    def part(self) -> Part:
        if self._in_head:
            return Part.HEAD
        return Part.NOTHING if self._incoming is None else Part.BODY

    def feed(self, data: bytes) -> None:
        before = self._body_bytes
        chunks = self._chunks
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_last = True  # the request is served as a plain one; what follows it is another protocol
        except httptools.HttpParserError:
            if self.ready and self.refusal is None:
                self.is_last = True
            else:
                self._refuse(400, "bad-request", "the request is not valid HTTP/1.1")
        if self.part is not Part.NOTHING:
            framing = CHUNK_LINE_BYTES * min(self._chunks - chunks, COUNTED_CHUNKS)
            self._overhead_bytes += max(0, len(data) - (self._body_bytes - before) - framing)
            if self._overhead_bytes > self._limits.head_bytes:
                self._refuse(*HEAD_TOO_LARGE)
        if self.refusal is not None or self.is_last:
            self._stop()

    def give_up(self, status: int, code: str, message: str) -> None:
        """Refuses the request that is arriving."""
        self._refuse(status, code, message)
        self._stop()

    def _stop(self) -> None:
        self.refused = self._incoming.head if self._incoming is not None else BROKEN
        self.drop()

    def drop(self) -> None:
        """Forgets the request that is arriving."""
        self._held.bytes -= self._held_bytes
        self._held_bytes = 0
        self._parts = []
        self._incoming = None
        self._in_head = False

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.refusal = self.refusal or error_reply(status, code, message)

    # callbacks of the parser

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = []
        self._parts = []
        self._body_bytes = self._head_bytes = self._overhead_bytes = self._chunks = 0
        self._incoming = None
        self._in_head = True
        self.begun += 1
        if len(self.ready) >= self._limits.pipelined:
            raise ValueError("too many requests ahead of their answers")

    def on_url(self, target: bytes) -> None:
        self._target += target
        self._count_head(len(target))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # later ones are trailers, which go no further
            self._headers.append((name.lower(), value))
            self._count_head(len(name) + len(value))
            if len(self._headers) > self._limits.headers:
                self._give_up(431, "too-many-headers", "the request has too many headers")

    def on_headers_complete(self) -> None:
        self._in_head = False
        version = self._parser.get_http_version()
        head = RequestHead(
            method=self._parser.get_method(),
            target=self._target,
            headers=self._headers,
            http_11=version == "1.1",
        )
        self._incoming = IncomingRequest(head)
        fault = (
            fault_of(head)
            if version in ("1.0", "1.1")
            else (400, "http-version", "only HTTP/1.0 and 1.1 are spoken")
        )
        length = next((int(value) for name, value in self._headers if name == b"content-length"), 0)
        if fault is None and length > self._limits.body_bytes:
            fault = 413, "body-too-large", f"the body may have {self._limits.body_bytes:,} bytes"
        if fault is not None:
            self._give_up(*fault)
        expects = any(name == b"expect" and value.lower() == b"100-continue" for name, value in self._headers)
        if expects and not self.ready and head.http_11:
            self._expected()

    def on_body(self, data: bytes) -> None:
        is_long = self._body_bytes <= SHORT_BYTES < self._body_bytes + len(data)
        self._body_bytes += len(data)
        if (
            is_long
            and self._incoming is not None
            and (refused := self._refuses(self._incoming.head)) is not None
        ):
            self.refusal = self.refusal or refused
            raise ValueError("refused before its body")
        if self._body_bytes > self._limits.body_bytes:
            self._give_up(413, "body-too-large", f"the body may have {self._limits.body_bytes:,} bytes")
        held = self._held
        if held.bytes + len(data) > held.most:
            self._give_up(503, "bodies-held", "the gateway holds as many bytes of requests as it may")
        held.bytes += len(data)
        self._held_bytes += len(data)
        self._parts.append(data)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes:
            self._give_up(*HEAD_TOO_LARGE)

    def on_chunk_header(self) -> None:
        self._chunks += 1

    def on_message_complete(self) -> None:
        request, self._incoming = self._incoming, None
        if request is None:
            return
        request.head.keep_alive = self._parser.should_keep_alive()
        request.body = b"".join(self._parts)
        self._parts = []
        self._held_bytes = 0
        self.ready.append(request)

    def _give_up(self, status: int, code: str, message: str) -> None:
        """Ends the parsing of this request, and of the connection."""
        self._refuse(status, code, message)
        raise ValueError(code)


HEAD_TOO_LARGE = (431, "head-too-large", "the request's head is too large")
BROKEN = RequestHead(method=b"GET", target=b"/", headers=[], http_11=True, keep_alive=False)
