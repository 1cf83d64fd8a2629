"""What a load does to goodput and latencies: measured, foretold, and the aims, over the rate that was offered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

from vramledger.experiment.operating_point import point_kind
from vramledger.experiment.plan import Step
from vramledger.experiment.result import Experiment, LoadFigures, Stage
from vramledger.report.chart import Panel, Point, inline, text
from vramledger.report.experiment_picture import (
    AIM,
    FORECAST,
    MEASURED,
    POINT,
    UNIT,
    Key,
    Picture,
    kind_words,
)
from vramledger.report.quantity_words import figures, percent, rate_text, share_text, time_text, trimmed
from vramledger.simulation.summary import Quantiles

_TOP, _HEIGHT, _BOTTOM, _LEFT = 14, 200, 44, 56
_Z95 = 1.959964
LADDERS = (Step.MIXED, Step.SHORT)
"""The one that decides comes first."""


def load_pictures(found: Experiment) -> list[Picture]:
    """Of each ladder that was climbed: goodput, time to first token, time per output token."""
    out = []
    for step in LADDERS:
        stages = sorted((item for item in found.stages if item.step is step), key=lambda item: item.per_s)
        if not stages:
            continue
        named = kind_words(stages[0].kind)
        out.append(_goodput(found, stages, named))
        for name, of, limit_ms in (
            ("time to first token", _ttft, found.plan.slo.ttft_ms),
            ("time per output token", _tpot, found.plan.slo.tpot_ms),
            ("whole answer", _latency, found.plan.slo.latency_ms),
        ):
            if name == "whole answer" and limit_ms is None:
                continue
            drawn = _times(found, stages, f"{name}, {named}", of, limit_ms)
            if drawn is not None:
                out.append(drawn)
    return out


def wilson(good: int, offered: int) -> tuple[float, float]:
    """Where a share lies, 95 % (Wilson 1927), were each request on its own; of a queue's requests it is wider."""
    if offered == 0:
        return 0.0, 1.0
    share, square = good / offered, _Z95 * _Z95
    middle = share + square / (2 * offered)
    half = _Z95 * sqrt(share * (1 - share) / offered + square / (4 * offered * offered))
    whole = 1 + square / offered
    return max((middle - half) / whole, 0.0), min((middle + half) / whole, 1.0)


def _goodput(found: Experiment, stages: Sequence[Stage], named: str) -> Picture:
    aim = found.plan.goodput
    ends = [wilson(item.measured.good, item.measured.offered) for item in stages]
    ours = [item for item in stages if item.forecast is not None]
    foretold = [(item.per_s, item.forecast.goodput) for item in ours if item.forecast is not None]
    least = min([low for low, _ in ends] + [share for _, share in foretold] + [aim])
    least = max(0.0, min(least, aim - 0.1) - 0.02)
    panel = _panel(stages, least_y=least, most_y=1.0)
    parts = [
        *_point(found, panel, stages),
        *panel.grid("requests offered a second", shown_y=lambda share: f"{100 * share:.0f}%"),
        panel.path([(0.0, aim), (_right(stages), aim)], AIM, dash="2 3"),
        text(panel.left + 6, panel.y(aim) + 14, f"aim {percent(aim)}", colour=AIM),
        panel.path([(item.per_s, item.measured.goodput) for item in stages], MEASURED, width=2),
        *(panel.bar(item.per_s, low, high, MEASURED) for item, (low, high) in zip(stages, ends, strict=True)),
        panel.path(foretold, FORECAST, dash="6 4"),
        *(
            panel.ring(x, share, FORECAST, f"{rate_text(x)}: {share_text(share)} foretold")
            for x, share in foretold
        ),
        *(panel.dot(item.per_s, item.measured.goodput, MEASURED, _told(item)) for item in stages),
    ]
    keys = [
        Key(MEASURED, "measured, 95 % of a single share", "dot"),
        Key(AIM, "aim", "dash"),
    ]
    if foretold:
        keys.insert(1, Key(FORECAST, "foretold before", "dash"))
    return Picture(
        title=f"goodput, {named}",
        words="share of the requests offered that met every aim",
        keys=(*keys, *_point_keys(found, stages)),
        drawings=(_drawn(parts, f"goodput over offered rate, {named}: " + "; ".join(map(_told, stages))),),
    )


