"""Heads of HTTP/1.1 messages as the gateway sends them on: framing its own, headers of one hop left out. Pure.

Rules: RFC 9110 section 7.6 and RFC 9112 section 6. Names are lower case; values are bytes that the parser let through (no control characters).
"""

from __future__ import annotations

import msgspec

from vramledger.gateway.replies import Headers

HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization",
        b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings",
    )
)  # fmt: skip
FRAMING = frozenset((b"host", b"content-length", b"expect"))
METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
IDEMPOTENT = METHODS - {b"POST", b"PATCH"}
WITHOUT_BODY = frozenset((204, 304))


class RequestHead(msgspec.Struct, kw_only=True):
    """A client's request line and headers; `keep_alive` is whether its connection may serve another."""

    method: bytes
    target: bytes
    headers: Headers
    http_11: bool
    keep_alive: bool = True

    def header(self, name: bytes) -> bytes | None:
        """The first header of that name."""
        return next((value for key, value in self.headers if key == name), None)


class ResponseHead(msgspec.Struct, kw_only=True):
    """An engine's status line and headers. `length` is None where the body ends by its chunks or with the connection."""

    status: int
    reason: bytes
    headers: Headers
    length: int | None

    def header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key == name), b"")

    @property
    def is_event_stream(self) -> bool:
        return self.header(b"content-type").lower().startswith(b"text/event-stream")


def fault_of(head: RequestHead) -> tuple[int, str, str] | None:
    """(status, code, sentence) of a head that the parser lets through and the gateway does not."""
    names = [name for name, _ in head.headers]
    if head.method == b"CONNECT" or head.method not in METHODS:
        return 405, "method-not-allowed", "this method is not proxied"
    if head.http_11 and names.count(b"host") != 1:
        return 400, "bad-request", "an HTTP/1.1 request has one Host header"
    if not head.target.startswith(b"/") and head.target != b"*":
        return 400, "bad-target", "the request target is not a path"
    coding = head.header(b"transfer-encoding")
    if coding is not None:
        if not head.http_11:
            return 400, "bad-request", "HTTP/1.0 has no Transfer-Encoding"
        if coding.strip().lower() != b"chunked":
            return 400, "transfer-coding", "of transfer codings only chunked is understood"
    return None


def end_to_end(headers: Headers) -> Headers:
    """Headers that are meant for whoever is at the other end: without those of one hop, named by rule or by Connection."""
    named = {
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    }
    return [pair for pair in headers if pair[0] not in HOP_BY_HOP and pair[0] not in named]


def request_bytes(head: RequestHead, authority: bytes, body: bytes, authorization: bytes = b"") -> bytes:
    """The whole request for the engine: one Host (its own), one Content-Length, never chunked. `authorization` replaces the client's."""
    left_out = FRAMING | {b"authorization"} if authorization else FRAMING
    lines = [b"%s %s HTTP/1.1\r\nhost: %s\r\nvia: 1.1 vramledger\r\n" % (head.method, head.target, authority)]
    lines += [
        b"%s: %s\r\n" % (name, value) for name, value in end_to_end(head.headers) if name not in left_out
    ]
    if authorization:
        lines.append(b"authorization: %s\r\n" % authorization)
    if body or head.method in (b"POST", b"PUT", b"PATCH"):
        lines.append(b"content-length: %d\r\n" % len(body))
    return b"".join((*lines, b"\r\n", body))


def response_bytes(status: int, reason: bytes, headers: Headers, *, framing: bytes, close: bool) -> bytes:
    """A response's head. `framing` is a whole header line or nothing."""
    lines = [b"HTTP/1.1 %d %s\r\n" % (status, reason)]
    lines += [b"%s: %s\r\n" % pair for pair in headers]
    return b"".join((*lines, framing, b"connection: close\r\n\r\n" if close else b"\r\n"))
