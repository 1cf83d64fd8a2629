"""Requests sent when they are due, whatever became of those before them: a slow engine gets no rest from slow answers.

Closed loops hide what users see (coordinated omission): where the next request waits for an answer, the load falls as the engine slows. Each
request counts from when it was due, and by how much the client itself was late is noted with it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from heapq import heapify, heappop

from vramledger.experiment.answer import CLIENT_FAILED, Answer, Question
from vramledger.gateway.answer_reading import StreamReading, WholeReading
from vramledger.gateway.counters import Counters
from vramledger.gateway.messages import RequestHead, ResponseHead, request_bytes
from vramledger.gateway.settings import Upstream
from vramledger.gateway.upstream_connection import UpstreamConnection
from vramledger.gateway.upstream_pool import UpstreamPool, UpstreamUnreachable

NS_PER_S = 1_000_000_000
TRY_AGAIN = (429, 503)
LONGEST_RETRY_S = 600
EARLY_S = 0.002
"""The loop's timers may be late by a millisecond; the last of the wait is yielded away."""


class OpenLoop:
    """Asks one server. `told` is given each answer as it ends, in that order.

    A request is sent on a connection of its own or on one that is idle, as client libraries do; one that the server had closed meanwhile
    is replaced once. `silence_s` without a byte ends a request.
    """

    def __init__(
        self,
        target: Upstream,
        *,
        told: Callable[[Answer], None],
        silence_s: float = 600.0,
        connect_ms: int = 10_000,
        tls: ssl.SSLContext | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._target = target
        self._told = told
        self._silence_s = silence_s
        self._clock_ns = clock_ns
        self._began_ns = 0
        self._counters = Counters()
        self._pool = UpstreamPool(
            target, most_idle=1024, idle_ms=4_000, connect_ms=connect_ms, counters=self._counters, tls=tls
        )
        self.open_requests = 0

    async def run(self, questions: Iterable[Question]) -> None:
        """Sends each when it is due and returns when all have ended. When cancelled, all are left at once."""
        self._began_ns = self._clock_ns()
        waiting = [(question.at_ns, question.number, question) for question in questions]
        heapify(waiting)
        try:
            async with asyncio.TaskGroup() as tasks:
                while waiting:
                    at_ns, _, question = heappop(waiting)
                    await self._until(at_ns)
                    tasks.create_task(self._asked(question))
        finally:
            self._pool.close()

    async def _until(self, at_ns: int) -> None:
        left_s = (at_ns - self._now_ns()) / NS_PER_S
        if left_s > EARLY_S:
            await asyncio.sleep(left_s - EARLY_S)
        while self._now_ns() < at_ns:
            await asyncio.sleep(0)

    def _now_ns(self) -> int:
        return self._clock_ns() - self._began_ns

    async def _asked(self, question: Question) -> None:
        answer = Answer(number=question.number, at_ns=question.at_ns)
        self.open_requests += 1
        try:
            left_ns = question.leaves_after_ns
            limit_s = (
                None if left_ns is None else max(0, question.at_ns + left_ns - self._now_ns()) / NS_PER_S
            )
            async with asyncio.timeout(limit_s):
                await self._answered(question, answer)
        except TimeoutError:
            answer.left = True
        finally:
            self.open_requests -= 1
            answer.end_ns = self._now_ns()
            self._told(answer)

    async def _answered(self, question: Question, answer: Answer) -> None:
        while True:
            retry_after_s = await self._attempt(question, answer)
            if retry_after_s is None or answer.attempts > question.retries:
                return
            began_ns = self._now_ns()
            await asyncio.sleep(retry_after_s)
            answer.waited_to_retry_ns += self._now_ns() - began_ns

    async def _attempt(self, question: Question, answer: Answer) -> float | None:
        """Seconds to wait before another, where the server asks for that."""
        head = RequestHead(
            method=b"POST",
            target=question.path.encode("ascii"),
            headers=[(b"content-type", b"application/json"), (b"accept", b"*/*"), *question.headers],
            http_11=True,
        )
        message = request_bytes(head, self._target.authority, question.body, self._target.authorization)
        answer.attempts += 1
        fresh = False
        while True:
            try:
                connection = await self._pool.take(fresh=fresh)
            except UpstreamUnreachable as problem:
                answer.error = f"{CLIENT_FAILED}: {problem}"
                return None
            reused = connection.served > 0
            hearing = _Hearing(connection, question, answer, self._now_ns)
            if answer.sent_ns < 0:
                answer.sent_ns = self._now_ns()
            connection.send(message, hearing, has_body=True)
            try:
                async with asyncio.timeout(None) as silence:
                    hearing.heard = lambda: silence.reschedule(
                        asyncio.get_running_loop().time() + self._silence_s
                    )
                    hearing.heard()
                    silent = await hearing.done
            except TimeoutError:
                if not silence.expired():
                    raise
                answer.error = "silent"
                return None
            finally:
                connection.leave(hearing)
            if silent and reused and not fresh:
                fresh, answer.error = True, ""
                continue
            return hearing.retry_after_s


class _Hearing:
    """A `Receiver` that notes when what came. `done` tells whether the server closed without a byte."""

    def __init__(
        self, connection: UpstreamConnection, question: Question, answer: Answer, now_ns: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._most_events = question.leaves_after_events
        self._answer = answer
        self._now_ns = now_ns
        self._reading: StreamReading | WholeReading | None = None
        self.retry_after_s: float | None = None
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.heard: Callable[[], None] = _nothing

    def answer_began(self, head: ResponseHead) -> None:
        answer = self._answer
        answer.status = head.status
        answer.rule = head.header(b"x-vramledger-rule").decode("latin-1")[:64]
        self._reading = StreamReading() if head.is_event_stream else WholeReading()
        named = head.header(b"retry-after")
        if head.status in TRY_AGAIN and named.isdigit():
            self.retry_after_s = float(min(int(named[:9]), LONGEST_RETRY_S))

    def answer_body(self, data: bytes) -> None:
        reading, answer = self._reading, self._answer
        assert reading is not None
        before = reading.output_events
        reading.feed(data)
        if reading.output_events > before:
            now_ns = self._now_ns()
            if answer.first_token_ns < 0:
                answer.first_token_ns = now_ns
            else:
                answer.longest_gap_ns = max(answer.longest_gap_ns, now_ns - answer.last_token_ns)
            answer.last_token_ns = now_ns

    def answer_flush(self) -> None:
        self.heard()
        reading = self._reading
        if (
            self._most_events is not None
            and reading is not None
            and reading.output_events >= self._most_events
        ):
            self._answer.left = True
            self._connection.leave(self)
            self._end(silent=False)

    def answer_ended(self) -> None:
        reading, answer = self._reading, self._answer
        assert reading is not None
        if isinstance(reading, WholeReading):
            reading.end()
        answer.whole = answer.status == 200 and reading.error is None
        if isinstance(reading, WholeReading) and answer.whole:
            answer.first_token_ns = answer.last_token_ns = self._now_ns()
        if isinstance(reading, StreamReading):
            answer.whole = answer.whole and reading.finished
            if not answer.whole and reading.error is None and answer.status == 200:
                answer.error = "the stream ended without saying so"
        self._end(silent=False)

    def answer_failed(self, reason: str, *, silent: bool) -> None:
        self._answer.error = reason
        self._end(silent=silent)

    def _end(self, *, silent: bool) -> None:
        reading, answer = self._reading, self._answer
        if reading is not None:
            answer.prompt_tokens = reading.prompt_tokens
            answer.cached_prompt_tokens = reading.cached_prompt_tokens
            answer.output_tokens = reading.output_tokens
            answer.events = reading.output_events
            if reading.error is not None:
                answer.error = reading.error.code or reading.error.type or "an error without a name"
        if not self.done.done():
            self.done.set_result(silent)


def _nothing() -> None:
    return None
