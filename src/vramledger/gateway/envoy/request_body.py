"""A request's body out of a stream: whole and bounded, alone and with all others; and given back in pieces where Envoy keeps none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from vramledger.gateway.envoy import wire
from vramledger.gateway.envoy.house import House
from vramledger.gateway.envoy.messages import Part, Said, Unsuited
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.replies import Reply, error_reply

PIECE_BYTES = 65_536


class BodyReader:
    """`data` is the body once `read` returned it whole; what it takes counts among what the processor holds until `release`."""

    def __init__(self, house: House, *, duplex: bool) -> None:
        self._house = house
        self._duplex = duplex
        self._held_bytes = 0
        self.data = b""
        self.has_trailers = False

    async def read(self, head: RequestHead, receive: Callable[[], Awaitable[Said | None]]) -> Reply | bool:
        """True when it is whole, False when the stream ended before, or the answer to one that is too large."""
        most = self._house.limits.body_bytes
        length = head.header(b"content-length") or b""
        if length.isdigit() and int(length[:20]) > most:
            return too_large(most)
        parts: list[bytes] = []
        while True:
            said = await receive()
            if said is None:
                return False
            if said.part is Part.REQUEST_TRAILERS and self._duplex:
                self.has_trailers = True
                break
            if said.part is not Part.REQUEST_BODY:
                raise Unsuited("something else came where the request's body was expected")
            self._held_bytes += len(said.body)
            self._house.held_bytes += len(said.body)
            if self._held_bytes > most:
                return too_large(most)
            if self._house.held_bytes > self._house.limits.held_body_bytes:
                return error_reply(
                    503, "bodies-held", "the gateway holds as many bytes of requests as it may"
                )
            parts.append(said.body)
            if said.ends or not self._duplex:
                break
        self.data = b"".join(parts)
        return True

    def release(self) -> None:
        self._house.held_bytes -= self._held_bytes
        self._held_bytes = 0
        self.data = b""


def too_large(most: int) -> Reply:
    return error_reply(413, "body-too-large", f"the body may have {most:,} bytes")


def pieces(body: bytes, *, ends: bool) -> Iterator[bytes]:
    """Messages that give a body back, of the size that Envoy recommends. `ends` is whether no trailers follow it."""
    for start in range(0, max(len(body), 1), PIECE_BYTES):
        last = start + PIECE_BYTES >= len(body)
        yield wire.give_back(Part.REQUEST_BODY, body[start : start + PIECE_BYTES], ends=ends and last)
