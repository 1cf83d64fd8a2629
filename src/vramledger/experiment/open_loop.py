"""Requests sent when they are due, whatever became of those before them: a slow engine gets no rest from slow answers.

Closed loops hide what users see (coordinated omission): where the next request waits for an answer, the load falls as the engine slows. Each
request counts from when it was due, and by how much the client itself was late is noted with it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from vramledger.experiment.answer import CLIENT_FAILED, Answer, Output, Question
from vramledger.experiment.output_reading import OutputReading
from vramledger.experiment.retry_after import TRY_AGAIN, retry_after_s
from vramledger.gateway.answer_reading import StreamReading, WholeReading
from vramledger.gateway.counters import Counters
from vramledger.gateway.messages import RequestHead, ResponseHead, request_bytes
from vramledger.gateway.settings import Upstream
from vramledger.gateway.upstream_connection import UpstreamConnection
from vramledger.gateway.upstream_pool import UpstreamPool, UpstreamUnreachable

NS_PER_S = 1_000_000_000
LONGEST_S = 3600.0
STOPPED = "stopped"
"""The error of a request that was under way when all was stopped."""
SILENT = "silent"
"""The error of a request of which nothing was heard for `silence_s`."""
ENDLESS = "endless"
"""The error of an answer that did not end in `longest_s`, or went on far past the length that was asked for."""
NO_OUTPUT = "no output"
"""The error of an answer that ended as it should without a piece of output: a page of something else, or an empty stream."""
AHEAD = 16
"""Bodies that are made before their time."""
EARLY_S = 0.001
"""The loop's timers go off up to a millisecond late (epoll counts in those), so they are set for that much earlier; the rest is yielded away."""


_Waiting = tuple[int, int, int, Question]
"""When it is due, its number, its place among all that were asked."""


