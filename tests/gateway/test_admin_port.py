"""The admin port: what it shows, to whom, and that a browser or a stranger gets nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client import ask
from gateway.gateway_process import admin
from vramledger.errors import InputError
from vramledger.gateway.admin import AdminServer

TOKEN = b"t" * 24


class Shown:
    """Something to administer."""

    def __init__(self) -> None:
        self.why = ""
        self.drains = self.reloads = 0
        self.problem: InputError | None = None

    def metrics(self, accept: str) -> tuple[bytes, str]:
        return b"requests_total 5\n", f"text/plain; asked={accept}"

    def state(self) -> dict[str, Any]:
        return {"a": 1}

    def requests(self) -> list[dict[str, Any]]:
        return [{"number": 7}]

    def unready(self) -> str:
        return self.why

    def begin_drain(self) -> None:
        self.drains += 1

    async def reload(self) -> dict[str, Any]:
        if self.problem is not None:
            raise self.problem
        self.reloads += 1
        return {"status": "reloaded"}


def test_what_it_shows_and_does() -> None:
    async def story() -> None:
        shown = Shown()
        server = AdminServer(shown, token=None)
        await server.start("127.0.0.1", 0)
        metrics = await admin(server.port, "/metrics", headers="Accept: this\r\n")
        assert (metrics.status, metrics.body) == (200, b"requests_total 5\n")
        assert metrics.headers["content-type"] == "text/plain; asked=this"
        assert metrics.headers["cache-control"] == "no-store"
        assert json.loads((await admin(server.port, "/state?x")).body) == {"a": 1}
        assert json.loads((await admin(server.port, "/requests")).body) == {"requests": [{"number": 7}]}
        assert (
            (await admin(server.port, "/healthz")).status
            == (await admin(server.port, "/readyz")).status
            == 200
        )
        shown.why = "draining"
        assert (await admin(server.port, "/readyz")).status == 503
        assert (await admin(server.port, "/healthz")).status == 200
        assert (await admin(server.port, "/drain", method="POST")).status == 202
        assert (await admin(server.port, "/reload", method="POST")).status == 200
        shown.problem = InputError("limits.queued: no")
        failed = await admin(server.port, "/admin/reload", method="POST")
        assert failed.status == 422
        assert failed.error["message"] == "nothing was changed: limits.queued: no"
        assert (shown.drains, shown.reloads) == (1, 1)
        wrong = await admin(server.port, "/drain")
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
        for target in ("/", "/state/", "/v1/models", "/%73tate", "//state"):
            assert (await admin(server.port, target)).status == 404
        assert shown.drains == 1
        await server.close()
        assert not server.connections

    asyncio.run(story())


def test_no_page_of_a_browser_reaches_it() -> None:
    async def story() -> None:
        shown = Shown()
        server = AdminServer(shown, token=None)
        await server.start("127.0.0.1", 0)
        for host in (
            "evil.example",
            f"evil.example:{server.port}",
            "127.0.0.1.evil.example",
            "[::1].evil",
            "",
            "0.0.0.0",
        ):
            assert (await admin(server.port, "/state", headers=f"Host: {host}\r\n")).status == 403
        for host in ("localhost", f"LOCALHOST:{server.port}", f"[::1]:{server.port}", "127.0.0.1"):
            assert (await admin(server.port, "/state", headers=f"Host: {host}\r\n")).status == 200
        for origin in ("http://evil.example", f"http://127.0.0.1:{server.port}", "null"):
            answer = await admin(server.port, "/drain", method="POST", headers=f"Origin: {origin}\r\n")
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers
        assert shown.drains == 0
        await server.close()

    asyncio.run(story())


def test_elsewhere_it_wants_a_token() -> None:
    async def story() -> None:
        open_one = AdminServer(Shown(), token=None)
        for host in ("0.0.0.0", "::", "192.0.2.1"):
            with pytest.raises(InputError, match=r"admin\.token_env"):
                await open_one.start(host, 0)
        server = AdminServer(Shown(), token=TOKEN)
        await server.start("0.0.0.0", 0)
        for said in ("", "Bearer ", "Bearer x", f"Basic {TOKEN.decode()}", f"Bearer {TOKEN.decode()[:-1]}"):
            headers = f"Authorization: {said}\r\n" if said else ""
            for target in ("/state", "/metrics"):
                answer = await admin(server.port, target, headers=headers)
                assert answer.status == 401
                assert answer.headers["www-authenticate"] == "Bearer"
        right = f"Host: gateway.example\r\nAuthorization: Bearer {TOKEN.decode()}\r\n"
        assert (await admin(server.port, "/state", headers=right)).status == 200
        assert (await admin(server.port, "/healthz", headers="Host: 10.0.0.5\r\n")).status == 200
        await server.close()

    asyncio.run(story())


def test_it_is_bounded() -> None:
    async def story() -> None:
        server = AdminServer(Shown(), token=None)
        await server.start("127.0.0.1", 0)
        big = await ask(
            server.port, b"POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n"
        )
        assert big.status == 413
        long = await ask(
            server.port, b"GET /state HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"
        )
        assert long.status == 431
        smuggled = b"POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert (await ask(server.port, smuggled)).status == 400
        await server.close()

    asyncio.run(story())


@given(st.binary(max_size=200))
def test_no_bytes_break_it(sent: bytes) -> None:
    async def story() -> None:
        shown = Shown()
        server = AdminServer(shown, token=TOKEN)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent + b"\r\n\r\n")
        writer.write_eof()
        async with asyncio.timeout(30):
            answer = await reader.read()
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2"))
        writer.transport.abort()
        await server.close()
        assert (shown.drains, shown.reloads) == (0, 0)

    asyncio.run(story())
