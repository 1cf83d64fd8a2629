"""What a long-running command says, line by line: as text for a person, or as JSON for a collector of logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from vramledger.cli.output import ReaderGone, escaped, write_text
from vramledger.errors import OutputError
from vramledger.report.text import safe


class EventLines:
    """Writes to standard output. A reader that went away is no reason to stop serving."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def say(self, event: str, sentence: str, facts: dict[str, Any] | None = None) -> None:
        """One event with a stable name."""
        self._write("info", event, sentence, facts or {})

    @contextmanager
    def logging(self) -> Iterator[None]:
        """While it is open, warnings of the gateway's modules and of the event loop are lines too."""
        handler = _Handler(self)
        loggers = [logging.getLogger(name) for name in ("vramledger", "asyncio")]
        before = [logger.propagate for logger in loggers]
        for logger in loggers:
            logger.addHandler(handler)
            logger.propagate = False
        try:
            yield
        finally:
            for logger, propagate in zip(loggers, before, strict=True):
                logger.removeHandler(handler)
                logger.propagate = propagate

    def _write(self, level: str, event: str, sentence: str, facts: dict[str, Any]) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            line = json.dumps({"time": time, "level": level, "event": event, "message": sentence, **facts})
            text = escaped(line)
        else:
            mark = "" if level == "info" else f"{level}: "
            text = f"{time} {mark}{safe(' '.join(sentence.split()))}"
        with suppress(OutputError, ReaderGone):
            write_text(text + "\n")


class _Handler(logging.Handler):
    def __init__(self, lines: EventLines) -> None:
        super().__init__(level=logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """The message, and of an exception its kind and the places that it came through: its own text may hold what a client sent."""
        facts: dict[str, Any] = {"logger": record.name}
        if record.exc_info is not None and record.exc_info[0] is not None:
            facts["exception"] = record.exc_info[0].__name__
            facts["places"] = _places(record)
        sentence = record.getMessage()
        if "exception" in facts:
            sentence += f" ({facts['exception']} at {' < '.join(facts['places'])})"
        self._lines._write(record.levelname.lower(), "log", sentence, facts)


def _places(record: logging.LogRecord) -> list[str]:
    places = []
    trace = record.exc_info[2] if record.exc_info is not None else None
    while trace is not None:
        places.append(f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}")
        trace = trace.tb_next
    return places[-6:][::-1]
