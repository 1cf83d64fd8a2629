"""An engine that ended, as a person reads it: the diagnosis of its log, or the end of the log where none is found."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.release.autopsy import Autopsy
from vramledger.report.diagnosis_text import diagnosis_lines
from vramledger.report.text import Line, line, wrapped

LAST_LINES = 12


def autopsy_lines(found: Autopsy | None, *, tail: str, unread: str = "", width: int = 80) -> Iterator[Line]:
    """What failed; where the log tells of no failure whose class is known, or could not be read (`unread`), the exceptions that it
    names, else its last lines."""
    yield line()
    if found is not None and found.failures:
        yield from diagnosis_lines(found.failures, sources=found.sources, width=width)
    if found is not None and found.is_told:
        return
    if found is not None and found.exceptions:
        yield from wrapped("exceptions that the log names, the first first", width, rest="  ", style="head")
        shown = found.exceptions
    else:
        why = f"the log cannot be diagnosed: {unread}" if unread else "its log tells of no failure of memory"
        shown = tuple(text for text in tail.splitlines() if text.strip())[-LAST_LINES:]
        yield from wrapped(f"{why}; it ends with" if shown else f"{why} and is empty", width, rest="  ")
    for text in shown:
        yield from wrapped(text, width, first="  ", rest="    ", style="dim")
