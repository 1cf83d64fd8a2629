"""The HTTP server of the page."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from vramledger.web.guard import App

MOST_CONNECTIONS = 200
MOST_WAITING = 100
UNREAD_S = 60.0
LARGEST_HEAD_BYTES = 32_768
_END_S = 3


class Connection(H11Protocol):
    """uvicorn's, of which no number that ask nothing, or ask slowly, keeps others out: the longest unheard goes for the next. Nor does one
    that does not take its answer for `UNREAD_S`."""

    _heard_s = 0.0
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._heard_s = self.loop.time()
        waiting = [
            each
            for each in self.connections
            if isinstance(each, Connection) and each.is_waiting_for_a_question()
        ]
        if len(waiting) >= MOST_WAITING:
            min(waiting, key=lambda each: each._heard_s).transport.abort()
        super().connection_made(transport)

    def is_waiting_for_a_question(self) -> bool:
        """Whether nothing runs for it."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self.loop.time()
        super().data_received(data)

    def pause_writing(self) -> None:
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()


class Server(uvicorn.Server):
    """uvicorn's, which ends what it runs (`end`) before it waits for who is still answered. It reads requests by h11, whose bound of a head
    holds; another parser may be installed and has none."""

    def __init__(self, app: App, *, end: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=cast(type[asyncio.Protocol], Connection),
                ws="none",
                lifespan="on",
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_END_S,
                h11_max_incomplete_event_size=LARGEST_HEAD_BYTES,
                limit_concurrency=MOST_CONNECTIONS,
            )
        )
        self._end = end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._end()
        await super().shutdown(sockets)
