"""JSON that came from outside, read within bounds.

Strict where the JSON module is lenient: a key that is there twice, NaN, text that is not UTF-8 and values
nested beyond any real config are errors that name the file, the key and the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vramledger.errors import ConfigError, VramledgerError
from vramledger.models.sources.bounded_file import quote, read_whole, shown

CONFIG_LIMIT_BYTES = 64 * 2**20
MAX_DEPTH = 100
MAX_CONTAINERS = 4_000_000
MAX_ITEMS = 16_000_000
MAX_NUMBER_DIGITS = 100

# Published Mamba-2 configs state an open range as [0.0, Infinity].
_MAY_BE_INFINITE = "time_step_limit"


class _Refused:
    """Stands for a number that cannot be kept until its place in the file is known."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _DuplicateKey(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def read_json_object(path: Path, *, limit_bytes: int = CONFIG_LIMIT_BYTES) -> dict[str, Any]:
    """The object a JSON file holds.

    Raises SourceError for a file that cannot be read and ConfigError for one that is too large or no
    strict JSON object.
    """
    return parse_json_object(read_whole(path, limit_bytes, ConfigError), shown(path))


def parse_json_object(data: bytes, where: str, error: type[VramledgerError] = ConfigError) -> dict[str, Any]:
    """The object in `data`; `where` names the file in messages and `error` is the class to raise."""
    containers = data.count(b"{") + data.count(b"[")
    if containers > MAX_CONTAINERS or data.count(b",") > MAX_ITEMS:
        raise error(f"{where} holds more values than any file of its kind", file=where, value=containers)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"{where} is not UTF-8 text (byte {problem.start})", file=where) from None

    refused = False

    def refuse(number: str) -> _Refused:
        nonlocal refused
        refused = True
        return _Refused(number)

    def whole(number: str) -> Any:
        return int(number) if len(number) <= MAX_NUMBER_DIGITS else refuse(number)

    def real(number: str) -> Any:
        value = float(number)
        return refuse(number) if value - value != 0.0 else value

    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_int=whole, parse_float=real, parse_constant=refuse
        )
    except _DuplicateKey as problem:
        raise error(
            f"{where}: the key {quote(problem.key)} is there twice", file=where, key=problem.key
        ) from None
    except json.JSONDecodeError as problem:
        raise error(
            f"{where} is not valid JSON: {problem.msg} (line {problem.lineno}, column {problem.colno})",
            file=where,
            value=problem.pos,
        ) from None
    except RecursionError:
        raise error(f"{where} is nested more than {MAX_DEPTH} deep", file=where) from None

    if not isinstance(value, dict):
        raise error(f"{where} must hold a JSON object, not {quote(value)}", file=where)
    if refused:
        _allow_infinity(value, where, error)
    if containers > MAX_DEPTH or "\\u" in text:
        _check_depth_and_text(value, where, error)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKey(key)
            seen.add(key)
    return out


def _allow_infinity(root: dict[str, Any], where: str, error: type[VramledgerError]) -> None:
    def settle(key: str, value: Any) -> Any:
        if not isinstance(value, _Refused):
            return value
        if value.text == "Infinity" and key.rpartition(".")[2].partition("[")[0] == _MAY_BE_INFINITE:
            return float("inf")
        shown_key = quote(key, 200)[1:-1]
        raise error(
            f"{where}: {shown_key} is {quote(value.text)[1:-1]}, not a number this file may hold",
            file=where,
            key=key,
            value=value.text,
        )

    _replace(root, settle)


def _replace(root: dict[str, Any], settle: Callable[[str, Any], Any]) -> None:
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        path, holder = stack.pop()
        pairs: Iterator[tuple[Any, Any]] = iter(
            list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        )
        for key, value in pairs:
            place = f"{path}[{key}]" if isinstance(holder, list) else f"{path}.{key}" if path else str(key)
            if isinstance(value, dict | list):
                stack.append((place, value))
            else:
                holder[key] = settle(place, value)


def _check_depth_and_text(root: dict[str, Any], where: str, error: type[VramledgerError]) -> None:
    level: list[Any] = [root]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise error(f"{where} is nested more than {MAX_DEPTH} deep", file=where)
        below: list[Any] = []
        for holder in level:
            if isinstance(holder, dict):
                for key in holder:
                    _check_text(key, where, error)
            for value in holder.values() if isinstance(holder, dict) else holder:
                if isinstance(value, str):
                    _check_text(value, where, error)
                elif isinstance(value, dict | list):
                    below.append(value)
        level = below


def _check_text(text: str, where: str, error: type[VramledgerError]) -> None:
    """A lone surrogate cannot be written out again, so it is refused where it comes in."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise error(f"{where} holds text that is not Unicode: {quote(text)}", file=where, value=ascii(text))
