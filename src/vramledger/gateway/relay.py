"""One answer on its way from the engine to a client: pieces go through without a task being woken, and a slow reader holds them up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from vramledger.gateway.answer_reading import StreamReading, WholeReading
from vramledger.gateway.client_connection import ClientConnection
from vramledger.gateway.desk import Ticket
from vramledger.gateway.messages import ResponseHead, end_to_end
from vramledger.gateway.replies import Headers, error_event
from vramledger.gateway.request_reading import IncomingRequest
from vramledger.gateway.upstream_connection import UpstreamConnection


class Outcome(Enum):
    COMPLETE = "complete"
    BROKEN = "broken"
    """It failed after its answer began; the client was told as far as that is possible."""
    UNANSWERED = "unanswered"
    """It failed after some bytes, before an answer began."""
    SILENT = "silent"
    """It closed without a byte."""
    TIMED_OUT = "timed-out"


class Relay:
    """A `Receiver` that writes to a client. `reading` is given what passes, if somebody wants to know."""

    def __init__(
        self,
        client: ClientConnection,
        request: IncomingRequest,
        *,
        ticket: Ticket | None,
        headers: Headers,
        read: bool,
        silence_s: float,
        first_byte_s: float,
        now: float,
        clock_ns: Callable[[], int],
    ) -> None:
        self._client = client
        self._request = request
        self._extra = headers
        self._read = read
        self._silence_s = silence_s
        self._deadline = now + first_byte_s
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._out: list[bytes] = []
        self._upstream: UpstreamConnection | None = None
        self._paused = False
        self._done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.head: ResponseHead | None = None
        self.reading: StreamReading | WholeReading | None = None
        self.outcome: Outcome | None = None
        self.ticket = ticket
        self._clock_ns = clock_ns
        self.first_output_ns: int | None = None
        """When the first event came that carried output."""
        self._record = ticket.record if ticket is not None else None
        self.told_events = 0
        """Events of the stream that the policy was told of."""
        self.reason = ""
        """Why it failed."""

    @property
    def status(self) -> int:
        """The engine's; 0 before its answer began."""
        return self.head.status if self.head is not None else 0

    async def run(self, upstream: UpstreamConnection, message: bytes) -> Outcome:
        """Sends the request and waits for the end of its answer. When cancelled, the engine's connection is closed at once."""
        self._upstream = upstream
        self._client.resumed = self._resume
        if self._record is not None:
            self._record.sent_ns, self._record.finished_ns = self._clock_ns(), 0
        upstream.send(message, self, has_body=self._request.head.method != b"HEAD")
        del message  # a stream is long, and so may a prompt be
        try:
            return await self._done
        except asyncio.CancelledError:
            upstream.leave(self)
            if self._record is not None and not self._record.finished_ns:
                self._record.finished_ns = self._clock_ns()
            raise
        finally:
            self._upstream = None
            self._client.resumed = None

    def check(self, now: float) -> None:
        """Ends what is silent for too long; a reader that lags is not the engine's silence."""
        if self._paused or now < self._deadline or self._upstream is None:
            return
        self._upstream.leave(self)
        self.reason = "it was silent for too long"
        self._end(Outcome.TIMED_OUT)
        if self.head is not None:
            self._cut(504, "upstream-timeout")

    # Receiver

    def answer_began(self, head: ResponseHead) -> None:
        self.head = head
        self._deadline = self._clock() + self._silence_s
        if self._record is not None:
            self._record.first_byte_ns = self._clock_ns()
        self._client.release_body(self._request)
        if self._read and not head.header(b"content-encoding"):
            self.reading = StreamReading() if head.is_event_stream else WholeReading()
        headers = [pair for pair in end_to_end(head.headers) if pair[0] != b"content-length"] + self._extra
        self._out.append(
            self._client.start_answer(self._request, head.status, head.reason, headers, head.length)
        )

    def answer_body(self, data: bytes) -> None:
        self._out.append(self._client.framed(data))
        if self.reading is not None:
            self.reading.feed(data)
            if self.first_output_ns is None and self.reading.output_events:
                self.first_output_ns = self._clock_ns()
                if self._record is not None:
                    self._record.first_token_ns = self.first_output_ns
        if self._record is not None:
            self._record.answer_bytes += len(data)

    def answer_flush(self) -> None:
        self._deadline = self._clock() + self._silence_s
        if self._out:
            self._client.write(b"".join(self._out))
            self._out.clear()
        if self._client.is_paused and not self._paused and self._upstream is not None:
            self._paused = True
            self._upstream.pause_reading()

    def answer_ended(self) -> None:
        # The connection may serve another request already; how this client reads is not its concern.
        self._upstream = None
        self.answer_flush()
        if isinstance(self.reading, WholeReading):
            self.reading.end()
        self._end(Outcome.COMPLETE)
        self._client.end_answer()

    def answer_failed(self, reason: str, *, silent: bool) -> None:
        self.reason = reason
        if self.head is not None:
            self.answer_flush()
            self._end(Outcome.BROKEN)
            self._cut(502, "upstream-failed")
        else:
            self._end(Outcome.SILENT if silent else Outcome.UNANSWERED)

    def _cut(self, status: int, code: str) -> None:
        """The client sees an error event, if it reads a stream, and in any case an answer without a proper end."""
        if self.head is not None and self.head.is_event_stream and not self.head.header(b"content-encoding"):
            self._client.write(
                self._client.framed(
                    error_event(status, code, f"the engine's answer broke off: {self.reason}")
                )
            )
        self._client.break_off()

    def _resume(self) -> None:
        if self._paused and self._upstream is not None:
            self._paused = False
            self._deadline = self._clock() + self._silence_s
            self._upstream.resume_reading()

    def _end(self, outcome: Outcome) -> None:
        """Told before the client's connection is closed: its loss cancels whoever still waits for an outcome."""
        self.outcome = outcome
        if self._record is not None:
            self._record.finished_ns = self._clock_ns()
        if not self._done.done():
            self._done.set_result(outcome)
