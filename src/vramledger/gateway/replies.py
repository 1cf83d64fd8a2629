"""Answers that the gateway gives itself, worded as OpenAI's API words its errors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from vramledger.gateway.admitter import Decision, PromptTokens, Verdict
from vramledger.gateway.desk import Ticket
from vramledger.units import ceil_div

Headers = list[tuple[bytes, bytes]]

STATUS: Mapping[Verdict, int] = {
    Verdict.REJECT: 429,
    Verdict.UNAVAILABLE: 503,
    Verdict.NEVER_FITS: 400,
}
TYPES: Mapping[int, str] = {
    403: "permission_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Headers
    body: bytes


def error_reply(status: int, code: str, message: str, *, headers: Headers | None = None) -> Reply:
    """`{"error": {message, type, param, code}}` with a stable `code`."""
    return Reply(
        status=status,
        headers=[(b"content-type", b"application/json"), *(headers or [])],
        body=error_body(status, code, message),
    )


def error_body(status: int, code: str, message: str) -> bytes:
    kind = TYPES.get(status, "invalid_request_error")
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def error_event(status: int, code: str, message: str) -> bytes:
    """The same inside an event stream. The blank line first ends an event that was cut."""
    return b"\n\ndata: " + error_body(status, code, message) + b"\n\n"


def refusal(decision: Decision, prompt: PromptTokens | None = None) -> Reply:
    """The answer to a request that was not let in, for whatever its prompt was counted. Retry-After is whole seconds, rounded up."""
    headers: Headers = [(b"x-vramledger-rule", header_value(decision.rule)), *prompt_headers(prompt)]
    if decision.retry_after_ms is not None:
        headers.append((b"retry-after", b"%d" % max(1, ceil_div(decision.retry_after_ms, 1000))))
    return error_reply(
        STATUS[decision.verdict], decision.rule, decision.message or decision.rule, headers=headers
    )


def ticket_headers(ticket: Ticket | None) -> Headers:
    """What an answer says of its admission: the rule, and for those that waited their place, the estimate and the wait."""
    if ticket is None:
        return []
    headers = [
        (b"x-vramledger-rule", header_value(ticket.decision.rule)),
        *prompt_headers(ticket.facts.prompt),
    ]
    if ticket.position is not None:
        headers.append((b"x-vramledger-queue-position", b"%d" % ticket.position))
        if ticket.wait_ms is not None:
            headers.append((b"x-vramledger-queue-estimated-ms", b"%d" % ticket.wait_ms))
        headers.append((b"x-vramledger-queued-ms", b"%d" % ticket.waited_ms))
    return headers


def prompt_headers(prompt: PromptTokens | None) -> Headers:
    """How long its prompt was taken to be, at the most, and by whose count."""
    if prompt is None:
        return []
    told = f"{prompt.tokens}; most={prompt.most_tokens}; by={prompt.source.value}"
    return [(b"x-vramledger-prompt-tokens", told.encode("ascii"))]


def header_value(text: str) -> bytes:
    """Text that cannot end a header: printable ASCII, anything else a question mark."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text).encode("ascii")


def reason_of(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode("ascii")
    except ValueError:
        return b""
