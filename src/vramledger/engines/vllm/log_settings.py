"""Settings that vLLM prints as Python text: `name=value, …`, `{'name': value, …}` and `Namespace(name=value, …)`.

Read by a scanner of its own that passes once over the text; nothing is evaluated. Values that are no plain
literals (objects, lists) are kept as text, cut at 500 characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite

Setting = str | int | float | bool

LONGEST_TEXT = 128 * 1024
MOST_SETTINGS = 1_000
LONGEST_VALUE = 500
DEEPEST = 64

_NAME = re.compile(r"\s*(['\"]?)([A-Za-z_][A-Za-z0-9_.-]{0,99})\1\s*\Z")
_OPENING, _CLOSING = "([{<", ")]}>"
_ENUM = re.compile(r"<[A-Za-z_]{1,60}\.([A-Za-z0-9_]{1,60}): [^<>]{1,60}>")
_SECRET = re.compile(r"api_key|hf_token|secret|password|credential", re.IGNORECASE)
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:e[+-]?[0-9]{1,3})?")

# Fields inside another setting that decide memory: (setting, field).
_INNER = (
    ("compilation_config", "cudagraph_capture_sizes"),
    ("compilation_config", "max_cudagraph_capture_size"),
    ("compilation_config", "cudagraph_mode"),
    ("compilation_config", "level"),
    ("compilation_config", "mode"),
)


def printed_settings(text: str) -> dict[str, Setting]:
    """The settings of one printed text by name; those that are None and secrets are left out."""
    text = text[:LONGEST_TEXT].strip()
    if text.startswith("Namespace("):
        text = text[len("Namespace(") :]
    text = text.removeprefix("{")
    out: dict[str, Setting] = {}
    for name, raw in _pairs(text):
        if is_secret(name):
            continue
        value = literal(raw)
        if value is not None:
            out[name] = value
        for setting, field in _INNER:
            if setting == name and field not in out:
                inner = dict(_pairs(raw.partition("(")[2] if raw[:1] != "{" else raw[1:])).get(field)
                found = None if inner is None else literal(inner)
                if found is not None:
                    out[field if field not in ("level", "mode") else f"compilation_{field}"] = found
    return out


def is_secret(name: str) -> bool:
    """Whether a setting of that name is nobody's business."""
    return _SECRET.search(name) is not None


def literal(raw: str) -> Setting | None:
    """A value as it is printed: a number, a truth value, an enumeration's name, text in quotes, or what it
    says; None for None."""
    raw = raw.strip()
    if raw in ("None", ""):
        return None
    if raw in ("True", "False", "true", "false"):
        return raw in ("True", "true")
    if _WHOLE.fullmatch(raw):
        return int(raw)
    if _DECIMAL.fullmatch(raw):
        number = float(raw)
        return number if isfinite(number) else raw
    member = _ENUM.fullmatch(raw)
    if member is not None:
        return member.group(1)
    if raw[0] in "'\"" and raw[-1] == raw[0] and len(raw) > 1:
        raw = raw[1:-1]
    return raw[:LONGEST_VALUE]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of a text of pairs, up to the bracket that closes it."""
    count = 0
    for item in _items(text):
        name, raw = _split(item)
        if name:
            count += 1
            if count > MOST_SETTINGS:
                return
            yield name, raw


def _split(item: str) -> tuple[str, str]:
    """Name and value of `name=value` or `'name': value`; the name is empty where there is none."""
    for mark in ("=", ":"):
        name, found, raw = item.partition(mark)
        match = _NAME.match(name) if found else None
        if match is not None:
            return match.group(2), raw.strip()
    return "", ""


def _items(text: str) -> Iterator[str]:
    """The text between commas that are in no brackets and no quotes."""
    start = depth = place = 0
    quote = ""
    while place < len(text):
        letter = text[place]
        if quote:
            if letter == "\\":
                place += 1
            elif letter == quote:
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter in _OPENING:
            depth += 1
            if depth > DEEPEST:
                return
        elif letter in _CLOSING and not (letter == ">" and text[place - 1 : place] in ("-", "=")):
            depth -= 1
            if depth < 0:
                break
        elif letter == "," and not depth:
            yield text[start:place]
            start = place + 1
        place += 1
    yield text[start:place]
