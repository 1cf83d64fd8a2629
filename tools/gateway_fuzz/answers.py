"""What came back on one connection, read strictly, and held against what the engine saw."""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from tools.gateway_fuzz.bodies import CANARY
from tools.gateway_fuzz.engines import SERIAL, Seen
from tools.gateway_fuzz.messages import GUARDED

ERROR = b'{"error":'
OWN_STATUS = frozenset((400, 401, 403, 404, 405, 408, 413, 429, 431))
"""With which the gateway may answer for itself while its engine is well."""
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Unreadable(ValueError):
    """What came is no sequence of answers."""


def answers_in(data: bytes, seen: list[Seen]) -> list[Got]:
    """The answers of a connection that has ended. Raises Unreadable."""
    found = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        if not end:
            raise Unreadable(f"a head without end: {head[:80]!r}")
        line, *fields = head.split(b"\r\n")
        if not line.startswith(b"HTTP/1.1 ") or not line[9:12].isdigit():
            raise Unreadable(f"no status line: {line[:80]!r}")
        status = int(line[9:12])
        if status == 100:
            continue
        headers: dict[str, str] = {}
        for field in fields:
            name, colon, text = field.decode("latin-1").partition(": ")
            if not colon or name.lower() in headers or set(text) & {"\r", "\n", "\0"}:
                raise Unreadable(f"a header is not one, or there twice: {field[:80]!r}")
            headers[name.lower()] = text
        size = int(headers.get("content-length", "0"))
        if "transfer-encoding" in headers:
            raise Unreadable("a transfer coding where the engine had a length")
        serial = headers.get(SERIAL)
        is_bare = seen[int(serial)].method == "HEAD" if serial is not None else not data.startswith(ERROR)
        body, data = (b"", data) if is_bare else (data[:size], data[size:])
        if not is_bare and len(body) < size:
            raise Unreadable(f"an answer of {size} bytes has {len(body)}")
        found.append(Got(status, headers, body))
    return found


def problems_of(answers: list[Got], seen: list[Seen]) -> list[str]:
    """What a client was told that it should not be."""
    problems = []
    before = -1
    for got in answers:
        serial = got.headers.get(SERIAL)
        if serial is not None:
            request = seen[int(serial)]
            if int(serial) <= before:
                problems.append("answers are not in the order of their requests")
            before = int(serial)
            if guarded_word(request.target) is not None:
                problems.append(f"{request.method} {request.target!r} reached the engine for a client")
        elif got.status not in OWN_STATUS:
            problems.append(f"{got.status}: {got.body[:200]!r}")
        elif CANARY.encode() in got.body:
            problems.append("an error repeats the prompt")
        elif got.body and set(json.loads(got.body)["error"]) != {"message", "type", "param", "code"}:
            problems.append(f"no error of OpenAI's form: {got.body[:200]!r}")
    return problems


def engine_problems(seen: list[Seen], authority: str) -> list[str]:
    """What an engine should not have been sent."""
    problems = []
    for request in seen:
        names = [name.lower() for name, _ in request.headers]
        texts = dict(zip(names, (text for _, text in request.headers), strict=True))
        length = texts.get("content-length")
        wrong = [
            request.method not in METHODS and "method",
            not request.target.startswith("/") and "target",
            names.count("host") != 1 and "Host count",
            texts.get("host") != authority and "Host",
            names.count("content-length") > 1 and "two lengths",
            length is not None and length != str(len(request.body)) and "length",
            length is None and request.body and "a body without a length",
            "transfer-encoding" in names and "transfer coding",
            any(name in names for name in ("upgrade", "expect", "te", "trailer", "proxy-connection"))
            and "hop",
            any("vl_" in text and len(text) > 50 for _, text in request.headers) and "a tenant's key",
            b"vl_" in request.body and "a key in a body",
        ]
        problems += [f"{what}: {request.method} {request.target!r}" for what in wrong if what]
    return problems


def guarded_word(target: str) -> str | None:
    """The guarded path that the most lenient of readers might take it for."""
    data = target.encode("latin-1", "replace")
    for _ in range(3):
        data = unquote_to_bytes(data)
    path = data.split(b"?")[0].split(b"#")[0].replace(b"\\", b"/").lower()
    words: list[bytes] = []
    for word in path.split(b"/"):
        plain = word.split(b";")[0].split(b"\0")[0].strip()
        if plain == b"..":
            words = words[:-1]
        elif plain not in (b"", b".", b"v1"):
            words.append(plain)
    first = words[0].decode("latin-1") if words else ""
    return first if first in GUARDED else None
