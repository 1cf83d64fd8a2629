"""One client's connection: requests come in whole and in order, answers go out; all that it may cost is bounded.

The parser is llhttp in its strict mode: two Content-Lengths, Content-Length beside Transfer-Encoding, folded headers, bare line
feeds, control characters and bytes after `Connection: close` end in an error. What it lets through and this gateway does not is
in `messages.fault_of`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol, cast

import httptools

from vramledger.gateway.counters import Counters
from vramledger.gateway.messages import WITHOUT_BODY, RequestHead, fault_of, response_bytes
from vramledger.gateway.replies import Headers, Reply, error_reply, reason_of
from vramledger.gateway.settings import Limits, Timeouts

LINGER_S = 1.0
NEVER = float("inf")
CHUNK_LINE_BYTES = 32
COUNTED_CHUNKS = 65_536


class IncomingRequest:
    """A request as it arrived, whole."""

    __slots__ = ("body", "head", "refusal")

    def __init__(self, head: RequestHead) -> None:
        self.head = head
        self.body = b""
        self.refusal: Reply | None = None


class HeldBodies:
    """How many bytes of bodies all connections hold."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0


class House(Protocol):
    """What a connection needs of the gateway."""

    limits: Limits
    timeouts: Timeouts
    counters: Counters
    held: HeldBodies
    draining: bool
    connections: set[ClientConnection]

    def serve(
        self, connection: ClientConnection, request: IncomingRequest
    ) -> Coroutine[None, None, None]: ...


