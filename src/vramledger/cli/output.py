"""Where pages, documents and errors go."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TextIO

from vramledger.report.text import NARROWEST, Line, render, safe

if TYPE_CHECKING:
    import msgspec

PLAIN_WIDTH = 80
WIDEST = 120


class ReaderGone(Exception):
    """Whoever read our output closed it. Not an OSError, for which click has an exit code of its own."""


def page_width() -> int:
    """Columns of the page: the terminal's between 60 and 120, 80 where there is none; COLUMNS decides if set."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        columns = int(stated)
    elif sys.stdout.isatty():
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    else:
        return PLAIN_WIDTH
    return min(max(columns, NARROWEST), WIDEST)


def write_page(lines: Iterable[Line]) -> None:
    """Print a page, in colour where a terminal shows it and NO_COLOR is not set."""
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    _write(render(lines, colour=colour), sys.stdout)


def write_text(text: str) -> None:
    """Print text as it is."""
    _write(text, sys.stdout)


def write_document(document: msgspec.Struct) -> None:
    """Print a published document as JSON."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    _write(text + "\n", sys.stdout)


def write_error(code: str, message: str, facts: Mapping[str, object], *, as_json: bool) -> None:
    """One message on stderr; with `as_json` also {"error": {code, message, facts}} on stdout, else what
    headers still say."""
    _write(f"vramledger: {safe(' '.join(message.split()))}\n", sys.stderr)
    headers = facts.get("headers")
    if as_json:
        import json

        body = {"error": {"code": code, "message": message, "facts": dict(facts)}}
        _write(json.dumps(body, indent=2, default=_plain) + "\n", sys.stdout)
    elif headers is not None:
        from vramledger.report.headers_report import HeaderFacts, header_lines

        if isinstance(headers, HeaderFacts):
            write_page(header_lines(headers, width=page_width()))


def _plain(value: object) -> object:
    from vramledger.report.headers_report import HeaderFacts

    return value.as_facts() if isinstance(value, HeaderFacts) else str(value)


def _write(text: str, stream: TextIO) -> None:
    """Characters that the stream's encoding lacks are escaped instead of failing."""
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        raise ReaderGone from None
