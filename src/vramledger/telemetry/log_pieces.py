"""Long lines that a collector wrote in pieces, put together again.

containerd and CRI-O end a piece that goes on with the tag P; Docker's json-file driver leaves the newline off. Both cut
at 16 KiB.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from vramledger.telemetry.log_lines import LONGEST_LINE_BYTES

PIECE_BYTES = 16_000
MOST_BETWEEN = 64
# What the lines of pieces hold, for a reader that passes over others.
PIECE_ANCHORS = (" stdout P ", " stderr P ")

_CRI = re.compile(rb"[\d-]{10}T[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([PF])(?: |$)")


class Piece(Struct, frozen=True):
    """One collector's line: its stream, whether it goes on, what it carries, and whether that is a JSON document's."""

    stream: str
    goes_on: bool
    payload: bytes
    as_json: bool


def piece_of(raw: bytes) -> Piece | None:
    """`raw` as a collector's line; None for any other."""
    match = _CRI.match(raw)
    if match is not None:
        return Piece(match.group(1).decode(), match.group(2) == b"P", raw[match.end() :], False)
    if raw[:1] != b"{" or b'"stream"' not in raw:
        return None
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    log, stream = document.get("log"), document.get("stream")
    if not isinstance(log, str) or not isinstance(stream, str):
        return None
    payload = log.encode("utf-8", "replace")
    return Piece(stream, payload[-1:] != b"\n" and len(payload) >= PIECE_BYTES, payload, True)


def may_go_on(raw: bytes) -> bool:
    """Whether it is worth looking at `raw` as a piece that goes on."""
    return len(raw) >= PIECE_BYTES or raw.find(b" P", 0, 64) >= 0


class OpenLine:
    """A line of which the first piece has been read."""

    def __init__(self, raw: bytes, piece: Piece, offset_bytes: int, number: int) -> None:
        self.stream = piece.stream
        self.offset_bytes = offset_bytes
        self.number = number
        self.waited = 0
        self._as_json = piece.as_json
        self._first = raw
        self._payload = [piece.payload] if piece.as_json else []
        self._length = len(raw)

    def add(self, piece: Piece) -> int:
        """Take one more piece; how many bytes of it were too many."""
        room = max(0, LONGEST_LINE_BYTES - self._length)
        self._payload.append(piece.payload[:room])
        self._length += min(room, len(piece.payload))
        return max(0, len(piece.payload) - room)

    def raw(self) -> bytes:
        """The whole line, as the collector would have written it in one piece."""
        payload = b"".join(self._payload)
        if not self._as_json:
            return self._first.replace(b" P ", b" F ", 1) + payload
        document = msgspec.json.decode(self._first)
        document["log"] = payload.decode("utf-8", "replace")
        return msgspec.json.encode(document)
