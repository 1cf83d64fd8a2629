"""What grew over a steady stretch, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal

from vramledger.experiment.result import Trend
from vramledger.experiment.served import Served
from vramledger.experiment.slope import STILL, Slope, binned, slope_of
from vramledger.experiment.watched_series import Series, watched
from vramledger.observation import Sample
from vramledger.units import format_bytes

SHORTEST_S = 60.0
"""A shorter stretch says nothing of hours."""
MOST_OF_IT = 0.9
"""The bins at the ends have their middles within the stretch."""
S_PER_HOUR = 3600


Verdict = Literal["flat", "grows", "falls", "untold"]


def trends(
    samples: Iterable[Sample],
    *,
    confidence: float = 0.95,
    served: Sequence[Served] = (),
) -> tuple[Trend, ...]:
    """One for each quantity of each source over the stretch that the samples and rows are of, in the order memory, pool, rates, latency.

    The interval is `slope_of`'s. Of many quantities looked at one
    seems to grow by chance: one grows or falls only where that is sure for all of them at once. What moved at first and then
    stayed, by the second half of the stretch, is flat; where the halves leave it open it is untold.
    """
    found = watched(samples, served)
    among = max(sum(len(set(series.values)) > 1 for series in found), 1)
    return tuple(_trend(series, confidence, among) for series in found)


def _trend(series: Series, confidence: float, among: int) -> Trend:
    allowance = series.allowance_per_hour
    times, values = binned(series.times_s, series.values, middle=series.middle)
    lasts = bool(times) and times[-1] - times[0] >= SHORTEST_S * MOST_OF_IT
    whole = slope_of(times, values, confidence, among=among) if lasts else None
    tenth = max(len(values) // 10, 1)
    first, last = (fmean(values[:tenth]), fmean(values[-tenth:])) if values else (0.0, 0.0)
    hourly = STILL if whole is None else _hourly(whole)
    verdict: Verdict = "untold"
    words = "too short or too few readings to say"
    if whole is not None:
        half = next(place for place, time in enumerate(times) if time >= (times[0] + times[-1]) / 2)
        late = slope_of(times[half:], values[half:], confidence)
        verdict, words = _verdict(
            hourly, None if late is None else _hourly(late), allowance, series.unit, among
        )
    return Trend(
        name=series.name,
        source=series.source,
        unit=series.unit,
        slope_per_hour=hourly.value,
        low_per_hour=hourly.low,
        high_per_hour=hourly.high,
        confidence=confidence,
        allowance_per_hour=allowance,
        first=first,
        last=last,
        samples=len(series.values),
        verdict=verdict,
        words=words,
    )


def _verdict(
    whole: Slope, late: Slope | None, allowance: float, unit: str, among: int
) -> tuple[Verdict, str]:
    told = f"{shown(whole.value, unit)} an hour ({shown(whole.low, unit)} to {shown(whole.high, unit)})"
    if _is_within(whole, allowance):
        return "flat", f"does not grow: {told}, {shown(allowance, unit)} allowed"
    if late is not None and _is_within(late, allowance):
        return "flat", f"moved at first and then stayed: {shown(late.value, unit)} an hour in the second half"
    directions: tuple[tuple[int, Verdict, float, float], ...] = (
        (1, "grows", whole.low, whole.low_of_all),
        (-1, "falls", -whole.high, -whole.high_of_all),
    )
    for sign, does, least, least_of_all in directions:
        if least <= allowance:
            continue
        if late is not None and sign * late.value <= allowance:
            return "untold", f"{does} by {told}, less so in the second half: a longer stretch would tell"
        if least_of_all > allowance:
            return does, f"{does} by {told}"
        return (
            "untold",
            f"{does} by {told}, as one of {among} looked at may by chance: a longer stretch would tell",
        )
    return "untold", f"too noisy or too short to say: {told}"


def _is_within(slope: Slope, allowance: float) -> bool:
    return -allowance <= slope.low and slope.high <= allowance


def shown(value: float, unit: str) -> str:
    """A quantity as its trend's words have it."""
    if unit == "bytes":
        return ("-" if value < 0 else "") + format_bytes(int(abs(value)))
    if unit == "ns":
        return f"{value / 1e6:.3g} ms"
    return f"{value:.3g} {unit}"


def _hourly(slope: Slope) -> Slope:
    return Slope(**{name: getattr(slope, name) * S_PER_HOUR for name in slope.__struct_fields__})
