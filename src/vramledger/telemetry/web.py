"""Asking a running server: one GET over HTTP or HTTPS within bounds of size and time.

The standard library's http.client: it follows no redirect, knows no proxy and sends no cookie, so that what is asked is what
is answered. Redirects are followed here, to the same host only.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from contextlib import suppress
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

from vramledger.errors import FlagError, SourceError
from vramledger.models.sources.bounded_file import quote, shown

LIMIT_BYTES = 32 * 2**20
LIMIT_S = 10.0
MOST_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}
_CHUNK_BYTES = 2**16


class Answer(Struct, frozen=True, kw_only=True):
    """A whole answer. `kind` is its media type in lower case without parameters, "" where none was sent."""

    url: str
    status: int
    kind: str
    body: bytes


def checked_url(text: str) -> str:
    """An address as it may be asked and printed: http or https, a host, no user or password in it.

    Raises FlagError for anything else; a text without a scheme is taken as http.
    """
    full = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError as problem:
        raise FlagError(
            f"{quote(text)} is not an address: {problem}", flag="url", value=shown(text)
        ) from None
    if parts.scheme not in _PORTS or not parts.hostname or not full.isprintable() or " " in full:
        raise FlagError(
            f"{quote(text)} is not an address such as http://127.0.0.1:8000", flag="url", value=shown(text)
        )
    if "@" in parts.netloc:
        raise FlagError(
            "an address with a user or password in it is not taken; give a token by --token-env", flag="url"
        )
    if port == 0 or parts.fragment:
        raise FlagError(f"{quote(text)} has a port or a part that cannot be asked", flag="url", value=text)
    return full.rstrip("/") if not parts.query else full


def fetch(
    url: str, *, token: str | None = None, limit_bytes: int = LIMIT_BYTES, limit_s: float = LIMIT_S
) -> Answer:
    """The answer to a GET of `url`, whatever its status.

    Raises SourceError where nothing answers, where it takes longer than `limit_s` in all, has more than `limit_bytes`, or
    leads to another host; FlagError for what is no address.
    """
    current = checked_url(url)
    asked = urlsplit(current)
    for _ in range(MOST_REDIRECTS + 1):
        status, headers, body = _get(urlsplit(current), token, limit_bytes, limit_s)
        target = headers.get("Location")
        if status not in (301, 302, 303, 307, 308) or target is None:
            kind = headers.get_content_type() if "Content-Type" in headers else ""
            return Answer(url=current, status=status, kind=kind, body=body)
        current = _redirected(asked, current, target)
    raise SourceError(f"{url} leads in a circle of redirects", source=url)


def fetch_body(
    url: str, *, token: str | None = None, limit_bytes: int = LIMIT_BYTES, limit_s: float = LIMIT_S
) -> bytes:
    """The body of a successful answer. Raises SourceError for any other status too."""
    return successful(fetch(url, token=token, limit_bytes=limit_bytes, limit_s=limit_s), token=token).body


def successful(answer: Answer, *, token: str | None = None) -> Answer:
    """Raises SourceError for any status but 200."""
    if answer.status != 200:
        reason = http.client.responses.get(answer.status, "")
        hint = "; give a token by --token-env" if answer.status in (401, 403) and token is None else ""
        raise SourceError(
            f"{answer.url} answers {answer.status} {reason}".rstrip() + hint,
            source=answer.url,
            status=answer.status,
        )
    return answer


def _redirected(asked: SplitResult, current: str, target: str) -> str:
    following = checked_url(urljoin(current, target))
    parts = urlsplit(following)
    if (parts.hostname, _port(parts)) != (asked.hostname, _port(asked)) or parts.scheme != asked.scheme:
        raise SourceError(
            f"{current} leads to another host, {quote(following)}, which is not asked", source=current
        )
    return following


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]


def _get(
    parts: SplitResult, token: str | None, limit_bytes: int, limit_s: float
) -> tuple[int, http.client.HTTPMessage, bytes]:
    host, url = parts.hostname or "", parts.geturl()
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, _port(parts), timeout=limit_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, _port(parts), timeout=limit_s)
    overdue = threading.Event()
    opened: list[socket.socket] = []

    def cut_off() -> None:
        overdue.set()
        for sock in opened:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    # The socket's own timeout is for each read; a server that sends a byte now and then is ended by this one.
    watch = threading.Timer(limit_s, cut_off)
    watch.daemon = True
    watch.start()
    try:
        headers = {"Accept": "*/*", "User-Agent": "vramledger", "Connection": "close"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection.connect()
        if connection.sock is not None:
            opened.append(connection.sock)
        connection.request(
            "GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), headers=headers
        )
        response = connection.getresponse()
        body = _body(response, url, limit_bytes)
    except (OSError, http.client.HTTPException, ValueError) as problem:
        if overdue.is_set() or isinstance(problem, TimeoutError):
            raise SourceError(f"{url} took longer than {limit_s:g} s", source=url) from None
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        raise SourceError(f"{url} cannot be asked: {reason}", source=url) from None
    finally:
        watch.cancel()
        connection.close()
    if overdue.is_set():
        raise SourceError(f"{url} took longer than {limit_s:g} s", source=url)
    return response.status, response.headers, body


def _body(response: http.client.HTTPResponse, url: str, limit_bytes: int) -> bytes:
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise SourceError(f"{url} answers in the coding {quote(coding)}, which was not asked for", source=url)
    parts: list[bytes] = []
    size = 0
    while part := response.read(_CHUNK_BYTES):
        size += len(part)
        if size > limit_bytes:
            raise SourceError(f"{url} answers with more than {limit_bytes:,} bytes", source=url)
        parts.append(part)
    return b"".join(parts)
