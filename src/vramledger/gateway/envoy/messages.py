"""What Envoy says of a request and what it is answered, as values; which fields stand where on the wire is `wire`'s alone. Pure.

The protocol is `envoy.service.ext_proc.v3.ExternalProcessor`: one gRPC stream for one HTTP request, with the parts of request and
response that the filter's `processing_mode` names, in their order.
"""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec

from vramledger.gateway.messages import RequestHead, ResponseHead
from vramledger.gateway.replies import Headers


class Unsuited(Exception):
    """The filter is configured so that nothing can be admitted; the text says how it should be."""


UNCHANGEABLE = frozenset((b"host", b"content-length"))
"""Headers that Envoy writes itself; the length only changes with the body."""


class Part(Enum):
    """Which part of request or response a message holds."""

    REQUEST_HEADERS = "request_headers"
    REQUEST_BODY = "request_body"
    REQUEST_TRAILERS = "request_trailers"
    RESPONSE_HEADERS = "response_headers"
    RESPONSE_BODY = "response_body"
    RESPONSE_TRAILERS = "response_trailers"
    UNKNOWN = ""
    """Not a message of this protocol, or of a later one."""


class BodyMode(IntEnum):
    """`ProcessingMode.BodySendMode`."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4
    GRPC = 5


class Modes(msgspec.Struct, frozen=True, kw_only=True):
    """How the filter is configured to send bodies; told in a stream's first message (Envoy 1.34 and later)."""

    request_body: int
    response_body: int


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One message from Envoy. `ends` is whether nothing of this direction follows."""

    part: Part
    headers: Headers = []
    body: bytes = b""
    ends: bool = False
    modes: Modes | None = None
    observing: bool = False
    """The filter runs in observability mode: answers are ignored, so nothing can be admitted or refused."""
    subset: tuple[str, ...] | None = None
    """Endpoints (IP:PORT) of which one must be chosen, where a gateway names them."""
    details: str = ""
    """Envoy's `response.code_details`, if the filter's `response_attributes` has it: whose answer this is."""
    served_by: str = ""
    """IP:PORT of the engine that answers, if they have `upstream.address`."""


class HeaderChange(msgspec.Struct, frozen=True, kw_only=True):
    """`put` replaces what a name had (of several values with one name the later ones are added); `remove` takes names away."""

    put: Headers = []
    remove: tuple[bytes, ...] = ()


NO_CHANGE = HeaderChange()


def request_head(headers: Headers) -> RequestHead:
    """A head as the gateway's doorkeeper reads it. The authority is its Host header, the other pseudo-headers are no headers."""
    pseudo = {name: value for name, value in headers if name.startswith(b":")}
    plain = [pair for pair in headers if not pair[0].startswith(b":")]
    if b":authority" in pseudo and not any(name == b"host" for name, _ in plain):
        plain.insert(0, (b"host", pseudo[b":authority"]))
    return RequestHead(
        method=pseudo.get(b":method", b""), target=pseudo.get(b":path", b""), headers=plain, http_11=True
    )


def response_head(headers: Headers) -> ResponseHead:
    status = next((value for name, value in headers if name == b":status"), b"")
    return ResponseHead(
        status=int(status) if len(status) == 3 and status.isdigit() else 0,
        reason=b"",
        headers=[pair for pair in headers if not pair[0].startswith(b":")],
        length=None,
    )


def change_between(before: RequestHead, after: RequestHead) -> HeaderChange:
    """What turns one head into the other. Host and Content-Length are left as they are."""
    old, new = _by_name(before.headers), _by_name(after.headers)
    put = [
        (name, value)
        for name, values in new.items()
        if name not in UNCHANGEABLE and values != old.get(name)
        for value in values
    ]
    if after.target != before.target:
        put.insert(0, (b":path", after.target))
    return HeaderChange(put=put, remove=tuple(name for name in old.keys() - new.keys() - UNCHANGEABLE))


def _by_name(headers: Headers) -> dict[bytes, list[bytes]]:
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    return values
