"""What a client says of its request in headers: its key, its deadlines and its priority. Pure."""

from __future__ import annotations

import msgspec

from vramledger.gateway.replies import Headers
from vramledger.gateway.tenants.tenant import MOST_MS, MOST_PRIORITY

KEY_HEADERS = frozenset((b"authorization", b"x-api-key", b"api-key"))
FIRST_TOKEN_WITHIN = b"x-first-token-deadline-ms"
WITHIN = b"x-request-deadline-ms"
PRIORITY = b"x-request-priority"
WISH_HEADERS = frozenset((FIRST_TOKEN_WITHIN, WITHIN, PRIORITY))


class BadHeader(ValueError):
    """A header of ours that says nothing sensible; the text names it and does not repeat its value."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    first_token_within_ms: int | None = None
    within_ms: int | None = None
    priority: int | None = None


NO_WISHES = Wishes()


def presented_key(headers: Headers) -> bytes | None:
    """The key of Authorization (Bearer), x-api-key or api-key. None without any; b"" for what cannot be one, such as two that differ."""
    found: set[bytes] = set()
    for name, value in headers:
        if name == b"authorization":
            scheme, _, rest = value.strip().partition(b" ")
            found.add(rest.strip() if scheme.lower() == b"bearer" else b"")
        elif name in KEY_HEADERS:
            found.add(value.strip())
    if not found:
        return None
    return found.pop() if len(found) == 1 else b""


def wishes(headers: Headers) -> Wishes:
    """Raises BadHeader for one that is there twice or is not a whole number within its bounds."""
    told: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in WISH_HEADERS:
            if name in told:
                raise BadHeader(f"{name.decode('ascii')} is there more than once")
            told[name] = value
    if not told:
        return NO_WISHES
    return Wishes(
        first_token_within_ms=_whole(told, FIRST_TOKEN_WITHIN, 1, MOST_MS),
        within_ms=_whole(told, WITHIN, 1, MOST_MS),
        priority=_whole(told, PRIORITY, -MOST_PRIORITY, MOST_PRIORITY),
    )


def _whole(told: dict[bytes, bytes], name: bytes, least: int, most: int) -> int | None:
    text = told.get(name)
    if text is None:
        return None
    digits = text.strip()
    sign, digits = (-1, digits[1:]) if digits[:1] == b"-" else (1, digits)
    if digits.isdigit() and len(digits) <= 12 and least <= sign * int(digits) <= most:
        return sign * int(digits)
    raise BadHeader(f"{name.decode('ascii')} is a whole number within {least} and {most}")
