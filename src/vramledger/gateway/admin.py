"""The admin port: metrics, health, state, draining and reloading, apart from where clients ask.

It reads requests as the gateway does. A browser has no business here: what bears an Origin is refused, nothing allows another origin to
read, and without a token the Host must be one of this machine's own names, so that no name of an attacker's can point here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from vramledger.errors import InputError, VramledgerError
from vramledger.gateway.client_connection import ClientConnection
from vramledger.gateway.config import LOOPBACK, is_loopback
from vramledger.gateway.counters import Counters
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.replies import Headers, Reply, error_reply
from vramledger.gateway.request_reading import HeldBodies, IncomingRequest
from vramledger.gateway.settings import Limits, Timeouts

SWEEP_S = 0.5
LIMITS = Limits(
    head_bytes=16_384, headers=64, body_bytes=4_096, held_body_bytes=1 << 20, connections=64, pipelined=4
)
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?")


class Administered(Protocol):
    """What the port shows and does."""

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """In a format of Prometheus that an Accept header asks for, and its content type."""

    def state(self) -> dict[str, Any]:
        """What JSON can hold, without secrets."""

    def requests(self) -> list[dict[str, Any]]:
        """The newest requests with what was decided of each: what JSON can hold, nothing of a prompt, an output or a key."""

    def unready(self) -> str:
        """Why no request should be sent here; "" if there is no reason."""

    def begin_drain(self) -> None: ...

    async def reload(self) -> dict[str, Any]:
        """What was taken over. Raises VramledgerError, and then nothing was."""


class AdminServer:
    """A `House` of its own small connections. `token` None: only this machine's own names are answered to."""

    def __init__(self, administered: Administered, *, token: bytes | None) -> None:
        self._administered = administered
        self._token = hashlib.sha256(token).digest() if token is not None else None
        self._names = frozenset(LOOPBACK)
        self.limits = LIMITS
        self.timeouts = Timeouts()
        self.counters = Counters()
        self.held = HeldBodies(LIMITS.held_body_bytes)
        self.draining = False
        self.connections: set[ClientConnection] = set()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._routes: dict[tuple[bytes, bytes], Callable[[RequestHead], Awaitable[Reply]]] = {
            (b"GET", b"/metrics"): self._metrics,
            (b"GET", b"/healthz"): self._healthz,
            (b"GET", b"/readyz"): self._readyz,
            (b"GET", b"/state"): self._state,
            (b"GET", b"/requests"): self._requests,
            (b"POST", b"/drain"): self._drain,
            (b"POST", b"/reload"): self._reload,
            (b"POST", b"/admin/reload"): self._reload,
        }

    async def start(self, host: str, port: int) -> None:
        """Listens. Raises InputError for an address that others reach without a token, or that cannot be had."""
        if self._token is None and not is_loopback(host):
            raise InputError(
                f"the admin port on {host}:{port} is reached by others: name a token by admin.token_env (--admin-token-env), or "
                f"listen on 127.0.0.1",
                host=host,
                port=port,
            )
        self._names |= {host.lower()}
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: ClientConnection(self), host, port)
        except OSError as error:
            raise InputError(
                f"the admin port cannot listen on {host}:{port}: {error.strerror or error}",
                host=host,
                port=port,
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweeper = loop.create_task(self._sweep())

    def refuses(self, head: RequestHead) -> Reply | None:
        return self._turned_away(head)

    async def serve(self, connection: ClientConnection, request: IncomingRequest) -> None:
        reply = self._turned_away(request.head) or await self._answer(request.head)
        reply.headers.append((b"cache-control", b"no-store"))
        reply.headers.append((b"x-content-type-options", b"nosniff"))
        connection.reply(request, reply)

    async def close(self) -> None:
        self.draining = True
        if self._server is not None:
            self._server.close()
        tasks = [connection.cancel() for connection in list(self.connections)]
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        while self.connections:
            await asyncio.sleep(0)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    def _turned_away(self, head: RequestHead) -> Reply | None:
        if head.header(b"origin") is not None:
            return error_reply(403, "browser", "the admin port is not for pages of a browser")
        if self._token is None:
            host = _HOST.fullmatch((head.header(b"host") or b"").decode("latin-1").lower())
            if host is None or (host[1] or host[2]) not in self._names:
                return error_reply(403, "bad-host", "the Host is none of this machine's own names")
        elif head.target not in (b"/healthz", b"/readyz"):
            scheme, _, given = (head.header(b"authorization") or b"").partition(b" ")
            digest = hashlib.sha256(given.strip()).digest()
            if not (hmac.compare_digest(digest, self._token) and scheme.lower() == b"bearer"):
                return error_reply(
                    401,
                    "bad-token",
                    "the admin port wants its token",
                    headers=[(b"www-authenticate", b"Bearer")],
                )
        return None

    async def _answer(self, head: RequestHead) -> Reply:
        path = head.target.partition(b"?")[0]
        method = b"GET" if head.method == b"HEAD" else head.method
        route = self._routes.get((method, path))
        if route is not None:
            return await route(head)
        others = sorted(known for known, other in self._routes if other == path)
        if others:
            allow: Headers = [(b"allow", b", ".join(others))]
            return error_reply(405, "method-not-allowed", "this path takes another method", headers=allow)
        return error_reply(
            404,
            "unknown-path",
            "there are /metrics, /healthz, /readyz, /state, /requests, /drain and /reload",
        )

    async def _metrics(self, head: RequestHead) -> Reply:
        accept = (head.header(b"accept") or b"").decode("latin-1")
        try:
            body, kind = self._administered.metrics(accept)
        except InputError as problem:  # a library is missing
            return error_reply(503, "no-metrics", problem.message)
        return Reply(status=200, headers=[(b"content-type", kind.encode("ascii"))], body=body)

    async def _healthz(self, _: RequestHead) -> Reply:
        return _json(200, {"status": "ok"})

    async def _readyz(self, _: RequestHead) -> Reply:
        reason = self._administered.unready()
        return _json(503 if reason else 200, {"status": reason or "ready"})

    async def _state(self, _: RequestHead) -> Reply:
        return _json(200, self._administered.state())

    async def _requests(self, _: RequestHead) -> Reply:
        return _json(200, {"requests": self._administered.requests()})

    async def _drain(self, _: RequestHead) -> Reply:
        self._administered.begin_drain()
        return _json(202, {"status": "draining"})

    async def _reload(self, _: RequestHead) -> Reply:
        try:
            return _json(200, await self._administered.reload())
        except VramledgerError as problem:
            return error_reply(422, "reload-failed", f"nothing was changed: {problem.message}")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            for connection in list(self.connections):
                connection.check(now)


def _json(status: int, value: object) -> Reply:
    return Reply(
        status=status, headers=[(b"content-type", b"application/json")], body=msgspec.json.encode(value)
    )