def _times(
    found: Experiment,
    stages: Sequence[Stage],
    title: str,
    of: Callable[[LoadFigures], Quantiles],
    limit_ms: float | None,
) -> Picture | None:
    measured = [(item.per_s, of(item.measured)) for item in stages if of(item.measured).count]
    if not measured:
        return None
    foretold = [
        (item.per_s, of(item.forecast))
        for item in stages
        if item.forecast is not None and of(item.forecast).count
    ]
    values = [float(value) for _, got in (*measured, *foretold) for value in (got.p50, got.p99) if value > 0]
    if limit_ms is not None:
        values.append(limit_ms * 1e6)
    if not values:
        return None
    panel = _panel(stages, least_y=min(values) / 1.3, most_y=max(values) * 1.3, log_y=True)
    lower = [(x, float(got.p50)) for x, got in measured]
    upper = [(x, float(got.p99)) for x, got in measured]
    parts = [
        *_point(found, panel, stages),
        *panel.grid("requests offered a second", shown_y=lambda value: trimmed(time_text(value)), marks_y=7),
        panel.area(lower, upper, MEASURED, 0.15),
        *_aim(panel, stages, limit_ms),
        panel.path(lower, MEASURED, width=1),
        panel.path(upper, MEASURED, width=2),
        *_foretold(panel, foretold),
        *(
            panel.dot(
                x, got.p99, MEASURED, f"{rate_text(x)}: p50 {time_text(got.p50)}, p99 {time_text(got.p99)}"
            )
            for x, got in measured
        ),
    ]
    keys = [Key(MEASURED, "measured p99", "dot"), Key(MEASURED, "p50 to p99", "area")]
    if foretold:
        keys.append(Key(FORECAST, "foretold p99 (fine: p50)", "dash"))
    if limit_ms is not None:
        keys.append(Key(AIM, "aim", "dash"))
    says = "; ".join(f"{rate_text(x)}: p99 {time_text(got.p99)}" for x, got in measured)
    return Picture(
        title=title,
        keys=(*keys, *_point_keys(found, stages)),
        drawings=(_drawn(parts, f"{title}, over offered rate: {says}"),),
    )


def _foretold(panel: Panel, points: Sequence[tuple[float, Quantiles]]) -> Iterator[str]:
    yield panel.path([(x, float(got.p50)) for x, got in points], FORECAST, width=1, dash="2 3")
    yield panel.path([(x, float(got.p99)) for x, got in points], FORECAST, dash="6 4")
    for x, got in points:
        yield panel.ring(x, got.p99, FORECAST, f"{rate_text(x)}: p99 {time_text(got.p99)} foretold")


def _aim(panel: Panel, stages: Sequence[Stage], limit_ms: float | None) -> Iterator[str]:
    if limit_ms is None:
        return
    limit = limit_ms * 1e6
    line: list[Point] = [(0.0, limit), (_right(stages), limit)]
    yield panel.path(line, AIM, dash="2 3")
    yield text(panel.left + 6, panel.y(limit) - 5, f"aim {trimmed(time_text(limit))}", colour=AIM)


def _panel(stages: Sequence[Stage], *, least_y: float, most_y: float, log_y: bool = False) -> Panel:
    return Panel(
        _TOP,
        _HEIGHT,
        most_x=_right(stages),
        least_y=least_y,
        most_y=most_y,
        width=UNIT,
        left=_LEFT,
        right=12,
        log_y=log_y,
    )


def _right(stages: Sequence[Stage]) -> float:
    return 1.04 * max(item.per_s for item in stages)


def decides(found: Experiment, stages: Sequence[Stage]) -> bool:
    """Whether the operating point is told of these stages."""
    return stages[0].kind is point_kind(found.stages)


def _point(found: Experiment, panel: Panel, stages: Sequence[Stage]) -> Iterator[str]:
    point = found.point
    if point is None or not decides(found, stages) or point.per_s <= 0:
        return
    right = _right(stages)
    yield panel.span(
        min(point.low_per_s, right),
        min(point.high_per_s, right),
        POINT,
        opacity=0.16,
        title=f"{figures(point.low_per_s)} to {figures(point.high_per_s)}/s at {percent(point.confidence)}",
    )
    if point.per_s <= right:
        x = panel.x(point.per_s)
        yield (
            f'<line x1="{x:.1f}" y1="{panel.top}" x2="{x:.1f}" y2="{panel.top + panel.height}" stroke="{POINT}" '
            'stroke-width="2"/>'
        )
        anchor = "end" if x > (panel.left + panel.right) / 2 else "start"
        yield text(x + (-4 if anchor == "end" else 4), panel.top + panel.height - 6, rate_text(point.per_s),
                   anchor=anchor, colour=POINT)  # fmt: skip


def _point_keys(found: Experiment, stages: Sequence[Stage]) -> tuple[Key, ...]:
    if found.point is None or found.point.per_s <= 0 or not decides(found, stages):
        return ()
    return (Key(POINT, "operating point, its interval", "area"),)


def _drawn(parts: Sequence[str], says: str) -> str:
    return inline(UNIT, _TOP + _HEIGHT + _BOTTOM, parts, says=says)


def _told(stage: Stage) -> str:
    got = stage.measured
    return f"{rate_text(stage.per_s)}: {share_text(got.goodput)}, {got.good:,} of {got.offered:,}"


def _ttft(got: LoadFigures) -> Quantiles:
    return got.ttft_ns


def _tpot(got: LoadFigures) -> Quantiles:
    return got.tpot_ns


def _latency(got: LoadFigures) -> Quantiles:
    return got.latency_ns
