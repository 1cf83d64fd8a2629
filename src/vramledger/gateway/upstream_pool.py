"""Connections to one engine: the last one used is used first, and none that the engine may be about to close."""

from __future__ import annotations

import asyncio
import ssl

from vramledger.gateway.counters import Counters
from vramledger.gateway.settings import Upstream
from vramledger.gateway.upstream_connection import UpstreamConnection

MARGIN_MS = 1000


class UpstreamUnreachable(Exception):
    """No connection could be made; the text says why, without addresses."""


class UpstreamPool:
    def __init__(
        self,
        upstream: Upstream,
        *,
        most_idle: int,
        idle_ms: int,
        connect_ms: int,
        counters: Counters,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._upstream = upstream
        self._tls = (tls or ssl.create_default_context()) if upstream.tls else None
        self._most_idle = most_idle
        self._idle_ms = idle_ms
        self._connect_s = connect_ms / 1000
        self._counters = counters
        self._idle: list[UpstreamConnection] = []
        self._open: set[UpstreamConnection] = set()
        self._closed = False

    def adopt(self, *, most_idle: int, idle_ms: int, connect_ms: int) -> None:
        """Other bounds, from now on."""
        self._most_idle, self._idle_ms, self._connect_s = most_idle, idle_ms, connect_ms / 1000

    @property
    def open_connections(self) -> int:
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    async def take(self, *, fresh: bool = False) -> UpstreamConnection:
        """An open connection; a new one if `fresh` or none is idle. Raises UpstreamUnreachable."""
        now = asyncio.get_running_loop().time()
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.is_open and not self._is_stale(connection, now):
                self._counters.upstream_reused += 1
                return connection
            connection.abort()
        return await self._connect()

    def sweep(self, now: float) -> None:
        """Closes what has been idle for too long."""
        for connection in [idle for idle in self._idle if self._is_stale(idle, now)]:
            connection.abort()

    def close(self) -> None:
        self._closed = True
        for connection in list(self._open):
            connection.abort()

    def _is_stale(self, connection: UpstreamConnection, now: float) -> bool:
        keep_ms = self._idle_ms
        if connection.keep_ms is not None:
            keep_ms = min(keep_ms, connection.keep_ms - MARGIN_MS)
        return (now - connection.idle_since) * 1000 >= keep_ms

    async def _connect(self) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        connection = UpstreamConnection(self)
        try:
            async with asyncio.timeout(self._connect_s):
                await loop.create_connection(
                    lambda: connection,
                    self._upstream.host,
                    self._upstream.port,
                    ssl=self._tls,
                )
        except TimeoutError as error:
            connection.abort()
            raise UpstreamUnreachable(f"no connection within {self._connect_s:g} s") from error
        except OSError as error:
            raise UpstreamUnreachable(_reason(error)) from error
        except asyncio.CancelledError:
            connection.abort()
            raise
        if not connection.is_open:
            raise UpstreamUnreachable("it closed the connection at once")
        return connection

    def connection_opened(self, connection: UpstreamConnection) -> None:
        self._open.add(connection)
        self._counters.upstream_connections += 1

    def connection_idle(self, connection: UpstreamConnection) -> None:
        if self._closed or len(self._idle) >= self._most_idle:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def connection_closed(self, connection: UpstreamConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "it refuses connections"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or type(error).__name__})"
    return f"connecting failed ({type(error).__name__})"
