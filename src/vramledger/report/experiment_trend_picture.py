"""What was watched over the steady stretch: the readings, the line through them, and where its slope may lie."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from vramledger.experiment.plan import Step
from vramledger.experiment.result import Stage, Trend
from vramledger.observation import Sample
from vramledger.report.chart import Panel, Point, extremes, inline
from vramledger.report.experiment_evidence import Evidence, tracks
from vramledger.report.experiment_picture import MEASURED, UNIT, Clock, Key, Picture, shortened
from vramledger.report.experiment_words import plain_name, quantity_text, trimmed, unit_of
from vramledger.units import GIB, MIB

_TOP, _HEIGHT, _BOTTOM, _LEFT = 14, 130, 44, 64
_CELLS = 150
_COLOURS = {"flat": "var(--good)", "grows": "var(--bad)", "falls": "var(--s1)", "untold": "var(--unsure)"}
_BINS = 60
_COUNTERS = {"preemptions_per_s": "total_preempted_requests", "evicted_tokens_per_s": "total_evicted_tokens"}
_LEAST_ROOM = {"bytes": float(MIB), "ns": 1e6, "ratio": 0.05, "per_s": 0.05}


def trend_pictures(evidence: Evidence) -> list[Picture]:
    """One for each trend, what grows first."""
    stages = [stage for stage in evidence.found.stages if stage.step is Step.STEADY]
    if not stages:
        return []
    order = ("grows", "untold", "falls", "flat")
    found = sorted(evidence.found.trends, key=lambda trend: order.index(trend.verdict))
    return [drawn for trend in found if (drawn := _picture(evidence, trend, stages)) is not None]


def _picture(evidence: Evidence, trend: Trend, stages: Sequence[Stage]) -> Picture | None:
    """None for what was nothing all the time."""
    unit = trend.unit or unit_of(trend.name)
    scale = 1 if unit != "bytes" else GIB if max(abs(trend.first), abs(trend.last)) >= 4 * GIB else MIB
    clock = Clock(((stages[0].began_s, max(stages[-1].ended_s, stages[0].began_s + 1)),))
    points = [(x, y / scale) for x, y in _readings(evidence, trend, stages, clock)]
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
        title=f"{plain_name(trend.name)}: {trend.verdict}",
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


def _readings(evidence: Evidence, trend: Trend, stages: Sequence[Stage], clock: Clock) -> list[Point]:
    """What the trend was told from, within the stretch: samples of its name, of those at rest the ones at which nothing ran, of a rate its
    counter's rises, of latencies the requests' own in bins."""
    samples = evidence.samples
    points = _of(samples, trend.name, trend.source)
    if not points and "_at_rest_" in trend.name:
        busy = {x for name in ("running_requests", "waiting_requests") for track in tracks(samples, name)
                for x, y in track.points if y > 0}  # fmt: skip
        points = [
            (x, y)
            for x, y in _of(samples, trend.name.replace("_at_rest_", "_"), trend.source)
            if x not in busy
        ]
    if not points and trend.name in _COUNTERS:
        found = _of(samples, _COUNTERS[trend.name], trend.source)
        points = [(x, max(y - before, 0.0) / (x - at)) for (at, before), (x, y) in pairwise(found) if x > at]
    within = [(clock.at(x), y) for x, y in points if clock.spans[0][0] <= x <= clock.spans[0][1]]
    if within:
        return within
    latencies = sorted(
        (clock.at(stage.began_s + row.due_ns / 1e9), float(value))
        for stage in stages
        for row in evidence.rows.get(stage.name, ())
        if (value := {"ttft_ns": row.ttft_ns, "tpot_ns": row.tpot_ns}.get(trend.name)) is not None
    )
    return binned(latencies, _BINS, clock.end)


def _of(samples: Sequence[Sample], name: str, source: str) -> list[Point]:
    """Samples of one name whose source is the trend's, which says in brackets what tells several apart."""
    return [
        point
        for track in tracks(samples, name)
        if not source or source == track.source or source.startswith(f"{track.source} (")
        if track.label in source or source == track.source
        for point in track.points
    ]


def binned(points: Sequence[Point], count: int, end: float) -> list[Point]:
    """The median in each of `count` cells of equal width up to `end`, at its middle."""
    width = max(end, 1e-9) / count
    cells: dict[int, list[float]] = {}
    for x, y in points:
        cells.setdefault(min(int(x / width), count - 1), []).append(y)
    return [((place + 0.5) * width, median(values)) for place, values in sorted(cells.items())]
