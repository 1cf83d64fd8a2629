"""One text for one JSON value, and its digest.

The JSON Canonicalization Scheme (RFC 8785): no blanks, keys in the order of their UTF-16 code units, strings with the
shortest escapes, numbers as ECMAScript writes doubles. Whole numbers outside +-(2^53 - 1), which a double cannot tell
apart, are refused instead of rounded.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

LARGEST_WHOLE = 2**53 - 1
DIGEST = "digest"


def canonical(value: Any) -> bytes:
    """The canonical text of a JSON value (dict, list, tuple, str, int, float, bool, None).

    Raises ValueError for a number that has none (NaN, an infinity, a whole number beyond 2^53 - 1), for half a surrogate
    pair and for any other type.
    """
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode("utf-8")


def content_digest(document: Mapping[str, Any]) -> str:
    """ "sha256:" and the hash of the document's canonical text without its `digest`. Raises ValueError as `canonical`."""
    content = {name: value for name, value in document.items() if name != DIGEST}
    return "sha256:" + hashlib.sha256(canonical(content)).hexdigest()


def _write(value: Any, out: list[str]) -> None:
    kind = type(value)
    if kind is str:
        out.append(_string(value))
    elif kind is int:
        out.append(_whole(value))
    elif kind is float:
        # Up to 1e21 a double is written as a whole number, and read back as one.
        is_whole = value.is_integer() and abs(value) < 1e21
        out.append(_whole(int(value)) if is_whole else number_text(value))
    elif value is None:
        out.append("null")
    elif kind is bool:
        out.append("true" if value else "false")
    elif kind is dict:
        before = "{"
        for name in sorted(value, key=_utf16):
            out.append(before)
            out.append(_string(name))
            out.append(":")
            _write(value[name], out)
            before = ","
        out.append("}" if value else "{}")
    elif kind is list or kind is tuple:
        before = "["
        for item in value:
            out.append(before)
            _write(item, out)
            before = ","
        out.append("]" if value else "[]")
    else:
        raise ValueError(f"{kind.__name__} is no JSON value")


def _whole(value: int) -> str:
    if abs(value) > LARGEST_WHOLE:
        raise ValueError(
            f"a whole number of {value.bit_length()} bits has no canonical form; 2^53 - 1 is the largest"
        )
    return str(value)


def _utf16(name: Any) -> bytes:
    if not isinstance(name, str):
        raise ValueError(f"a key must be text, not {type(name).__name__}")
    return name.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> str:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("text with half a surrogate pair has no canonical form")
    return json.dumps(text, ensure_ascii=False)


def number_text(value: float) -> str:
    """A double as ECMAScript's Number::toString writes it: the shortest digits that come back to it, 1.0 as "1",
    minus zero as "0", exponents from 1e21 and below 1e-6. Raises ValueError for NaN and infinities."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no JSON number")
    if value == 0:
        return "0"
    sign, digits, point = _decimal(value)
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = "." + digits[1:] if count > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"


def _decimal(value: float) -> tuple[str, str, int]:
    """Sign, shortest digits and where the point stands: 0.digits x 10^point."""
    text = repr(value)
    sign = "-" if text[0] == "-" else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    return sign, stripped.rstrip("0"), point - (len(digits) - len(stripped))
