"""One completion asked of an OpenAI-compatible server, its stream read as it comes.

The prompt is token ids, so that its length is known to the token; every engine here takes them.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import SourceError
from vramledger.telemetry.web import fetch_body

LONGEST_LINE_BYTES = 1 << 20


class Completion(Struct, frozen=True, kw_only=True):
    """What came back. `output_tokens` and `cached_tokens` are as the server counts them, None where it does not; times are
    seconds since the request was sent. `error` is "" for an answer that ended as it should."""

    prompt_tokens: int
    output_tokens: int | None = None
    cached_tokens: int | None = None
    first_token_s: float | None = None
    status: int = 0
    error: str = ""
    dropped: bool = False


def complete(
    url: str,
    model: str,
    prompt: Sequence[int],
    output_tokens: int,
    *,
    timeout_s: float = 300.0,
    drop: Callable[[int], bool] | None = None,
) -> Completion:
    """Ask and read to the end; with `drop`, which hears how many pieces have come, hang up when it says so."""
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "127.0.0.1", parts.port or 80, timeout=timeout_s
    )
    asked = Completion(prompt_tokens=len(prompt))
    start = time.monotonic()
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            text = response.read(LONGEST_LINE_BYTES).decode("utf-8", "replace")
            return replace(asked, status=response.status, error=text[:300])
        return _read(response, asked, start, drop)
    except (OSError, http.client.HTTPException) as problem:
        return replace(asked, error=f"{type(problem).__name__}: {problem}"[:300])
    finally:
        connection.close()


def _read(
    response: http.client.HTTPResponse,
    asked: Completion,
    start: float,
    drop: Callable[[int], bool] | None,
) -> Completion:
    pieces, first, error, ended = 0, None, "", False
    usage: dict[str, Any] = {}
    while True:
        line = response.readline(LONGEST_LINE_BYTES)
        if not line:
            break
        if not line.startswith(b"data:"):
            continue
        text = line[5:].strip()
        if text == b"[DONE]":
            ended = True
            break
        event = _event(text)
        # An engine may refuse inside an answer that began with 200.
        if "error" in event:
            error = str(event["error"])[:300]
            break
        usage = event.get("usage") or usage
        if event.get("choices"):
            pieces += 1
            first = time.monotonic() - start if first is None else first
            if drop is not None and drop(pieces):
                return replace(
                    asked,
                    first_token_s=first,
                    status=200,
                    dropped=True,
                )
    details = usage.get("prompt_tokens_details") or {}
    return replace(
        asked,
        output_tokens=usage.get("completion_tokens"),
        cached_tokens=details.get("cached_tokens"),
        first_token_s=first,
        status=200,
        error=error or ("" if ended else "the stream ended before it was done"),
    )


def _event(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def served_model(url: str) -> str:
    """The name that the server gives its first model, "" where it does not tell."""
    try:
        answer = _event(fetch_body(f"{url}/v1/models", limit_bytes=LONGEST_LINE_BYTES))
    except SourceError:
        return ""
    listed = answer.get("data")
    first = listed[0] if isinstance(listed, list) and listed else None
    return str(first.get("id", "")) if isinstance(first, dict) else ""
