"""One client's connection: its requests are served in order, its answers written, its time bounded, and its leaving noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Protocol, cast

from vramledger.gateway.counters import Counters
from vramledger.gateway.messages import WITHOUT_BODY, RequestHead, response_bytes
from vramledger.gateway.replies import Headers, Reply, reason_of
from vramledger.gateway.request_reading import HeldBodies, IncomingRequest, Part, RequestReader
from vramledger.gateway.settings import Limits, Timeouts

LINGER_S = 1.0
LOOKED_AT = 256
NEVER = float("inf")
_SAID = {Part.NOTHING: 0, Part.HEAD: 1, Part.BODY: 2}


class House(Protocol):
    """What a connection needs of the gateway."""

    limits: Limits
    timeouts: Timeouts
    counters: Counters
    held: HeldBodies
    draining: bool
    connections: set[ClientConnection]

    def refuses(self, head: RequestHead) -> Reply | None:
        """The answer to whoever is turned away whatever the body holds."""

    def serve(
        self, connection: ClientConnection, request: IncomingRequest
    ) -> Coroutine[None, None, None]: ...


class ClientConnection(asyncio.Protocol):
    """Reads requests one after the other and has each served by a task, which is cancelled when the client goes."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(house.limits, house.held, self._say_continue, house.refuses)
        self._seen = (0, Part.NOTHING)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._unparsed = bytearray()
        self._last = False
        self._lingering = False
        self._chunked = False
        self._bare = False
        self._close_after = False
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
        head = request.head
        request.status = status
        self._bare = head.method == b"HEAD" or status in WITHOUT_BODY
        self._chunked = length is None and head.http_11 and not self._bare
        self._close_after = (
            not head.keep_alive
            or self._house.draining
            or (length is None and not self._chunked and not self._bare)
            or (self._last and not self._reader.ready and self._reader.refusal is None)
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
            self._last = True
            if self._transport is not None and self._transport.can_write_eof():
                self._linger()
            else:
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

    def rewrite(self, request: IncomingRequest, head: RequestHead, body: bytes) -> None:
        """What is sent on in the place of what came. What was held of the body is counted anew."""
        self._house.held.bytes += len(body) - len(request.body)
        request.head, request.body = head, body

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
        return self.is_unserved and self._reader.part is Part.NOTHING

    @property
    def is_unserved(self) -> bool:
        """Whether nothing of it is being answered, whatever has arrived of a request."""
        return self._task is None and not self._reader.ready

    @property
    def part(self) -> Part:
        """What is there of a request that is arriving."""
        return self._reader.part

    def check(self, now: float) -> None:
        """Ends what takes too long."""
        stalled_s = self._house.timeouts.stalled_reader_ms / 1000
        if self._stalled_at is not None and now - self._stalled_at >= stalled_s:
            self._house.counters.stalled_readers += 1
            self.abort()
        elif self._lingering and self._transport is not None and not self._transport.get_write_buffer_size():
            self.deadline = min(self.deadline, now + LINGER_S)
            if now >= self.deadline:
                self.abort()
        elif now >= self.deadline:
            if self._lingering or self.is_idle or self._transport is None or self._transport.is_closing():
                self.abort()
            elif self._task is None:
                self._reader.give_up(408, "request-timeout", "the request did not arrive in time")
                self._last = True
                self._next()

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
        if house.draining or (len(house.connections) >= house.limits.connections and not self._make_place()):
            house.counters.connections_refused += 1
            self._transport.abort()
            return
        house.connections.add(self)
        house.counters.connections += 1

    def _make_place(self) -> bool:
        """One that is not served goes for one that comes, so that nobody keeps others out by saying little: of a few, the one that has said
        least and whose time is up first."""
        house = self._house
        unserved = (one for one in islice(house.connections, LOOKED_AT) if one.is_unserved)
        victim = min(unserved, key=lambda one: (_SAID[one.part], one.deadline), default=None)
        if victim is None:
            return False
        house.counters.connections_refused += 1
        house.connections.discard(victim)
        victim.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.connections.discard(self)
        self._stalled_at = None
        if self._task is not None:
            self._task.cancel()
        for request in self._reader.ready:
            self.release_body(request)
        self._reader.ready.clear()
        self._reader.drop()

    def eof_received(self) -> None:
        """A client that sends no more is taken to have gone, as other proxies take it: a live one keeps its side open."""
        if self._task is not None:  # at once, not when it has read what waits for it
            self._task.cancel()

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
        self._read(data)

    def _say_continue(self) -> None:
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _read(self, data: bytes) -> None:
        self._reader.feed(data)
        seen = (self._reader.begun, self._reader.part)
        if seen != self._seen:  # not at every piece, or a request could dribble for ever
            self._seen = seen
            self._wait_for(seen[1])
        if self._reader.is_last or self._reader.refusal is not None:
            self._last = True
        self._next()

    def _wait_for(self, part: Part) -> None:
        timeouts = self._house.timeouts
        wait_ms = {Part.NOTHING: timeouts.idle_ms, Part.HEAD: timeouts.head_ms, Part.BODY: timeouts.body_ms}
        self.deadline = self._loop.time() + wait_ms[part] / 1000

    def _answer_refusal(self, head: RequestHead, reply: Reply) -> None:
        if reply.status < 500:
            self._house.counters.bad_requests += 1
        head.keep_alive = False
        self._last = True
        started = self.start_answer(
            IncomingRequest(head), reply.status, reason_of(reply.status), reply.headers, len(reply.body)
        )
        self.write(started + self.framed(reply.body))
        self._linger()

    def _linger(self) -> None:
        """Nothing more is said. Closing at once would reset the connection under a client that still sends, and lose the answer."""
        self._lingering = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_read = transport.get_write_buffer_size() == 0
        self.deadline = self._loop.time() + (
            LINGER_S if is_read else self._house.timeouts.stalled_reader_ms / 1000
        )
        if transport.can_write_eof():
            transport.write_eof()

    def _next(self) -> None:
        """Begins with the next request that has arrived whole."""
        if self._task is not None or self._transport is None or self._transport.is_closing():
            return
        if self._lingering:
            return
        reader = self._reader
        if not reader.ready:
            if reader.refusal is not None:
                refusal, reader.refusal = reader.refusal, None
                self._answer_refusal(reader.refused, refusal)
            elif self._last:
                self.close()
            elif self.deadline == NEVER:  # what has arrived meanwhile is waited for from now on
                self._wait_for(reader.part)
            return
        request = reader.ready.popleft()
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
        if self._reader.ready or self._last or not self._unparsed:
            self._next()
        else:
            data = bytes(self._unparsed)
            self._unparsed.clear()
            self._read(data)
