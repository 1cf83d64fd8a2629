"""Which changes from one release to the next are too much, by what was written of them."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from msgspec import Struct

from vramledger.manifest.expression import OPERATORS, Threshold
from vramledger.manifest.quantity import Unit, Value


class Outcome(StrEnum):
    TRIPPED = "tripped"
    HELD = "held"
    UNTOLD = "untold"


class Judged(Struct, frozen=True, kw_only=True):
    """A threshold and what became of it; `why` says by which figures."""

    text: str
    outcome: Outcome
    why: str


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
    compare = OPERATORS[threshold.operator]
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
