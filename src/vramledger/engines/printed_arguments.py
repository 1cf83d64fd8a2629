"""Arguments as Python prints them: `ServerArgs(a='x', b=None, c=<Kind.auto: 'auto'>)`, `{'a': 'x', 'b': [1, 2]}`.

Read in one pass over the text without evaluating anything: a log is a stranger's text. Nested values stay text.
"""

from __future__ import annotations

import re
from math import isfinite

LONGEST_TEXT = 262_144
LONGEST_VALUE = 400
MOST_ARGUMENTS = 2_000

Scalar = str | int | float | bool

_KEY = re.compile(r"""\s*(?:([A-Za-z_]\w{0,99})=|'([^'\\]{1,100})':\s?|"([^"\\]{1,100})":\s?)""")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,30})(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,3})?")
_ENUM = re.compile(r"<[\w.]{1,100}: ([^>]{1,200})>")
_MARKS = re.compile(r"""['"()\[\]{},]""")
_OPENING, _CLOSING = "([{", ")]}"


def printed_arguments(text: str) -> dict[str, Scalar | None]:
    """Names and values of the first call or dictionary in `text`, None for None.

    Numbers, booleans and quoted texts are read; anything else stays as printed, and what is longer than 400 characters is
    left out. A text that ends in the middle gives what stood before. Empty for a text that begins otherwise.
    """
    begin = min((at for at in (text.find("("), text.find("{")) if at >= 0), default=-1)
    found: dict[str, Scalar | None] = {}
    if begin < 0:
        return found
    position, text = begin + 1, text[:LONGEST_TEXT]
    while len(found) < MOST_ARGUMENTS:
        key = _KEY.match(text, position)
        if key is None:
            break
        end = _value_end(text, key.end())
        if end is None:
            break
        raw = text[key.end() : end].strip()
        if len(raw) <= LONGEST_VALUE:
            found[key.group(1) or key.group(2) or key.group(3)] = scalar(raw)
        if text[end] != ",":
            break
        position = end + 1
    return found


def scalar(raw: str) -> Scalar | None:
    """One printed value."""
    enum = _ENUM.fullmatch(raw)
    if enum is not None:
        raw = enum.group(1)
    if raw == "None":
        return None
    if raw in ("True", "False"):
        return raw == "True"
    if len(raw) >= 2 and raw[0] == raw[-1] and raw[0] in "'\"":
        return raw[1:-1]
    if _NUMBER.fullmatch(raw):
        number = float(raw)
        if raw.lstrip("+-").isdigit():
            return int(raw)
        return number if isfinite(number) else raw
    return raw


def _value_end(text: str, position: int) -> int | None:
    """Where a value ends: the comma or bracket after it at its own depth; None where the text ends first."""
    depth = 0
    while True:
        mark = _MARKS.search(text, position)
        if mark is None:
            return None
        sign, position = mark.group(), mark.end()
        if sign in "'\"":
            closed = _string_end(text, sign, position)
            if closed is None:
                return None
            position = closed
        elif sign in _OPENING:
            depth += 1
        elif depth == 0:
            return mark.start()
        elif sign in _CLOSING:
            depth -= 1


def _string_end(text: str, quote: str, position: int) -> int | None:
    while True:
        end = text.find(quote, position)
        if end < 0:
            return None
        escapes = end
        while escapes > position and text[escapes - 1] == "\\":
            escapes -= 1
        if (end - escapes) % 2 == 0:
            return end + 1
        position = end + 1
