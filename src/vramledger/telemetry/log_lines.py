"""From the bytes of a line to what its printer said: text without prefixes, time, level, rank, process, container."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from vramledger.observation import Place
from vramledger.telemetry.log_prefixes import DATED, ZONED, Prefix, peel, without_ansi
from vramledger.telemetry.log_times import full_time

LONGEST_LINE_BYTES = 128 * 1024
MOST_WRAPPERS = 4
MOST_PARTS = 1_000

_MESSAGES = ("message", "msg", "log", "event", "MESSAGE", "line", "textPayload", "body", "text")
_NESTED = ("fields", "jsonPayload", "record")
_TIMES = ("time", "timestamp", "ts", "@timestamp", "date", "asctime", "datetime")
_LEVEL_KEYS = ("level", "levelname", "severity", "lvl", "log_level")
_CONTAINERS = ("container_name", "pod_name", "pod", "_HOSTNAME")
_ISO = re.compile(
    r"\s*(\d{4})-(\d\d)-(\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\d{0,9} ?(Z|UTC|[+-]\d\d:?\d\d)?"
)


class LogLine(Struct, frozen=True, kw_only=True):
    """One line as its printer meant it.

    `at_s` is Unix time, `elapsed_s` seconds since the printer (or the machine) started where that is what it prints.
    `process` is the printer's own label, `container` what a collector says of where it came from. `own` tells that the
    printer itself put a prefix before the text: a line without one continues what was printed before.
    """

    text: str
    place: Place
    at_s: float | None = None
    elapsed_s: float | None = None
    level: str | None = None
    rank: int | None = None
    process: str | None = None
    container: str | None = None
    own: bool = False

    @property
    def printer(self) -> tuple[str | None, str | None, int | None]:
        """Who printed it."""
        return self.container, self.process, self.rank


def read_lines(raw: bytes, *, place: Place, reference_s: float) -> list[LogLine]:
    """What one line of a log says: one LogLine, or several where a collector wrote a message of several lines as one.

    `reference_s` is when the log was last written, for times without a year.
    """
    text = raw.decode("utf-8", "replace").rstrip("\r\n").replace("\0", "")
    return [
        LogLine(
            text=told.rstrip(),
            place=place,
            at_s=prefix.at_s,
            elapsed_s=prefix.elapsed_s,
            level=prefix.level,
            rank=prefix.rank,
            process=prefix.process,
            container=prefix.container,
            own=prefix.own,
        )
        for told, prefix in _unwrapped(text, Prefix(reference_s), MOST_WRAPPERS)
    ]


def _unwrapped(text: str, prefix: Prefix, depth: int) -> Iterator[tuple[str, Prefix]]:
    text = peel(without_ansi(text), prefix)
    if depth and text[:1] == "{" and text.rstrip()[-1:] == "}":
        document = _document(text)
        message = None if document is None else _message(document)
        if document is not None and message is not None:
            _tell(prefix, document)
            for part in message.rstrip("\n").split("\n", MOST_PARTS)[:MOST_PARTS]:
                yield from _unwrapped(part, prefix.copy(), depth - 1)
            return
    yield text, prefix


def _document(text: str) -> Mapping[str, object] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return found if isinstance(found, dict) else None


def _message(document: Mapping[str, object]) -> str | None:
    for key in _MESSAGES:
        found = document.get(key)
        if isinstance(found, str):
            return found
        if key == "MESSAGE" and isinstance(found, list):  # journald's form of what is not plain text
            octets = [number for number in found if isinstance(number, int) and 0 <= number < 256]
            return bytes(octets).decode("utf-8", "replace")
    for key in _NESTED:
        inner = document.get(key)
        if isinstance(inner, dict):
            return next((inner[name] for name in _MESSAGES if isinstance(inner.get(name), str)), None)
    return None


def _tell(prefix: Prefix, document: Mapping[str, object]) -> None:
    for key in _TIMES:
        if key in document:
            _take_time(prefix, document[key])
            break
    micros = document.get("__REALTIME_TIMESTAMP")
    if isinstance(micros, str) and micros.isdecimal() and len(micros) < 20:
        prefix.take_time(int(micros) / 1e6, ZONED)
    for key in _LEVEL_KEYS:
        level = document.get(key)
        if isinstance(level, str) and 0 < len(level) <= 16:
            prefix.take_level(level)
            break
    rank = document.get("rank")
    if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 1_000_000:
        prefix.take_rank(rank)
    places = document.get("kubernetes") or document.get("labels") or document
    if isinstance(places, dict):
        name = next((places[key] for key in _CONTAINERS if isinstance(places.get(key), str)), None)
        if name is not None:
            prefix.take_container(name[:200])


def _take_time(prefix: Prefix, value: object) -> None:
    if isinstance(value, str):
        match = _ISO.match(value)
        if match is not None:
            year, month, day, clock, zone = match.groups()
            prefix.take_time(full_time(year, month, day, clock, zone or ""), ZONED if zone else DATED)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) < 1e18 else 0.0
        for _ in range(3):  # milliseconds, microseconds, nanoseconds
            if seconds > 1e11:
                seconds /= 1e3
        if 0 < seconds < 1e11:
            prefix.take_time(seconds, ZONED)
