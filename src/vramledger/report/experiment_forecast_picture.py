"""What was foretold against what came: each figure of each stage a point, on the line where the two are equal."""

from __future__ import annotations

from vramledger.experiment.result import Experiment
from vramledger.report.chart import Panel, inline, text
from vramledger.report.experiment_picture import DIM, UNIT, Key, Picture, shortened
from vramledger.report.experiment_words import forecast_figures
from vramledger.report.quantity_words import share_text, time_text, trimmed

_COLOURS = {"TTFT": "var(--s1)", "TPOT": "var(--s2)", "latency": "var(--s3)"}
_BAND = 0.2


def forecast_pictures(found: Experiment) -> list[Picture]:
    """Times and shares; none where nothing was foretold."""
    return [drawn for drawn in (_times(found), _shares(found)) if drawn is not None]


def _times(found: Experiment) -> Picture | None:
    points = [
        (stage, name, forecast, measured)
        for stage in found.stages
        for name, forecast, measured in forecast_figures(stage)
        if forecast > 0 and measured > 0
    ]
    if not points:
        return None
    every = [value for _, _, forecast, measured in points for value in (forecast, measured)]
    least, most = min(every) / 1.4, max(every) * 1.4
    panel = Panel(14, 300, least_x=least, most_x=most, least_y=least, most_y=most, width=UNIT, left=56, right=16,
                  log_x=True, log_y=True)  # fmt: skip
    near = sum(abs(forecast - measured) <= _BAND * measured for _, _, forecast, measured in points)
    parts = [
        panel.area(
            [(least, least * (1 - _BAND)), (most, most * (1 - _BAND))],
            [(least, least * (1 + _BAND)), (most, most * (1 + _BAND))],
            "var(--grid)",
            0.8,
        ),
        *panel.grid("measured", shown_x=_axis, shown_y=_axis, marks_x=5),
        panel.path([(least, least), (most, most)], DIM),
        text(panel.left + 6, panel.top + 12, "foretold", colour=DIM),
    ]
    for stage, name, forecast, measured in points:
        colour = _COLOURS[name.split()[0]]
        told = f"{stage.name}, {name}: foretold {time_text(forecast)}, measured {time_text(measured)}"
        draw = panel.dot if name.endswith("p99") else panel.ring
        parts.append(draw(measured, forecast, colour, told))
    keys = [
        Key(colour, f"{name} p99 (hollow: p50)", "dot")
        for name, colour in _COLOURS.items()
        if any(point[1].startswith(name) for point in points)
    ]
    return Picture(
        title="latencies, foretold and measured",
        words=f"{near} of {len(points)} within {100 * _BAND:.0f} % (the grey band); on the line the two are equal",
        keys=tuple(keys),
        drawings=(inline(UNIT, 360, parts, says=f"{near} of {len(points)} forecasts within 20 %"),),
    )


def _axis(value: float) -> str:
    return trimmed(time_text(value))


def _shares(found: Experiment) -> Picture | None:
    """Goodput foretold and measured, stage by stage."""
    stages = [item for item in found.stages if item.forecast is not None]
    if not stages:
        return None
    left = 128
    height = max(300, 16 * len(stages))
    panel = Panel(14, height, most_x=1.0, most_y=float(len(stages)), width=UNIT, left=left, right=16)
    parts = [
        text(panel.x(mark), 14 + height + 17, f"{100 * mark:.0f}%", anchor="middle", colour=DIM)
        for mark in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    parts += [
        f'<line x1="{panel.x(mark):.1f}" y1="14" x2="{panel.x(mark):.1f}" y2="{14 + height}" stroke="var(--grid)"/>'
        for mark in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    for number, stage in enumerate(stages):
        ours = stage.forecast
        assert ours is not None
        y = len(stages) - number - 0.5
        told = f"{stage.name}: foretold {share_text(ours.goodput)}, measured {share_text(stage.measured.goodput)}"
        parts += [
            text(left - 8, panel.y(y) + 4, shortened(stage.name, 18), anchor="end", colour="var(--ink)"),
            panel.path([(ours.goodput, y), (stage.measured.goodput, y)], DIM, width=1),
            panel.ring(ours.goodput, y, "var(--forecast)", told),
            panel.dot(stage.measured.goodput, y, "var(--measured)", told),
        ]
    return Picture(
        title="goodput, foretold and measured",
        words="a stage's forecast is made before it is sent, from earlier stages alone",
        keys=(Key("var(--measured)", "measured", "dot"), Key("var(--forecast)", "foretold", "ring")),
        drawings=(inline(UNIT, height + 44, parts, says="goodput of each stage, foretold and measured"),),
    )
