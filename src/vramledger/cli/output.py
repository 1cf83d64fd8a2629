"""Where pages, documents and errors go."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO, cast

from vramledger.errors import OutputError
from vramledger.report.text import NARROWEST, Line, render, safe

if TYPE_CHECKING:
    import msgspec

    from vramledger.report.error_document import ErrorCode

PLAIN_WIDTH = 80
WIDEST = 120
_OBEYED = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class ReaderGone(Exception):
    """Whoever read our output closed it. Not an OSError, for which click has an exit code of its own."""


def page_width() -> int:
    """Columns of the page: the terminal's between 60 and 120, 80 where there is none; COLUMNS decides if set."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        columns = int(stated)
    elif sys.stdout is not None and sys.stdout.isatty():
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    else:
        return PLAIN_WIDTH
    return min(max(columns, NARROWEST), WIDEST)


def write_page(lines: Iterable[Line]) -> None:
    """Print a page, in colour where a terminal shows it and NO_COLOR is not set."""
    colour = (
        sys.stdout is not None
        and sys.stdout.isatty()
        and "NO_COLOR" not in os.environ
        and os.environ.get("TERM") != "dumb"
    )
    _write(render(lines, colour=colour), sys.stdout)


def write_text(text: str) -> None:
    """Print text as it is."""
    _write(text, sys.stdout)


def write_document(document: msgspec.Struct) -> None:
    """Print a published document as JSON."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    _write(escaped(text) + "\n", sys.stdout)


def escaped(text: str) -> str:
    """JSON with escapes for what JSON allows raw and a terminal obeys: C1 controls, and marks that turn the direction."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write_error(code: str, message: str, facts: Mapping[str, object], *, as_json: bool) -> None:
    """One message on stderr; with `as_json` also the published error on stdout, else what headers still say."""
    write_message(message)
    headers = facts.get("headers")
    if as_json:
        from vramledger.report.error_document import error_document

        write_document(error_document(cast("ErrorCode", code), message, facts))
    elif headers is not None:
        from vramledger.models.headers.summary import HeaderSummary
        from vramledger.report.headers_report import header_lines

        if isinstance(headers, HeaderSummary):
            write_page(header_lines(headers, width=page_width()))


def write_message(message: str) -> None:
    """One line on stderr, where that is possible."""
    try:
        _write(f"vramledger: {safe(' '.join(message.split()))}\n", sys.stderr)
    except (OutputError, ReaderGone):
        abandon(sys.stderr)


def write_error_page(lines: Iterable[Line]) -> None:
    """A page beneath a message on stderr, without colour, where that is possible."""
    try:
        _write(render(lines, colour=False), sys.stderr)
    except (OutputError, ReaderGone):
        abandon(sys.stderr)


def abandon(stream: TextIO | None) -> None:
    """Send what is still buffered nowhere; writing it once more would fail when the interpreter closes the stream."""
    if stream is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write(text: str, stream: TextIO | None) -> None:
    """Characters that the stream's encoding lacks are escaped instead of failing.

    Raises ReaderGone for a closed pipe, OutputError for whatever else cannot be written to.
    """
    if stream is None:
        raise OutputError("it is closed")
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as problem:
        raise OutputError(problem.strerror or str(problem)) from None
