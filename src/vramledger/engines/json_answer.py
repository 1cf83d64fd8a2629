"""Bounded reading of an engine's JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vramledger.errors import InputError
from vramledger.ledger import ByteRange

LONGEST_ANSWER = 16 * 1024 * 1024
LONGEST_TEXT = 400


def json_answer(body: bytes, source: str, *, kind: type, engine: str) -> Any:
    """The value of a JSON body of this kind (dict or list). Raises InputError for anything else."""
    wrong = f"{source} is no answer of {engine}: "
    if len(body) > LONGEST_ANSWER:
        raise InputError(
            f"{wrong}{len(body):,} bytes, more than {LONGEST_ANSWER:,}", file=source, reason="too long"
        )
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise InputError(f"{wrong}{problem}", file=source, reason=str(problem)) from None
    if not isinstance(value, kind):
        raise InputError(
            f"{wrong}a JSON {type(value).__name__} where a {kind.__name__} is expected", file=source, reason="other kind"
        )  # fmt: skip
    return value


def scalars(answer: Mapping[str, Any]) -> tuple[tuple[str, str | int | float | bool], ...]:
    """Values of an answer that are plain, lists of them as text; nothing and long texts are left out."""
    found: list[tuple[str, str | int | float | bool]] = []
    for name, value in answer.items():
        plain = value
        if isinstance(value, list) and len(value) <= 200 and all(isinstance(item, int) for item in value):
            plain = str(value)
        if isinstance(plain, str | int | float | bool) and not (
            isinstance(plain, str) and len(plain) > LONGEST_TEXT
        ):
            found.append((name, plain))
    return tuple(found)


def count(value: object) -> int | None:
    """A whole number that is not negative; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def text(value: object) -> str | None:
    return value if isinstance(value, str) and value and len(value) <= LONGEST_TEXT else None


def rounded(value: object, unit_bytes: int, decimals: int) -> ByteRange | None:
    """A number that was rounded to so many decimals of a unit, as what it may stand for; None for what is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        return None
    expected, half = round(value * unit_bytes), round(unit_bytes / (2 * 10**decimals))
    return ByteRange(max(expected - half, 0), expected, expected + half)
