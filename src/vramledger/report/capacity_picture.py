"""Goodput over offered load, with its band, the aim and the answer, in SVG; below it the first token's time and the pool."""

from __future__ import annotations

from vramledger.report.capacity_document import Answer
from vramledger.report.chart import Panel, key, picture, text
from vramledger.report.load_conditions import title

_LINE, _BAND, _AIM, _ANSWER, _TTFT, _POOL = (
    "#3b6ea8",
    "#9dbcd9",
    "#c8563f",
    "#2f7d4f",
    "#d69b2d",
    "#6b4f9e",
)
_SHOWN = 4.0
"""Loads up to so many times the answer are drawn."""


def capacity_svg(answer: Answer) -> str:
    """The picture."""
    found = answer.capacity
    most = _SHOWN * (found.load or max(point.load for point in found.points))
    points = [point for point in found.points if point.load <= most]
    right = max(point.per_s for point in points)
    floor = min(*(point.goodput.low for point in points), found.aim)
    parts = [
        text(20, 24, title(answer.conditions), size=14),
        text(20, 42, answer.summary, colour=_ANSWER if found.load else _AIM),
        *key(52, ((_LINE, "goodput"), (_BAND, f"{found.confidence:.0%} band"), (_AIM, "aim"), (_ANSWER, "capacity"),
                  (_TTFT, "TTFT p99, ms"), (_POOL, "blocks used, p95"))),
    ]  # fmt: skip
    low = max(floor - 0.02, 0.0)
    top = Panel(100, 280, most_x=right, most_y=1.0, least_y=low)
    lower = [(point.per_s, max(point.goodput.low, low)) for point in points]
    upper = [(point.per_s, point.goodput.high) for point in points]
    parts += [
        top.area(lower, upper, _BAND, 0.6),
        *top.axes(
            "goodput: share of offered requests that meet every aim",
            "requests offered a second",
            "",
            percent=True,
        ),
        top.path([(point.per_s, point.goodput.expected) for point in points], _LINE),
        top.path([(0.0, found.aim), (right, found.aim)], _AIM, dash="6 3"),
        *(
            top.dot(
                point.per_s,
                point.goodput.expected,
                _LINE,
                f"{point.per_s:.4g}/s: {point.goodput.expected:.2%}",
            )
            for point in points
        ),
    ]
    if found.load:
        parts += top.mark(found.per_s, _ANSWER, f"{found.per_s:.4g}/s")
    times = [point.ttft_p99_ms for point in points]
    middle = Panel(450, 140, most_x=right, most_y=max(*times, 1.0))
    parts += [
        *middle.axes("time to the first token, p99, ms", "requests offered a second", ""),
        middle.path([(point.per_s, point.ttft_p99_ms) for point in points], _TTFT),
    ]
    bottom = Panel(660, 140, most_x=right, most_y=1.0)
    parts += [
        *bottom.axes("share of the pool's blocks in use, p95", "requests offered a second", "", percent=True),
        bottom.path([(point.per_s, point.used_p95) for point in points], _POOL),
    ]
    return picture(850, parts)