class OpenLoop:
    """Asks one server. `told` is given each answer as it ends, in that order, and may `ask` what follows from it.

    A request is sent on a connection of its own or on one that is idle, as client libraries do; one that the server had closed meanwhile
    is replaced once. `silence_s` without a piece of output ends a request (a comment that keeps a connection open is none), and so
    does `longest_s`.
    """

    def __init__(
        self,
        target: Upstream,
        *,
        told: Callable[[Answer], None],
        silence_s: float = 600.0,
        longest_s: float = LONGEST_S,
        connect_ms: int = 10_000,
        tls: ssl.SSLContext | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._target = target
        self._told = told
        self._silence_s = silence_s
        self._longest_s = longest_s
        self._clock_ns = clock_ns
        self._began_ns = 0
        self._counters = Counters()
        self._pool = UpstreamPool(
            target, most_idle=1024, idle_ms=4_000, connect_ms=connect_ms, counters=self._counters, tls=tls
        )
        self._waiting: list[_Waiting] = []
        self._bodies: dict[int, bytes] = {}
        self._asked_so_far = 0
        self._news = asyncio.Event()
        self._sends = True
        self.open_requests = 0
        self.began_s = time.time()
        """Unix time of the instant that all others count from, once it runs."""

    def ask(self, question: Question) -> None:
        """One more, while others are under way; it is sent at once where it is due."""
        if not self._sends:
            return
        self._asked_so_far += 1
        heappush(self._waiting, (question.at_ns, question.number, self._asked_so_far, question))
        if self._waiting[0][3] is question:
            self._news.set()

    def send_no_more(self) -> None:
        """What is not sent yet never is; what is under way goes on to its end, and nothing follows it."""
        self._sends = False
        self._waiting.clear()
        self._bodies.clear()
        self._news.set()

    async def run(self, questions: Iterable[Question]) -> None:
        """Sends each when it is due and returns when all have ended. When cancelled, all are left at once."""
        for question in questions:
            self.ask(question)
        self._began_ns, self.began_s = self._clock_ns(), time.time()
        try:
            async with asyncio.TaskGroup() as tasks:
                while self._waiting or self.open_requests:
                    if not self._waiting:
                        await self._told_news(None)
                        continue
                    at_ns, _, serial, question = self._waiting[0]
                    if serial not in self._bodies:
                        await self._make_bodies()
                        continue
                    if not await self._is_due(at_ns, serial):
                        continue
                    heappop(self._waiting)
                    self.open_requests += 1
                    tasks.create_task(self._asked(question, self._bodies.pop(serial)))
        finally:
            self._pool.close()

    async def _make_bodies(self) -> None:
        """Bodies of the next questions, one at a time, while there is time for that: a burst meets them ready."""
        for at_ns, _, serial, question in _smallest(self._waiting, AHEAD):
            if serial not in self._bodies:
                self._bodies[serial] = question.body if isinstance(question.body, bytes) else question.body()
                if at_ns - self._now_ns() < EARLY_S * NS_PER_S:
                    return
                await asyncio.sleep(0)
            if not self._waiting or self._waiting[0][0] - self._now_ns() < EARLY_S * NS_PER_S:
                return

    async def _is_due(self, at_ns: int, serial: int) -> bool:
        """Waits until then. False where meanwhile something was asked that is due earlier."""
        left_s = (at_ns - self._now_ns()) / NS_PER_S
        if left_s > EARLY_S and await self._told_news(left_s - EARLY_S):
            return False
        while self._now_ns() < at_ns:
            await asyncio.sleep(0)
        return bool(self._waiting) and self._waiting[0][2] == serial

    async def _told_news(self, within_s: float | None) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def _now_ns(self) -> int:
        return self._clock_ns() - self._began_ns

    async def _asked(self, question: Question, body: bytes) -> None:
        answer = Answer(number=question.number, at_ns=question.at_ns)
        now_s = asyncio.get_running_loop().time()
        elapsed_ns = self._now_ns() - question.at_ns

        def limit(after_ns: int | None) -> float | None:
            return None if after_ns is None else now_s + max(0, after_ns - elapsed_ns) / NS_PER_S

        stays_until, first_token_until = (
            limit(question.leaves_after_ns),
            limit(question.first_token_within_ns),
        )
        ends_at = now_s + self._longest_s
        stays_until = None if stays_until is None or stays_until > ends_at else stays_until
        try:
            async with asyncio.timeout_at(
                min(one for one in (stays_until, first_token_until, ends_at) if one is not None)
            ) as patience:

                def began() -> None:
                    if first_token_until is not None and not patience.expired():
                        patience.reschedule(ends_at if stays_until is None else stays_until)

                await self._answered(question, body, answer, began)
        except TimeoutError:
            if asyncio.get_running_loop().time() < ends_at:
                answer.left = not answer.waits_to_retry
            else:
                answer.error = answer.error or ENDLESS
        except asyncio.CancelledError:
            answer.left, answer.error = True, STOPPED
            raise
        finally:
            self.open_requests -= 1
            answer.end_ns = self._now_ns()
            self._told(answer)
            if not self.open_requests:
                self._news.set()

    async def _answered(
        self, question: Question, body: bytes, answer: Answer, began: Callable[[], None]
    ) -> None:
        while True:
            retry_after_s = await self._attempt(question, body, answer, began)
            if retry_after_s is None or answer.attempts > question.retries:
                return
            began_ns, answer.waits_to_retry = self._now_ns(), True
            try:
                await asyncio.sleep(retry_after_s)
            finally:
                answer.waited_to_retry_ns += self._now_ns() - began_ns
            answer.waits_to_retry = False

    async def _attempt(
        self, question: Question, body: bytes, answer: Answer, began: Callable[[], None]
    ) -> float | None:
        """Seconds to wait before another, where the server asks for that."""
        head = RequestHead(
            method=b"POST",
            target=question.path.encode("ascii"),
            headers=[(b"content-type", b"application/json"), (b"accept", b"*/*"), *question.headers],
            http_11=True,
        )
        message = request_bytes(head, self._target.authority, body, self._target.authorization)
        answer.attempts += 1
        if answer.sent_ns < 0:  # A server that is slow to take a connection makes no client late.
            answer.sent_ns = self._now_ns()
        fresh = False
        while True:
            try:
                connection = await self._pool.take(fresh=fresh)
            except UpstreamUnreachable as problem:
                answer.error = f"{CLIENT_FAILED}: {problem}"
                return None
            reused = connection.served > 0
            hearing = _Hearing(connection, question, answer, self._now_ns, began)
            connection.send(message, hearing, has_body=True)
            try:
                silent = await self._heard_out(hearing)
                if silent is None:
                    answer.error = SILENT
                    return None
            finally:
                connection.leave(hearing)
                hearing.note()
            if silent and reused and not fresh:
                fresh, answer.error = True, ""
                continue
            return hearing.retry_after_s

    async def _heard_out(self, hearing: _Hearing) -> bool | None:
        """Until the answer ended: whether not a byte of it came; None where nothing was heard for too long."""
        loop = asyncio.get_running_loop()
        while True:
            left_s = hearing.heard_s + self._silence_s - loop.time()
            if left_s <= 0:
                return None
            # Looked at now and then: a timer that is set anew by each token costs more than reading it.
            await asyncio.wait((hearing.done,), timeout=left_s)
            if hearing.done.done():
                return hearing.done.result()


def _smallest(heap: list[_Waiting], count: int) -> list[_Waiting]:
    """The first of a heap, in order, without going through all of it."""
    found: list[_Waiting] = []
    edge = [(heap[0], 0)] if heap else []
    while edge and len(found) < count:
        one, place = heappop(edge)
        found.append(one)
        for below in (2 * place + 1, 2 * place + 2):
            if below < len(heap):
                heappush(edge, (heap[below], below))
    return found


class _Hearing:
    """A `Receiver` that notes when what came. `done` tells whether the server closed without a byte."""

    def __init__(
        self,
        connection: UpstreamConnection,
        question: Question,
        answer: Answer,
        now_ns: Callable[[], int],
        began: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._keeps_output = question.keeps_output
        self._began = began
        self._leaves_after = question.leaves_after_events
        self._most_events = question.most_events
        self._answer = answer
        self._now_ns = now_ns
        self._reading: StreamReading | WholeReading | None = None
        self.retry_after_s: float | None = None
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[bool] = loop.create_future()
        self._loop_s = loop.time
        self.heard_s = loop.time()

    def answer_began(self, head: ResponseHead) -> None:
        answer = self._answer
        answer.status = head.status
        answer.rule = head.header(b"x-vramledger-rule").decode("latin-1")[:64]
        answer.error = ""
        self._reading = OutputReading(keeps=self._keeps_output) if head.is_event_stream else WholeReading()
        if head.status in TRY_AGAIN:
            self.retry_after_s = retry_after_s(head.header(b"retry-after"), head.header(b"date"))

    def answer_body(self, data: bytes) -> None:
        reading, answer = self._reading, self._answer
        assert reading is not None
        before = reading.output_events
        reading.feed(data)
        if reading.output_events > before:
            now_ns, self.heard_s = self._now_ns(), self._loop_s()
            if answer.first_token_ns < 0:
                answer.first_token_ns = now_ns
                self._began()
            else:
                answer.longest_gap_ns = max(answer.longest_gap_ns, now_ns - answer.last_token_ns)
            answer.last_token_ns = now_ns

    def answer_flush(self) -> None:
        events = 0 if self._reading is None else self._reading.output_events
        if self._most_events is not None and events > self._most_events:
            self._answer.error = ENDLESS
        elif self._leaves_after is not None and self._reading is not None and events >= self._leaves_after:
            self._answer.left = True
        else:
            return
        self._connection.leave(self)
        self._end(silent=False)

    def answer_ended(self) -> None:
        reading, answer = self._reading, self._answer
        assert reading is not None
        if isinstance(reading, WholeReading):
            reading.end()
        answer.whole = answer.status == 200 and reading.error is None
        if isinstance(reading, WholeReading) and answer.whole and reading.output_events:
            answer.first_token_ns = answer.last_token_ns = self._now_ns()
        if isinstance(reading, StreamReading):
            answer.whole = answer.whole and reading.finished
            if not answer.whole and reading.error is None and answer.status == 200:
                answer.error = "the stream ended without saying so"
        # A model that ends at once says so by a count of one token, of which no text is told.
        if answer.whole and not reading.output_events and reading.output_tokens != 1:
            answer.whole, answer.error = False, NO_OUTPUT
        self._end(silent=False)

    def answer_failed(self, reason: str, *, silent: bool) -> None:
        self._answer.error = reason
        self._end(silent=silent)

    def _end(self, *, silent: bool) -> None:
        if not self.done.done():
            self.done.set_result(silent)

    def note(self) -> None:
        """What was heard so far goes into the answer."""
        reading, answer = self._reading, self._answer
        if reading is not None:
            answer.prompt_tokens = reading.prompt_tokens
            answer.cached_prompt_tokens = reading.cached_prompt_tokens
            answer.output_tokens = reading.output_tokens
            answer.events = reading.output_events
            if isinstance(reading, OutputReading) and self._keeps_output:
                answer.output = Output(ids=tuple(reading.ids), text="".join(reading.text))
            if reading.error is not None:
                answer.error = reading.error.code or reading.error.type or "an error without a name"
