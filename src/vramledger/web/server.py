"""The HTTP server of the page."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import uvicorn

from vramledger.web.guard import App

MOST_CONNECTIONS = 200
LARGEST_HEAD_BYTES = 32_768
_END_S = 3


class Server(uvicorn.Server):
    """uvicorn's, which ends what it runs (`end`) before it waits for who is still answered. It reads requests by h11, whose bound of a head
    holds; another parser may be installed and has none."""

    def __init__(self, app: App, *, end: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
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
