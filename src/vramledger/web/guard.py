"""Who may ask the page's server: its own page, by its own name, in requests of bounded size."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

TOKEN_HEADER = "x-vramledger-token"  # noqa: S105
KEY_COOKIE = "vramledger-key"
_SAFE_SITES = ("same-origin", "none")


class Door(Struct, frozen=True, kw_only=True):
    """`names` are the Host headers that are answered (rebinding a name to this address needs another one), `token` what the page shows to
    prove that it was sent by this server, `key` what a browser must have been given where others reach the address too."""

    names: frozenset[str]
    token: str
    key: str | None = None


class Guard:
    """Refuses what does not come from the page itself, and says in every answer what the page may load."""

    def __init__(self, app: App, *, door: Door, policy: str) -> None:
        self._app = app
        self._door = door
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-frame-options", b"DENY"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
        ]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refused = self._refused(scope)
        if refused is None and self._door.key is not None:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("key", [""])[0]
            if given and scope["path"] == "/":
                await self._enter(given, send)
                return
            if not any(_same(each, self._door.key) for each in _cookies(scope)):
                refused = (403, "open the address with the key that the command printed")
        if refused is not None:
            await _answer(send, refused[0], refused[1], self._headers)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        await self._app(scope, receive, sending)

    def _refused(self, scope: Message) -> tuple[int, str] | None:
        if scope["type"] != "http":
            return (403, "not spoken here")
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._door.names:
            return (421, "this server does not answer to that name")
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        site = told.get("sec-fetch-site")
        is_api = scope["path"].startswith("/api/")
        if is_api and site is not None and site not in _SAFE_SITES:
            return (403, "asked by another site")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return (405, "not taken here")
        origin = told.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != hosts[0]:
            return (403, "asked by another site")
        if is_api and not _same(told.get(TOKEN_HEADER, ""), self._door.token):
            return (403, "not asked by the page: load it again")
        if not is_api and scope["method"] == "POST":
            return (405, "not taken here")
        return None

    async def _enter(self, given: str, send: Send) -> None:
        if self._door.key is None or not _same(given, self._door.key):
            await _answer(send, 403, "this is not the key that the command printed", self._headers)
            return
        cookie = f"{KEY_COOKIE}={given}; HttpOnly; SameSite=Strict; Path=/"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode("latin-1")), *self._headers]
        await _answer(send, 303, "", headers)


def _cookies(scope: Message) -> list[str]:
    """All that stand for the key. Cookies know no port: another server of the same machine may set more of that name, or some that a strict
    reader refuses together with ours."""
    pairs = [
        part.strip().partition("=")
        for name, value in scope["headers"]
        if name == b"cookie"
        for part in value.decode("latin-1").split(";")
    ]
    return [value for name, _, value in pairs if name == KEY_COOKIE]


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


async def _answer(send: Send, status: int, text: str, headers: list[tuple[bytes, bytes]]) -> None:
    body = f"{text}\n".encode() if text else b""
    about = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*about, *headers]})
    await send({"type": "http.response.body", "body": body})
