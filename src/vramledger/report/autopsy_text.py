"""An engine that ended, as a person reads it: the diagnosis of its log, or the end of the log where none is found."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.release.autopsy import Autopsy
from vramledger.report.diagnosis_text import diagnosis_lines
from vramledger.report.text import Line, line, wrapped

LAST_LINES = 12


def autopsy_lines(found: Autopsy | None, *, tail: str, unread: str = "", width: int = 80) -> Iterator[Line]:
    """What failed; where the log tells of no failure that is known, or could not be read (`unread`), its last lines."""
    yield line()
    if found is not None and found.failures:
        yield from diagnosis_lines(found.failures, sources=found.sources, width=width)
        return
    why = f"the log cannot be diagnosed: {unread}" if unread else "its log tells of no failure of memory"
    last = [text for text in tail.splitlines() if text.strip()][-LAST_LINES:]
    yield from wrapped(f"{why}; it ends with" if last else f"{why} and is empty", width, rest="  ")
    for text in last:
        yield from wrapped(text, width, first="  ", rest="    ", style="dim")
