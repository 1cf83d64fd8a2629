"""The gateway's own short questions to an engine: how many tokens, which metrics. Apart from clients' connections, and bounded in all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import NamedTuple

from vramledger.gateway.counters import Counters
from vramledger.gateway.messages import RequestHead, ResponseHead, request_bytes
from vramledger.gateway.replies import Headers
from vramledger.gateway.settings import Upstream
from vramledger.gateway.upstream_connection import UpstreamConnection
from vramledger.gateway.upstream_pool import UpstreamPool, UpstreamUnreachable

IDLE_MS = 4_000
"""Engines close what was idle for 5 seconds (uvicorn, cpp-httplib)."""


class AskingFailed(Exception):
    """No whole answer came; the text says why, without addresses, and holds nothing of what was asked."""


class EngineAnswer(NamedTuple):
    status: int
    body: bytes


class UpstreamAsking:
    """Asks one engine on connections of its own, `most_open` questions at once; others wait for their turn within their time."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        most_open: int = 4,
        connect_ms: int = 5_000,
        headers: Headers | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`headers` go with every question, such as the engine's key (names in lower case)."""
        self._authority = upstream.authority
        self._authorization = upstream.authorization
        self._headers = list(headers or [])
        self._turns = asyncio.Semaphore(most_open)
        self._counters = Counters()
        self._closed = False
        self._pool = UpstreamPool(
            upstream,
            most_idle=most_open,
            idle_ms=IDLE_MS,
            connect_ms=connect_ms,
            counters=self._counters,
            tls=tls,
        )

    @property
    def open_connections(self) -> int:
        return self._pool.open_connections

    async def ask(
        self,
        method: bytes,
        target: bytes,
        body: bytes = b"",
        *,
        within_ms: int,
        most_bytes: int = 1 << 20,
        headers: Headers | None = None,
    ) -> EngineAnswer:
        """The answer, whatever its status. `body` is JSON where there is one. `most_bytes` bounds the answer's body and `within_ms`
        everything: its turn, the connection and the answer. A pooled connection that the engine had closed is replaced once.
        Raises AskingFailed. When cancelled, the connection is closed at once.
        """
        head = RequestHead(
            method=method, target=target, headers=[*self._headers, *(headers or [])], http_11=True
        )
        if body:
            head.headers.append((b"content-type", b"application/json"))
        message = request_bytes(head, self._authority, body, self._authorization)
        try:
            async with asyncio.timeout(within_ms / 1000), self._turns:
                return await self._answer(message, most_bytes, has_body=method != b"HEAD")
        except TimeoutError as error:
            raise AskingFailed(f"no answer within {within_ms} ms") from error
        except UpstreamUnreachable as error:
            raise AskingFailed(str(error)) from error

    async def _answer(self, message: bytes, most_bytes: int, *, has_body: bool) -> EngineAnswer:
        fresh = False
        while True:
            connection = await self._pool.take(fresh=fresh)
            if self._closed:
                connection.abort()
                raise AskingFailed("the gateway is being stopped")
            reused = connection.served > 0
            gathering = _Gathering(connection, most_bytes)
            connection.send(message, gathering, has_body=has_body)
            try:
                return await gathering.done
            except _Closed as closed:
                if not (reused and closed.silent and not fresh) or self._closed:
                    raise
                fresh = True
            finally:
                connection.leave(gathering)

    def close(self) -> None:
        """Ends everything; what was being asked fails."""
        self._closed = True
        self._pool.close()


async def close_all(askings: Iterable[UpstreamAsking]) -> None:
    """Ends everything, and returns when no connection is left."""
    askings = list(askings)
    for asking in askings:
        asking.close()
    while any(asking.open_connections for asking in askings):
        await asyncio.sleep(0)


class _Closed(AskingFailed):
    def __init__(self, reason: str, *, silent: bool) -> None:
        super().__init__(reason)
        self.silent = silent


class _Gathering:
    """A `Receiver` that keeps an answer, up to a size."""

    def __init__(self, connection: UpstreamConnection, most_bytes: int) -> None:
        self._connection = connection
        self._room = most_bytes
        self._status = 0
        self._pieces: list[bytes] = []
        self.done: asyncio.Future[EngineAnswer] = asyncio.get_running_loop().create_future()

    def answer_began(self, head: ResponseHead) -> None:
        self._status = head.status
        if head.length is not None and head.length > self._room:
            self._room = -1

    def answer_body(self, data: bytes) -> None:
        if self._room >= 0:
            self._room -= len(data)
            self._pieces.append(data)

    def answer_flush(self) -> None:
        if self._room < 0:
            self._connection.leave(self)
            self._fail(AskingFailed("its answer is too large"))

    def answer_ended(self) -> None:
        if self._room < 0:
            self._fail(AskingFailed("its answer is too large"))
        elif not self.done.done():
            self.done.set_result(EngineAnswer(self._status, b"".join(self._pieces)))

    def answer_failed(self, reason: str, *, silent: bool) -> None:
        self._fail(_Closed(reason, silent=silent))

    def _fail(self, error: AskingFailed) -> None:
        if not self.done.done():
            self.done.set_exception(error)
