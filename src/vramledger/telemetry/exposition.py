"""Prometheus' text format 0.0.4 and OpenMetrics 1.0, line by line.

Written here and not taken from prometheus_client: its readers stop at the first line that they do not take (and its two
formats are two readers), where a server that answers with one odd line should still be read and the line be named; a
bounded reader of the lines alone is a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

LONGEST_LINE = 2**16
MOST_LABELS = 200
MOST_LINES = 500_000
MOST_UNREAD = 100

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_.]*|\"[^\"\\]*(?:\\.[^\"\\]*)*\")\s*(=?)\s*")
_QUOTED = re.compile(r"\"([^\"\\]*(?:\\.[^\"\\]*)*)\"\s*(,?)\s*")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9.eE+-]{0,40}|\.[0-9][0-9eE+-]{0,40}|[Ii]nf(?:inity)?|[Nn]a[Nn])")


class Reading(Struct, frozen=True):
    """One line: a metric's name as it stands, its labels, its value. `at_s` is Unix time where the line has one."""

    name: str
    labels: dict[str, str]
    value: float
    at_s: float | None = None


class Exposition(Struct, frozen=True, kw_only=True):
    """All that was read. `unread` are the numbers of lines that are neither a comment nor a reading, at most 100;
    `unread_count` counts them all. `complete` is whether OpenMetrics' end was seen, None in the older format."""

    readings: tuple[Reading, ...]
    unread: tuple[int, ...] = ()
    unread_count: int = 0
    complete: bool | None = None


def parse_exposition(body: bytes) -> Exposition:
    """The readings in an answer of a metrics endpoint. Raises nothing: what is no reading is named by its line."""
    text = body.decode("utf-8", "replace")
    open_metrics = text.rstrip().endswith("# EOF")
    readings: list[Reading] = []
    unread: list[int] = []
    count = 0
    for number, line in _lines(text):
        stripped = line.strip()
        if not stripped or stripped[0] == "#":
            continue
        found = parse_reading(stripped, milliseconds=not open_metrics) if number <= MOST_LINES else None
        if found is not None:
            readings.append(found)
            continue
        count += 1
        if len(unread) < MOST_UNREAD:
            unread.append(number)
    return Exposition(
        readings=tuple(readings),
        unread=tuple(unread),
        unread_count=count,
        complete=True if open_metrics else None,
    )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = number = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        number += 1
        yield number, text[start:end]
        start = end + 1


def parse_reading(line: str, *, milliseconds: bool = True) -> Reading | None:
    """One line without blanks at its ends; None where it is no reading. Exemplars are passed over."""
    if len(line) > LONGEST_LINE:
        return None
    name, at = "", 0
    match = _NAME.match(line)
    if match is not None:
        name, at = match.group(), match.end()
    labels: dict[str, str] = {}
    while at < len(line) and line[at] in " \t":
        at += 1
    if line[at : at + 1] == "{":
        ended = _read_labels(line, at + 1, labels)
        if ended is None:
            return None
        at = ended
    if not name:  # Prometheus 3 writes a name of other characters as the first label's place
        name = labels.pop("", "")
    words = line[at:].partition(" # ")[0].split()
    if not name or not words or len(words) > 2:
        return None
    value, at_s = _number(words[0]), _number(words[1]) if len(words) == 2 else None
    if value is None or (len(words) == 2 and at_s is None):
        return None
    if at_s is not None and milliseconds:
        at_s /= 1000
    return Reading(name, labels, value, at_s)


def _read_labels(line: str, at: int, labels: dict[str, str]) -> int | None:
    """Fill `labels` from the place after "{"; the place after "}", None where they are malformed."""
    for _ in range(MOST_LABELS + 1):
        while at < len(line) and line[at] in " \t,":
            at += 1
        if line[at : at + 1] == "}":
            return at + 1
        key = _LABEL.match(line, at)
        if key is None:
            return None
        name = key.group(1)
        if not key.group(2):
            if name[0] != '"' or "" in labels:
                return None
            labels[""] = _unescaped(name[1:-1])
            at = key.end()
            continue
        quoted = _QUOTED.match(line, key.end())
        if quoted is None:
            return None
        plain = _unescaped(name[1:-1]) if name[0] == '"' else name
        if plain in labels:
            return None
        labels[plain] = _unescaped(quoted.group(1))
        at = quoted.end()
    return None


def _unescaped(text: str) -> str:
    return (
        _ESCAPE.sub(lambda found: _ESCAPED.get(found.group(1), found.group(1)), text)
        if "\\" in text
        else text
    )


def _number(text: str) -> float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None
