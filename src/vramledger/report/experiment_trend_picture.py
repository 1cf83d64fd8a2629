"""What was watched over the steady stretch: the readings, the line through them, and where its slope may lie."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from vramledger.experiment.plan import Step
from vramledger.experiment.result import Stage, Trend
from vramledger.experiment.slope import binned
from vramledger.experiment.watched_series import REQUESTS, watched
from vramledger.report.chart import Panel, Point, extremes, inline
from vramledger.report.experiment_evidence import Evidence
from vramledger.report.experiment_picture import MEASURED, UNIT, Clock, Key, Picture, shortened
from vramledger.report.experiment_words import trend_name
from vramledger.report.quantity_words import quantity_text, trimmed, unit_of
from vramledger.units import GIB, MIB

_TOP, _HEIGHT, _BOTTOM, _LEFT = 14, 130, 44, 64
_CELLS = 150
_COLOURS = {"flat": "var(--good)", "grows": "var(--bad)", "falls": "var(--s1)", "untold": "var(--unsure)"}
_BINS = 60
_LEAST_ROOM = {"bytes": float(MIB), "ns": 1e6, "ratio": 0.05, "per_s": 0.05}


def trend_pictures(evidence: Evidence) -> list[Picture]:
    """One for each trend, what grows first."""
    stage = next((stage for stage in evidence.found.stages if stage.step is Step.STEADY), None)
    if stage is None:
        return []
    clock = Clock(((stage.began_s, max(stage.ended_s, stage.began_s + 1)),))
    readings = _readings(evidence, stage)
    order = ("grows", "untold", "falls", "flat")
    found = sorted(evidence.found.trends, key=lambda trend: order.index(trend.verdict))
    drawn = (_picture(trend, clock, readings.get((trend.name, trend.source), [])) for trend in found)
    return [picture for picture in drawn if picture is not None]


def _picture(trend: Trend, clock: Clock, readings: Sequence[Point]) -> Picture | None:
    """None for what was nothing all the time."""
    unit = trend.unit or unit_of(trend.name)
    scale = 1 if unit != "bytes" else GIB if max(abs(trend.first), abs(trend.last)) >= 4 * GIB else MIB
    points = [(clock.at(at_s), value / scale) for at_s, value in readings]
    if not any(y for _, y in points) and trend.verdict != "grows":
        return None
    hours = clock.length_s / 3600
    values = [y for _, y in points]
    middle = fmean(values) if values else (trend.first + trend.last) / 2 / scale
    lines = [
        [(0.0, middle - slope / scale * hours / 2), (clock.end, middle + slope / scale * hours / 2)]
        for slope in (trend.low_per_hour, trend.slope_per_hour, trend.high_per_hour)
    ]
    shown = [*values, lines[1][0][1], lines[1][1][1]]
    least, most = min(shown), max(shown)
    room = max(0.15 * (most - least), 0.02 * abs(most), _LEAST_ROOM.get(unit, 0.5) / scale)
    least, most = least - room if least < 0 or least - room > 0 else 0.0, most + room
    panel = Panel(
        _TOP, _HEIGHT, most_x=clock.end, least_y=least, most_y=most, width=UNIT, left=_LEFT, right=12
    )
    colour = _COLOURS[trend.verdict]
    band = [[(x, min(max(y, least), most)) for x, y in line] for line in lines]
    cross = (clock.end / 2, middle)
    parts = [
        panel.area([band[0][0], cross, band[0][1]], [band[2][0], cross, band[2][1]], colour, 0.18),
        *panel.grid(clock.unit, shown_y=lambda value: _axis(value, unit, scale), marks_x=6, marks_y=4),
        panel.path(extremes(points, _CELLS), MEASURED, width=1),
        panel.path(band[1], colour, width=2),
    ]
    slope = quantity_text(trend.slope_per_hour, unit)
    low, high = quantity_text(trend.low_per_hour, unit), quantity_text(trend.high_per_hour, unit)
    words = trend.words or f"{slope} an hour ({low} to {high})"
    return Picture(
        title=f"{trend_name(trend)}: {trend.verdict}",
        words=words,
        keys=(
            Key(MEASURED, shortened(trend.source, 34) or "readings"),
            Key(colour, "slope, its interval", "area"),
        ),
        drawings=(inline(UNIT, _TOP + _HEIGHT + _BOTTOM, parts, says=f"{trend.name}: {words}"),),
    )


def _axis(value: float, unit: str, scale: int) -> str:
    if unit == "bytes":
        return f"{value:,.6g} {'GiB' if scale == GIB else 'MiB'}"
    return trimmed(quantity_text(value, unit))


def _readings(evidence: Evidence, stage: Stage) -> dict[tuple[str, str], list[Point]]:
    """What each trend was told from, by its name and source: Unix times, latencies of requests in bins."""
    until_s = stage.began_s + stage.seconds
    samples = [one for one in evidence.samples if stage.began_s <= one.at_s <= until_s]
    found = {}
    for series in watched(samples, evidence.rows.get(stage.name, ())):
        times_s, values = list(series.times_s), list(series.values)
        if series.source == REQUESTS:
            times_s, values = binned(times_s, values, middle=series.middle, bins=_BINS)
            times_s = [stage.began_s + at_s for at_s in times_s]
        found[series.name, series.source] = list(zip(times_s, values, strict=True))
    return found
