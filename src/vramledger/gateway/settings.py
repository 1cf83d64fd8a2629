"""What a gateway is told once, when it starts: where the engine is, how much it takes in, how long it waits."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from vramledger.errors import InputError, shorter


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's address, and the Authorization that it gets in the place of a client's. Nothing in a request changes where
    connections go."""

    host: str
    port: int
    tls: bool = False
    authorization: bytes = b""

    def __repr__(self) -> str:
        return f"Upstream({self.host!r}, {self.port}, tls={self.tls})"

    @property
    def authority(self) -> bytes:
        """The Host header that the engine gets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.tls else 80
        return (host if self.port == usual else f"{host}:{self.port}").encode("ascii")


def upstream_from_url(url: str) -> Upstream:
    """http(s)://HOST[:PORT] alone; an InputError names what else there was, and of a password nothing."""
    if "@" in url:
        raise InputError("an upstream's URL has a user or password in it; give http://HOST:PORT alone")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"the upstream {shorter(url)} is not a URL: {error}", url=url) from error
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"the upstream {shorter(url)} is not of the form http://HOST:PORT", url=url)
    for what, there in (
        ("a path", parts.path not in ("", "/")),
        ("a query", "?" in url),
        ("a fragment", "#" in url),
    ):
        if there:
            raise InputError(
                f"the upstream {shorter(url)} has {what}; give http://HOST:PORT alone", url=url, what=what
            )
    if not all("!" <= letter <= "~" for letter in host):
        raise InputError(f"the upstream's host {shorter(host)} is not written in ASCII", url=url)
    return Upstream(
        host=host, port=port or (443 if parts.scheme == "https" else 80), tls=parts.scheme == "https"
    )


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what clients may make the gateway hold."""

    head_bytes: int = 65_536
    """Of one request's line and headers; also of whatever frames its body."""
    headers: int = 128
    """Of one request."""
    body_bytes: int = 32 << 20
    """Of one request."""
    held_body_bytes: int = 1 << 30
    """Bodies of all requests together, from their first byte until the engine answers."""
    connections: int = 10_000
    """Clients' connections, as far as the process may open files; idle ones are closed for those that come, and more are closed at once."""
    pipelined: int = 16
    """Requests that one connection may have sent ahead of their answers."""
    write_buffer_bytes: int = 65_536
    """Unread answer of one client above which the engine's connection is no longer read."""
    queued: int = 256
    """Requests that wait for room, for all engines together."""
    idle_upstream: int = 256
    """Connections to the engine that are kept open unused."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """In milliseconds. They are looked at a few times a second."""

    head_ms: int = 10_000
    """Until a request's line and headers are there."""
    body_ms: int = 60_000
    """Until its body is there."""
    idle_ms: int = 75_000
    """A client's connection between two requests."""
    stalled_reader_ms: int = 60_000
    """A client that reads nothing of what waits for it."""
    queued_ms: int = 60_000
    """The longest wait for room; then 429."""
    connect_ms: int = 5_000
    """Until a connection to an engine is made."""
    first_byte_ms: int = 900_000
    """From the request to the engine's first byte: without streaming, the whole generation."""
    silence_ms: int = 300_000
    """Between two pieces of an answer."""
    idle_upstream_ms: int = 4_000
    """Engines close what was idle for 5 seconds (uvicorn, cpp-httplib); what they announce as shorter is heeded."""
