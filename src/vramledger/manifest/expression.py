"""Expressions over quantities, as a person writes them.

A threshold says which change is too much: "kv_tokens < -2%", "weights > +1GiB", "kv_format != same": a name, an operator, and a change,
per cent of what was before or an amount in the quantity's unit. `== same` and `!= same` ask whether there is a change at all, and are
what texts can be asked. A requirement says what a release must keep by itself: "headroom >= 1GiB", "ttft_p99_s <= 2", "kv_format == fp8".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Any

from msgspec import Struct

from vramledger.errors import FlagError
from vramledger.manifest.quantity import SETTINGS, Group, Quantity, Unit
from vramledger.units import GIB, KIB, MIB, TIB

MAX_CHARACTERS = 200
OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
SAMENESS = ("==", "!=")
_SIZES = {
    "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_DIGITS = frozenset("0123456789.")
_BLANKS = frozenset(" \t")


class Threshold(Struct, frozen=True, kw_only=True):
    """One change as it is meant. `limit` is an amount in the unit, or per cent; None asks for sameness."""

    text: str
    name: str
    operator: str
    limit: Fraction | None
    is_percent: bool = False
    unit: Unit = Unit.TEXT


class Requirement(Struct, frozen=True, kw_only=True):
    """One requirement as it is meant: the quantity itself against `limit`, a text where the quantity is one."""

    text: str
    name: str
    operator: str
    limit: Fraction | str
    unit: Unit = Unit.TEXT


def parse_threshold(
    text: str,
    known: Mapping[str, Quantity],
    *,
    asked: str = "--fail-if",
    settings_may_lack: bool = False,
) -> Threshold:
    """The change in `text` over the quantities that are `known`; `asked` names where it was written. With `settings_may_lack` a setting
    that no document has is one that is not set, and no slip of the pen.

    Raises FlagError that names the place where it is wrong: no such quantity (with the nearest), no operator, an amount
    that is none, a unit that is not the quantity's.
    """
    reader = _Reader(text, asked)
    quantity = reader.quantity(known, settings_may_lack=settings_may_lack)
    sign = reader.operator()
    if sign in SAMENESS:
        if reader.rest() != "same":
            raise reader.wrong(f"after {sign} only 'same' is understood; for an amount use <, <=, > or >=")
        return Threshold(text=text.strip(), name=quantity.name, operator=sign, limit=None)
    if quantity.unit is Unit.TEXT:
        raise reader.wrong(f"{quantity.name} is a text, which can only be asked for == same or != same")
    limit, is_percent = reader.amount(quantity)
    return Threshold(
        text=text.strip(),
        name=quantity.name,
        operator=sign,
        limit=limit,
        is_percent=is_percent,
        unit=quantity.unit,
    )


def parse_requirement(text: str, known: Mapping[str, Quantity], *, asked: str = "keep") -> Requirement:
    """The requirement in `text` over the quantities that are `known`; `asked` names where it was written. A setting that no document
    has is one that is not set. Raises FlagError as `parse_threshold` does."""
    reader = _Reader(text, asked)
    quantity = reader.quantity(known, settings_may_lack=True)
    sign = reader.operator()
    limit: Fraction | str
    if quantity.unit is Unit.TEXT:
        if sign not in SAMENESS:
            raise reader.wrong(f"{quantity.name} is a text, which can only be asked for == or !=")
        limit = reader.rest()
        if not limit:
            raise reader.wrong(f"expected the text that {quantity.name} is compared with")
    else:
        limit, is_percent = reader.amount(quantity)
        if is_percent:
            raise reader.wrong("a per cent is a change; what a release must keep by itself is an amount")
    return Requirement(text=text.strip(), name=quantity.name, operator=sign, limit=limit, unit=quantity.unit)


class _Reader:
    """Reads one expression from left to right; errors name the column at which reading stands."""

    def __init__(self, text: str, asked: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise FlagError(
                f"{asked} has {len(text)} characters, more than {MAX_CHARACTERS}",
                flag=_flag(asked),
                value=text[:80],
            )
        self._text = text
        self._asked = asked
        self._at = 0
        self._skip(_BLANKS)

    def quantity(self, known: Mapping[str, Quantity], *, settings_may_lack: bool) -> Quantity:
        start = self._at
        name = self._skip(_NAME)
        if not name:
            raise self.wrong("expected the name of a quantity")
        found = known.get(name)
        if found is None and settings_may_lack and name.startswith(SETTINGS):
            found = Quantity(name=name, group=Group.INPUTS, unit=Unit.TEXT, value=None, about="")
        if found is None:
            self._at = start
            raise self.wrong(
                f"no quantity {name!r}{_near(name, known)}; vramledger diff --list-quantities has them"
            )
        self._skip(_BLANKS)
        return found

    def operator(self) -> str:
        found = next(
            (sign for sign in (*OPERATORS, *SAMENESS) if self._text.startswith(sign, self._at)), None
        )
        if found is None:
            raise self.wrong("expected <, <=, >, >=, == or !=")
        self._at += len(found)
        self._skip(_BLANKS)
        return found

    def rest(self) -> str:
        return self._text[self._at :].rstrip()

    def amount(self, quantity: Quantity) -> tuple[Fraction, bool]:
        """The amount in the quantity's unit, or per cent."""
        start = self._at
        sign = 1
        if self._text[self._at : self._at + 1] in ("+", "-"):
            sign = -1 if self._text[self._at] == "-" else 1
            self._at += 1
        digits = self._skip(_DIGITS)
        if not digits or digits.count(".") > 1 or digits == ".":
            self._at = start
            raise self.wrong(f"expected an amount such as {_example(quantity.unit)}")
        found = sign * Fraction(digits if digits[0] != "." else "0" + digits)
        self._skip(_BLANKS)
        unit = self.rest()
        if unit == "%":
            return found, True
        if quantity.unit is Unit.BYTES:
            factor = _SIZES.get(unit.lower())
            if factor is None and not (unit == "" and found == 0):
                raise self.wrong(f"{quantity.name} is in bytes: expected B, KiB, MiB, GiB, MB, GB or %")
            return found * (factor or 1), False
        if quantity.unit is Unit.SECONDS and unit == "ms":
            return found / 1000, False
        if unit not in ("", quantity.unit.value):
            raise self.wrong(f"{quantity.name} is in {quantity.unit.value}: expected no unit, or %")
        return found, False

    def wrong(self, problem: str) -> FlagError:
        column = self._at + 1
        return FlagError(
            f"{self._asked} {self._text!r}, column {column}: {problem}",
            flag=_flag(self._asked),
            value=self._text,
            column=column,
        )

    def _skip(self, wanted: Collection[str]) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in wanted:
            self._at += 1
        return self._text[start : self._at]


def _flag(asked: str) -> str:
    return asked.strip("-").replace("-", "_")


def _example(unit: Unit) -> str:
    return "+1GiB or -2%" if unit is Unit.BYTES else "-1000 or -2%"


def _near(name: str, known: Mapping[str, Quantity]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=2)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
