"""A quantity against a requirement, and a change against a threshold, where either may be an estimate with an interval.

What an estimate says is told only where its interval lies on one side of the limit. Of a change the interval is that of a linear
function of two independent estimates, by the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008),
which needs only the ends of both and takes them as far apart on each side as they are.
"""

from __future__ import annotations

from fractions import Fraction
from math import hypot, inf

from vramledger.manifest.expression import OPERATORS, SAMENESS, Requirement, Threshold
from vramledger.manifest.quantity import Bounds, Quantity, Unit, Value
from vramledger.manifest.thresholds import Judged, Outcome, judge
from vramledger.units import MIB, format_bytes


def judge_requirement(wanted: Requirement, found: Quantity | None, value: Value, confidence: float) -> Judged:
    """Whether a release keeps it: HELD, TRIPPED where it does not, UNTOLD. `value` is what the document says, `found` the quantity."""
    if value is None:
        return _said(wanted.text, Outcome.UNTOLD, f"{wanted.name} is not known")
    if isinstance(wanted.limit, str) or isinstance(value, str):
        kept = (str(value) == str(wanted.limit)) is (wanted.operator == "==")
        return _said(wanted.text, Outcome.HELD if kept else Outcome.TRIPPED, f"it is {value}")
    bounds = None if found is None else found.bounds
    if wanted.operator in SAMENESS:
        kept = (Fraction(value) == wanted.limit) is (wanted.operator == "==")
        return _said(
            wanted.text, Outcome.HELD if kept else Outcome.TRIPPED, f"it is {_shown(value, wanted.unit)}"
        )
    compare = OPERATORS[wanted.operator]
    if bounds is None:
        kept = compare(Fraction(value), wanted.limit)
        return _said(
            wanted.text, Outcome.HELD if kept else Outcome.TRIPPED, f"it is {_shown(value, wanted.unit)}"
        )
    ends = bounds.at(confidence, float(value))
    high = inf if ends.is_at_least else ends.high
    limit = float(wanted.limit)
    outcome = _by_ends(wanted.operator, ends.low - limit, high - limit)
    # A requirement is kept where its comparison holds, a threshold trips there.
    outcome = {Outcome.TRIPPED: Outcome.HELD, Outcome.HELD: Outcome.TRIPPED}.get(outcome, outcome)
    return _said(wanted.text, outcome, f"it is {interval_text(value, ends, wanted.unit)}")


def judge_change(
    threshold: Threshold,
    before: Value,
    after: Value,
    *,
    bounds: tuple[Bounds | None, Bounds | None],
    confidence: float,
) -> Judged:
    """`thresholds.judge`, and where a side has an interval whether that decides.

    Of OLD what it was shown to serve counts: that more was never tried there makes no release worse.
    """
    if (
        bounds == (None, None)
        or threshold.limit is None
        or not isinstance(before, int | float)
        or not isinstance(after, int | float)
        or (threshold.is_percent and before <= 0)
    ):
        judged = judge(threshold, before, after)
        if threshold.limit is None or before is None or after is None:
            return judged
        values = f"{_shown(before, threshold.unit)} before, {_shown(after, threshold.unit)} after"
        return _said(judged.text, judged.outcome, f"{judged.why}: {values}")
    old = _ends(before, bounds[0], confidence)
    new = _ends(after, bounds[1], confidence)
    factor = 1 + float(threshold.limit) / 100 if threshold.is_percent else 1.0
    offset = 0.0 if threshold.is_percent else float(threshold.limit)
    rest = after - factor * before - offset
    # A factor below 0 (a loss of more than all) turns OLD's ends around.
    old_up, old_down = (old.high - before, before - old.low)
    up, down = (old_down, old_up) if factor >= 0 else (old_up, old_down)
    low = rest - hypot(after - new.low, abs(factor) * down)
    high = inf if new.is_at_least else rest + hypot(new.high - after, abs(factor) * up)
    percent = f"{100 * (after - before) / before:+.4g}%" if before else "from 0"
    unit = threshold.unit
    return _said(
        threshold.text,
        _by_ends(threshold.operator, low, high),
        f"{percent}: {interval_text(before, old, unit)} before, {interval_text(after, new, unit)} after, at {confidence:g} confidence",
    )


def interval_text(value: float, ends: Bounds, unit: Unit) -> str:
    """ "4.0 (3.6 to 4.4) requests/s", "at least 4.0 (3.6) requests/s"."""
    word = "" if unit in (Unit.COUNT, Unit.TEXT) else f" {unit.value}"
    if ends.is_at_least:
        return f"at least {value:.4g} (not below {ends.low:.4g}){word}"
    if ends.low == ends.high == value:
        return f"{value:.4g}{word}"
    return f"{value:.4g} ({ends.low:.4g} to {ends.high:.4g}){word}"


def _ends(value: float, bounds: Bounds | None, confidence: float) -> Bounds:
    if bounds is None:
        return Bounds(low=value, high=value, confidence=confidence)
    return bounds.at(confidence, value)


def _by_ends(sign: str, low: float, high: float) -> Outcome:
    """Whether what lies between `low` and `high` is on the side of 0 that `sign` names."""
    compare = OPERATORS[sign]
    ends = {compare(low, 0), compare(high, 0)}
    if len(ends) == 2:
        return Outcome.UNTOLD
    return Outcome.TRIPPED if True in ends else Outcome.HELD


def _shown(value: float | str, unit: Unit) -> str:
    if isinstance(value, str):
        return value
    if unit is Unit.BYTES:
        size = round(value)
        return f"{size:,} bytes" + (f" ({format_bytes(size)})" if abs(size) >= MIB else "")
    word = "" if unit in (Unit.COUNT, Unit.TEXT) else f" {unit.value}"
    return f"{value:,}{word}" if isinstance(value, int) else f"{value:,.6g}{word}"


def _said(text: str, outcome: Outcome, why: str) -> Judged:
    return Judged(text=text, outcome=outcome, why=why)
