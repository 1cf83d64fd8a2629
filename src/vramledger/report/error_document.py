"""The published error: what a command writes instead of its document when it is asked for JSON and cannot answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SCHEMA_VERSION, SchemaVersion
from vramledger.models.headers.summary import HeaderSummary
from vramledger.report.headers_report import header_facts

ErrorCode = Literal[
    "usage",
    "input",
    "config",
    "header",
    "flag",
    "device",
    "unknown-architecture",
    "unknown-format",
    "source",
    "output",
    "engine",
]


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, for a person and for a program."""

    code: Annotated[ErrorCode, Meta(description="Stable; what kind of error it is.")]
    message: Annotated[str, Meta(description="One sentence that names the file, the key and the value.")]
    facts: Annotated[
        dict[str, Any],
        Meta(
            description="The values of the message by name (file, key, value, flag, closest, ...); `headers` is what "
            "the checkpoint's headers or index still say where its architecture or format has no description."
        ),
    ]


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An error. Commands exit with 2 (wrong input), 3 (unknown), 4 (unreadable source) or 74 (output) along with it."""

    schema_version: SchemaVersion
    kind: Literal["error"]
    error: ErrorBody


def error_document(code: ErrorCode, message: str, facts: Mapping[str, object]) -> ErrorDocument:
    """The error as it is published; facts that JSON has no value for are written as text."""
    plain = {name: _plain(value) for name, value in facts.items()}
    return ErrorDocument(
        schema_version=SCHEMA_VERSION,
        kind="error",
        error=ErrorBody(code=code, message=_unicode(message), facts=plain),
    )


def _plain(value: object) -> object:
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) < 2**63 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return _unicode(value)
        case HeaderSummary():
            return _plain(header_facts(value))
        case Mapping():
            return {_unicode(str(name)): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return _unicode(str(value))


def _unicode(text: str) -> str:
    """Half a surrogate pair, as an undecodable argument leaves, is escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