class ClientConnection(asyncio.Protocol):
    """Reads requests one after the other and has each served by a task, which is cancelled when the client goes."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[IncomingRequest] = deque()
        self._unparsed = bytearray()
        self._incoming: IncomingRequest | None = None
        self._target = b""
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._body_bytes = 0
        self._held_bytes = 0
        self._head_bytes = 0
        self._overhead_bytes = 0
        self._chunks = 0
        self._in_head = False
        self._refusal: Reply | None = None
        self._last = False
        self._lingering = False
        self._chunked = False
        self._bare = False
        self._close_after = False
        self.began_answer = False
        self.resumed: Callable[[], None] | None = None
        """Called when a client that lagged has read enough."""
        self.deadline = self._loop.time() + house.timeouts.head_ms / 1000
        self._stalled_at: float | None = None

    # What the task that serves a request uses

    @property
    def is_paused(self) -> bool:
        return self._stalled_at is not None

    def start_answer(
        self, request: IncomingRequest, status: int, reason: bytes, headers: Headers, length: int | None
    ) -> bytes:
        """The head of an answer, to be written with what follows it. `length` None: chunks, or until the connection closes."""
        self.began_answer = True
        head = request.head
        self._bare = head.method == b"HEAD" or status in WITHOUT_BODY
        self._chunked = length is None and head.http_11 and not self._bare
        self._close_after = (
            not head.keep_alive
            or self._house.draining
            or (length is None and not self._chunked and not self._bare)
            or (self._last and not self._waiting)
        )
        framing = b""
        if length is not None and status != 204:
            framing = b"content-length: %d\r\n" % length
        elif self._chunked:
            framing = b"transfer-encoding: chunked\r\n"
        return response_bytes(status, reason, headers, framing=framing, close=self._close_after)

    def framed(self, data: bytes) -> bytes:
        """A piece of the body of the answer that was started."""
        if self._bare:
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data

    def write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    def end_answer(self) -> None:
        """The answer is complete."""
        if self._chunked:
            self.write(b"0\r\n\r\n")
        if self._close_after:
            self.close()

    def reply(self, request: IncomingRequest, reply: Reply) -> None:
        """A whole answer of the gateway's own."""
        head = self.start_answer(
            request, reply.status, reason_of(reply.status), reply.headers, len(reply.body)
        )
        self.write(head + self.framed(reply.body))
        self.end_answer()

    def break_off(self) -> None:
        """An answer that began cannot be completed: the client must see that it is cut, so it gets no proper end."""
        self._last = self._close_after = True
        if self._transport is None:
            return
        if self._chunked:
            self.close()  # the last chunk is missing
        else:
            self._transport.abort()

    def release_body(self, request: IncomingRequest) -> None:
        """The request's body is not needed any more."""
        self._house.held.bytes -= len(request.body)
        request.body = b""

    def close(self) -> None:
        """Closes once what was written is read."""
        self._last = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self.deadline = self._loop.time() + self._house.timeouts.stalled_reader_ms / 1000

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the gateway uses

    @property
    def is_idle(self) -> bool:
        return self._task is None and not self._waiting and not self._incoming and not self._in_head

    def check(self, now: float) -> None:
        """Ends what takes too long."""
        stalled_s = self._house.timeouts.stalled_reader_ms / 1000
        if self._stalled_at is not None and now - self._stalled_at >= stalled_s:
            self._house.counters.stalled_readers += 1
            self.abort()
        elif now >= self.deadline:
            if self._lingering or self.is_idle or self._transport is None or self._transport.is_closing():
                self.abort()
            elif self._task is None:
                self._refuse(error_reply(408, "request-timeout", "the request did not arrive in time"))

    def cancel(self) -> asyncio.Task[None] | None:
        """Ends what is served, without an answer if it has not begun; returns its task."""
        if self._task is not None:
            self._task.cancel()
        self.abort()
        return self._task

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods, not by descent
        self._transport.set_write_buffer_limits(high=self._house.limits.write_buffer_bytes)
        house = self._house
        if len(house.connections) >= house.limits.connections or house.draining:
            house.counters.connections_refused += 1
            self._transport.abort()
            return
        house.connections.add(self)
        house.counters.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.connections.discard(self)
        self._stalled_at = None
        if self._task is not None:
            self._task.cancel()
        for request in self._waiting:
            self.release_body(request)
        self._waiting.clear()
        self._drop_parts()

    def eof_received(self) -> None:
        """A client that sends no more is taken to have gone, as other proxies take it: a live one keeps its side open."""

    def pause_writing(self) -> None:
        self._stalled_at = self._loop.time()

    def resume_writing(self) -> None:
        self._stalled_at = None
        if self.resumed is not None:
            self.resumed()

    def data_received(self, data: bytes) -> None:
        if self._lingering or self._last:
            return
        if self._task is not None:
            # Read on while a request is served: only so its client's leaving is noticed.
            self._unparsed += data
            if len(self._unparsed) > self._house.limits.head_bytes:
                self._last = True
                self._unparsed.clear()
            return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        before = self._body_bytes
        chunks = self._chunks
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last = True  # the request is served as a plain one; what follows it is another protocol
        except httptools.HttpParserError:
            if self._waiting and self._refusal is None:
                self._last = True
            else:
                self._refusal = self._refusal or error_reply(
                    400, "bad-request", "the request is not valid HTTP/1.1"
                )
        if self._incoming is not None or self._in_head:
            framing = CHUNK_LINE_BYTES * min(self._chunks - chunks, COUNTED_CHUNKS)
            self._overhead_bytes += max(0, len(data) - (self._body_bytes - before) - framing)
            if self._overhead_bytes > self._house.limits.head_bytes:
                self._refusal = self._refusal or error_reply(*HEAD_TOO_LARGE)
        if self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self._next()

    # callbacks of the parser

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = []
        self._parts = []
        self._body_bytes = self._head_bytes = self._overhead_bytes = self._chunks = 0
        self._incoming = None
        self._in_head = True
        self.deadline = self._loop.time() + self._house.timeouts.head_ms / 1000
        if len(self._waiting) >= self._house.limits.pipelined:
            raise ValueError("too many requests ahead of their answers")

    def on_url(self, target: bytes) -> None:
        self._target += target
        self._count_head(len(target))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # later ones are trailers, which go no further
            self._headers.append((name.lower(), value))
            self._count_head(len(name) + len(value))
            if len(self._headers) > self._house.limits.headers:
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
        self.deadline = self._loop.time() + self._house.timeouts.body_ms / 1000
        fault = (
            fault_of(head)
            if version in ("1.0", "1.1")
            else (400, "http-version", "only HTTP/1.0 and 1.1 are spoken")
        )
        length = next((int(value) for name, value in self._headers if name == b"content-length"), 0)
        if fault is None and length > self._house.limits.body_bytes:
            fault = 413, "body-too-large", f"the body may have {self._house.limits.body_bytes:,} bytes"
        if fault is not None:
            self._give_up(*fault)
        expects = any(name == b"expect" and value.lower() == b"100-continue" for name, value in self._headers)
        if expects and not self._waiting and head.http_11:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._house.limits.body_bytes:
            self._give_up(413, "body-too-large", f"the body may have {self._house.limits.body_bytes:,} bytes")
        held = self._house.held
        if held.bytes + len(data) > held.most:
            self._give_up(503, "bodies-held", "the gateway holds as many bytes of requests as it may")
        held.bytes += len(data)
        self._held_bytes += len(data)
        self._parts.append(data)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._house.limits.head_bytes:
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
        self._waiting.append(request)

    def _give_up(self, status: int, code: str, message: str) -> None:
        """Ends the parsing of this request, and of the connection."""
        self._refusal = error_reply(status, code, message)
        raise ValueError(code)

    def _drop_parts(self) -> None:
        self._house.held.bytes -= self._held_bytes
        self._held_bytes = 0
        self._parts = []

    def _refuse(self, reply: Reply) -> None:
        """Answers what cannot be served; requests before it on this connection go first."""
        self._refusal = None
        self._drop_parts()
        self._in_head = False
        head = self._incoming.head if self._incoming is not None else BROKEN
        self._incoming = None
        if self._waiting:
            last = IncomingRequest(head)
            last.refusal = reply
            self._waiting.append(last)
            self._last = True
            self._next()
            return
        self._answer_refusal(head, reply)

    def _answer_refusal(self, head: RequestHead, reply: Reply) -> None:
        if reply.status < 500:
            self._house.counters.bad_requests += 1
        head.keep_alive = False
        self._last = True
        started = self.start_answer(
            IncomingRequest(head), reply.status, reason_of(reply.status), reply.headers, len(reply.body)
        )
        self.write(started + self.framed(reply.body))
        # Closing at once would reset the connection under a client that still sends, and lose the answer.
        self._lingering = True
        self.deadline = self._loop.time() + LINGER_S
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def _next(self) -> None:
        """Begins with the next request that has arrived whole."""
        if self._task is not None or self._transport is None or self._transport.is_closing():
            return
        if not self._waiting:
            if self._last and not self._lingering:
                self.close()
            elif self._in_head or self._incoming is not None:
                # Its beginning came while another was served. Set at every piece, it could dribble for ever.
                if self.deadline == NEVER:
                    part_ms = self._house.timeouts.head_ms if self._in_head else self._house.timeouts.body_ms
                    self.deadline = self._loop.time() + part_ms / 1000
            else:
                self.deadline = self._loop.time() + self._house.timeouts.idle_ms / 1000
            return
        request = self._waiting.popleft()
        self.began_answer = False
        if request.refusal is not None:
            self._answer_refusal(request.head, request.refusal)
            return
        self.deadline = NEVER
        self._house.counters.requests += 1
        self._task = self._loop.create_task(self._house.serve(self, request))
        self._task.add_done_callback(lambda task: self._served(request, task))

    def _served(self, request: IncomingRequest, task: asyncio.Task[None]) -> None:
        self._task = None
        self.resumed = None
        self.release_body(request)
        if task.cancelled():
            self.abort()
            return
        if (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "serving a request failed", "exception": error, "task": task}
            )
            self.abort()
            return
        if self._transport is None or self._transport.is_closing():
            return
        if self._waiting or self._last or not self._unparsed:
            self._next()
        else:
            data = bytes(self._unparsed)
            self._unparsed.clear()
            self._parse(data)


HEAD_TOO_LARGE = (431, "head-too-large", "the request's head is too large")
BROKEN = RequestHead(method=b"GET", target=b"/", headers=[], http_11=True, keep_alive=False)
