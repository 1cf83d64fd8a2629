"""Expressions that say which change is too much: "kv_tokens < -2%", "weights > +1GiB", "kv_format != same".

A name of a quantity, an operator, and a change: per cent of what was before, or an amount in the quantity's unit. `==
same` and `!= same` ask whether there is a change at all, and are what texts can be asked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from fractions import Fraction

from msgspec import Struct

from vramledger.errors import FlagError
from vramledger.manifest.quantities import Quantity, Unit, Value
from vramledger.units import GIB, KIB, MIB, TIB

MAX_CHARACTERS = 200
_OPERATORS: Mapping[str, Callable[[Fraction, Fraction], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_SAMENESS = ("==", "!=")
_SIZES = {
    "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_DIGITS = frozenset("0123456789.")


class Threshold(Struct, frozen=True, kw_only=True):
    """One expression as it is meant. `limit` is an amount in the unit, or per cent; None asks for sameness."""

    text: str
    name: str
    operator: str
    limit: Fraction | None
    is_percent: bool = False
    unit: Unit = Unit.TEXT


class Outcome(StrEnum):
    TRIPPED = "tripped"
    HELD = "held"
    UNTOLD = "untold"


class Judged(Struct, frozen=True, kw_only=True):
    """A threshold and what became of it; `why` says by which figures."""

    text: str
    outcome: Outcome
    why: str


def parse_threshold(text: str, known: Mapping[str, Quantity]) -> Threshold:
    """The expression in `text` over the quantities that are `known`.

    Raises FlagError that names the place where it is wrong: no such quantity (with the nearest), no operator, an amount
    that is none, a unit that is not the quantity's.
    """
    if len(text) > MAX_CHARACTERS:
        raise FlagError(
            f"--fail-if has {len(text)} characters, more than {MAX_CHARACTERS}",
            flag="fail_if",
            value=text[:80],
        )
    at = _blanks(text, 0)
    end = _run(text, at, _NAME)
    name = text[at:end]
    if not name:
        raise _wrong(text, at, "expected the name of a quantity")
    quantity = known.get(name)
    if quantity is None:
        raise _wrong(text, at, f"no quantity {name!r}{_near(name, known)}; --list-quantities has them")
    at = _blanks(text, end)
    found = next((sign for sign in (*_OPERATORS, *_SAMENESS) if text.startswith(sign, at)), None)
    if found is None:
        raise _wrong(text, at, "expected <, <=, >, >=, == or !=")
    at = _blanks(text, at + len(found))
    rest = text[at:].rstrip()
    if found in _SAMENESS:
        if rest != "same":
            raise _wrong(
                text, at, f"after {found} only 'same' is understood; for an amount use <, <=, > or >="
            )
        return Threshold(text=text.strip(), name=name, operator=found, limit=None)
    if quantity.unit is Unit.TEXT:
        raise _wrong(text, at, f"{name} is a text, which can only be asked for == same or != same")
    limit, is_percent = _amount(text, at, quantity)
    return Threshold(
        text=text.strip(), name=name, operator=found, limit=limit, is_percent=is_percent, unit=quantity.unit
    )


def judge(threshold: Threshold, before: Value, after: Value) -> Judged:
    """Whether the change from `before` to `after` is the one that the threshold speaks of. UNTOLD where a side is not
    known: that is no pass."""
    if before is None or after is None:
        side = (
            "either side"
            if before is None and after is None
            else "the first"
            if before is None
            else "the second"
        )
        return Judged(
            text=threshold.text, outcome=Outcome.UNTOLD, why=f"{threshold.name} is not known on {side}"
        )
    if threshold.limit is None:
        tripped = (before == after) is (threshold.operator == "==")
        return _judged(threshold, tripped, f"{before} before, {after} after")
    if isinstance(before, str) or isinstance(after, str):
        return Judged(text=threshold.text, outcome=Outcome.UNTOLD, why=f"{threshold.name} is no number")
    delta = Fraction(after) - Fraction(before)
    compare = _OPERATORS[threshold.operator]
    if not threshold.is_percent:
        changed = f"{int(delta):+,}" if delta.denominator == 1 else f"{float(delta):+,.10g}"
        return _judged(
            threshold, compare(delta, threshold.limit), f"changed by {changed}{_counted(threshold)}"
        )
    if before == 0:
        if delta == 0:
            return _judged(threshold, compare(Fraction(0), threshold.limit), "0 before and after")
        # From nothing to something is more than any per cent.
        tripped = threshold.operator.startswith(">") is (delta > 0)
        return _judged(threshold, tripped, f"0 before, {after:,}{_counted(threshold)} after")
    percent = delta * 100 / abs(Fraction(before))
    return _judged(threshold, compare(percent, threshold.limit), f"changed by {float(percent):+.4g}%")


def _counted(threshold: Threshold) -> str:
    return "" if threshold.unit in (Unit.COUNT, Unit.TEXT) else f" {threshold.unit.value}"


def _judged(threshold: Threshold, tripped: bool, why: str) -> Judged:
    return Judged(text=threshold.text, outcome=Outcome.TRIPPED if tripped else Outcome.HELD, why=why)


def _amount(text: str, at: int, quantity: Quantity) -> tuple[Fraction, bool]:
    start = at
    sign = 1
    if text[at : at + 1] in ("+", "-"):
        sign = -1 if text[at] == "-" else 1
        at += 1
    end = _run(text, at, _DIGITS)
    digits = text[at:end]
    if not digits or digits.count(".") > 1 or digits == ".":
        raise _wrong(text, start, f"expected an amount such as {_example(quantity.unit)}")
    amount = sign * Fraction(digits if digits[0] != "." else "0" + digits)
    at = _blanks(text, end)
    unit = text[at:].rstrip()
    if unit == "%":
        return amount, True
    if quantity.unit is Unit.BYTES:
        factor = _SIZES.get(unit.lower())
        if factor is None and not (unit == "" and amount == 0):
            raise _wrong(text, at, f"{quantity.name} is in bytes: expected B, KiB, MiB, GiB, MB, GB or %")
        return amount * (factor or 1), False
    if unit not in ("", quantity.unit.value):
        raise _wrong(text, at, f"{quantity.name} is in {quantity.unit.value}: expected no unit, or %")
    return amount, False


def _example(unit: Unit) -> str:
    return "+1GiB or -2%" if unit is Unit.BYTES else "-1000 or -2%"


def _blanks(text: str, at: int) -> int:
    return _run(text, at, frozenset(" \t"))


def _run(text: str, at: int, characters: Collection[str]) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _near(name: str, known: Mapping[str, Quantity]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=2)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _wrong(text: str, at: int, problem: str) -> FlagError:
    return FlagError(
        f"--fail-if {text!r}, column {at + 1}: {problem}", flag="fail_if", value=text, column=at + 1
    )
