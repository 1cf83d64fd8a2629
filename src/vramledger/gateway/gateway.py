"""The gateway as a whole: it listens, sweeps what takes too long, drains and closes."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence

from vramledger.errors import InputError
from vramledger.gateway.admitter import Admitter, KnowsInstances
from vramledger.gateway.client_connection import ClientConnection
from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk
from vramledger.gateway.exchange import Exchanges, Route
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.record import Observer, Observers
from vramledger.gateway.replies import Reply
from vramledger.gateway.request_reading import HeldBodies, IncomingRequest
from vramledger.gateway.settings import Limits, Timeouts, Upstream
from vramledger.gateway.stages import Doorkeeper, PromptCounter
from vramledger.gateway.upstream_pool import UpstreamPool

SWEEP_S = 0.25


class Gateway:
    """A proxy to one engine or several behind one policy. All of it lives in the event loop that started it."""

    def __init__(
        self,
        upstreams: Upstream | Sequence[Upstream],
        admitter: Admitter,
        *,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        upstream_tls: ssl.SSLContext | None = None,
        doorkeeper: Doorkeeper | None = None,
        counter: PromptCounter | None = None,
        observers: Sequence[Observer] = (),
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.limits = limits or Limits()
        self.timeouts = timeouts or Timeouts()
        self.counters = Counters()
        self.held = HeldBodies(self.limits.held_body_bytes)
        self.draining = False
        self.connections: set[ClientConnection] = set()
        self.clock_ns = clock_ns
        self.observers = Observers(observers, clock_ns) if observers else None
        self.desk = AdmissionDesk(
            admitter,
            queued=self.limits.queued,
            queued_ms=self.timeouts.queued_ms,
            clock_ns=clock_ns,
            counters=self.counters,
        )
        self._routes = [
            Route(
                upstream,
                UpstreamPool(
                    upstream,
                    most_idle=self.limits.idle_upstream,
                    idle_ms=self.timeouts.idle_upstream_ms,
                    connect_ms=self.timeouts.connect_ms,
                    counters=self.counters,
                    tls=upstream_tls,
                ),
            )
            for upstream in ([upstreams] if isinstance(upstreams, Upstream) else upstreams)
        ]
        self._exchanges = Exchanges(
            routes=self._routes,
            unpriced=admitter.healthy_instance if isinstance(admitter, KnowsInstances) else _first,
            desk=self.desk,
            timeouts=self.timeouts,
            counters=self.counters,
            clock_ns=clock_ns,
            doorkeeper=doorkeeper,
            counter=counter,
            observers=self.observers,
        )
        self.port = 0
        """Where it listens, once started."""
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def pool(self) -> UpstreamPool:
        """Connections to the first engine."""
        return self._routes[0].pool

    @property
    def pools(self) -> list[UpstreamPool]:
        """Connections to each engine."""
        return [route.pool for route in self._routes]

    @property
    def in_flight(self) -> int:
        """Requests that engines are working on."""
        return len(self._exchanges.open)

    async def start(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        """Listens; port 0 takes a free one. An InputError names an address that cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: ClientConnection(self), host, port, ssl=tls, backlog=4096
            )
        except OSError as error:
            raise InputError(
                f"the gateway cannot listen on {host}:{port}: {error.strerror or error}", host=host, port=port
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweeper = loop.create_task(self._sweep())

    def adopt(self, limits: Limits, timeouts: Timeouts) -> None:
        """Other bounds from now on. Nothing that is open ends by them; a connection's reader keeps the limits that it began with."""
        self.limits, self.timeouts = limits, timeouts
        self.held.most = limits.held_body_bytes
        self.desk.adopt(queued=limits.queued, queued_ms=timeouts.queued_ms)
        self._exchanges.adopt(timeouts)
        for pool in self.pools:
            pool.adopt(
                most_idle=limits.idle_upstream,
                idle_ms=timeouts.idle_upstream_ms,
                connect_ms=timeouts.connect_ms,
            )

    def reads_as(self, engine: str) -> None:
        """Whose reading of requests goes for what they may generate, as `vramledger.engines` names it; "" where engines differ or nobody knows."""
        self._exchanges.engine = engine

    def refuses(self, head: RequestHead) -> Reply | None:
        return self._exchanges.refuses(head)

    def serve(self, connection: ClientConnection, request: IncomingRequest) -> Coroutine[None, None, None]:
        return self._exchanges.serve(connection, request)

    async def drain(self, within_s: float) -> bool:
        """Takes no new requests, turns away those that wait, and lets the others finish. True if all did."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        self.desk.drain()
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            for connection in [idle for idle in self.connections if idle.is_idle]:
                connection.close()
            if not self.connections:
                return True
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Ends everything now."""
        self.draining = self._exchanges.closing = True
        if self._server is not None:
            self._server.close()
        self.desk.drain()
        tasks = [connection.cancel() for connection in list(self.connections)]
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        while self.connections:
            await asyncio.sleep(0)
        for pool in self.pools:
            pool.close()
        while any(pool.open_connections for pool in self.pools):
            await asyncio.sleep(0)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    async def _sweep(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(SWEEP_S)
            now = clock()
            for connection in list(self.connections):
                connection.check(now)
            self._exchanges.sweep(now)
            for pool in self.pools:
                pool.sweep(now)


def _first() -> int:
    return 0
