"""One connection to the engine: a request goes out, its answer comes back in pieces, and a reader that lags stops the reading."""

from __future__ import annotations

import asyncio
import re
from typing import Protocol, cast

import httptools

from vramledger.gateway.messages import WITHOUT_BODY, ResponseHead
from vramledger.gateway.replies import Headers

HEAD_BYTES = 262_144
KEEP_ALIVE_S = re.compile(rb"timeout=(\d{1,6})\b")


class Receiver(Protocol):
    """Whoever gets an answer. After `answer_ended` or `answer_failed` nothing more comes."""

    def answer_began(self, head: ResponseHead) -> None: ...

    def answer_body(self, data: bytes) -> None: ...

    def answer_flush(self) -> None:
        """Everything that had arrived was told."""

    def answer_ended(self) -> None: ...

    def answer_failed(self, reason: str, *, silent: bool) -> None:
        """The connection or its bytes were bad. `silent` if no byte of an answer had come."""


class Owner(Protocol):
    """Whoever keeps connections."""

    def connection_opened(self, connection: UpstreamConnection) -> None: ...

    def connection_idle(self, connection: UpstreamConnection) -> None:
        """It may serve another request."""

    def connection_closed(self, connection: UpstreamConnection) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """Serves one request at a time."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._reason = b""
        self._has_body = True
        self._until_close = False
        self._began = False
        self._complete = False
        self._reusable = False
        self._silent = True
        self._head_bytes = 0
        self.keep_ms: int | None = None
        """What the engine said of how long it keeps an idle connection."""
        self.idle_since = 0.0
        self.served = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, message: bytes, receiver: Receiver, *, has_body: bool) -> None:
        """`has_body` is whether the answer to this method may have one (HEAD's has none)."""
        assert self._transport is not None and self._receiver is None
        self._receiver = receiver
        self._has_body = has_body
        self._began = self._complete = self._until_close = False
        self._silent = True
        self._head_bytes = 0
        self.served += 1
        self._transport.write(message)

    def leave(self, receiver: Receiver) -> None:
        """`receiver` wants no more of its answer: closes at once. Nothing happens where that answer has ended, for
        the connection may serve somebody else by now."""
        if self._receiver is receiver:
            self._receiver = None
            self.abort()

    def abort(self) -> None:
        """Closes at once, whatever is under way."""
        self._fail("the gateway closed the connection")

    def pause_reading(self) -> None:
        if self.is_open and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_open and self._transport is not None:
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods, not by descent
        self._owner.connection_opened(self)

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:  # bytes that nobody asked for: never taken for a later answer
            self.abort()
            return
        self._silent = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("it switched protocols")
            return
        except httptools.HttpParserError as error:
            if self._complete and self._receiver is receiver:  # what came after it is of no use
                self._finish(reusable=False)
                return
            self._fail(f"its answer is not HTTP ({type(error).__name__})")
            return
        if self._receiver is not receiver:
            return
        if not self._began:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._fail("its answer has a head without end")
                return
        if self._complete:
            self._finish(reusable=self._reusable)
        else:
            receiver.answer_flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_closed(self)
        if self._receiver is None:
            return
        if self._began and self._until_close and exc is None:
            self._finish(reusable=False)
        else:
            self._fail(
                "it closed the connection" if exc is None else f"the connection broke ({type(exc).__name__})"
            )

    # callbacks of the parser

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("more than one answer")
        self._headers = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._began:  # later ones are trailers
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._receiver is None:
            return
        self._began = True
        head = ResponseHead(status=status, reason=self._reason, headers=self._headers, length=None)
        length = head.header(b"content-length")
        bare = not self._has_body or status in WITHOUT_BODY
        chunked = bool(head.header(b"transfer-encoding"))
        if length and not chunked:
            head.length = int(length)
        self._until_close = not bare and head.length is None and not chunked
        told = KEEP_ALIVE_S.search(head.header(b"keep-alive"))
        self.keep_ms = int(told[1]) * 1000 if told else None
        self._receiver.answer_began(head)
        if not self._has_body:
            self._complete = True

    def on_body(self, data: bytes) -> None:
        if self._receiver is not None and self._has_body:
            self._receiver.answer_body(data)

    def on_message_complete(self) -> None:
        if self._began:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()

    def _finish(self, *, reusable: bool) -> None:
        receiver, self._receiver = self._receiver, None
        assert receiver is not None
        transport = self._transport
        # After an answer to HEAD the parser still expects a body; a request that is not wholly written was not wholly read.
        if reusable and self._has_body and transport is not None and transport.get_write_buffer_size() == 0:
            transport.resume_reading()
            self._owner.connection_idle(self)
        elif transport is not None:
            transport.abort()
        receiver.answer_ended()

    def _fail(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        if self._transport is not None:
            self._transport.abort()
        if receiver is not None:
            receiver.answer_failed(reason, silent=self._silent)
