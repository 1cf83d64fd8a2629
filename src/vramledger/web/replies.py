"""Bodies that are read, bounded, and answers that are written."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from vramledger.errors import InputError

LARGEST_ASK_BYTES = 1_000_000
_Asked = TypeVar("_Asked")


async def asked(request: Request, kind: type[_Asked]) -> _Asked:
    """What a request's body asks. Raises InputError for what is no such question, or too large to be one."""
    parts = []
    size = 0
    with suppress(ClientDisconnect):
        async for chunk in request.stream():
            size += len(chunk)
            if size > LARGEST_ASK_BYTES:
                raise InputError(f"a question of more than {LARGEST_ASK_BYTES:,} bytes")
            parts.append(chunk)
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise InputError(f"this is no question: {problem}") from None


def as_line(value: object) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(value) + b"\n"


def answer(value: object, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(
        msgspec.json.encode(value),
        status,
        media_type="application/json",
        headers={"cache-control": "no-store"},
    )


def document_in(text: bytes) -> msgspec.Raw | None:
    """What a command printed, on one line; None where that is no JSON."""
    with suppress(msgspec.DecodeError):
        return msgspec.Raw(msgspec.json.format(text, indent=-1)) if text.strip() else None
    return None


def said(text: str) -> str:
    """What a command said beside its answer, as one sentence."""
    # Of an option that is wrong the usage comes first, which the page has no use for.
    told = text.rpartition("\nError: ")[2]
    return " ".join(part.removeprefix("vramledger: ") for part in told.splitlines() if part.strip())
