"""The pool and the queues over time, as the engine said and as simulated: how far apart, and a picture of both."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from html import escape
from statistics import fmean

from msgspec import Struct
from tools.fidelity.replay import Replay
from tools.fidelity.runs import PS_PER_S, MeasuredRun, Tick

from vramledger.simulation.outcome import PoolSample

WIDTH, HEIGHT, LEFT, TOP = 1000, 150, 60, 46
MEASURED, SIMULATED = "#c8563f", "#3b6ea8"


class CurveError(Struct, frozen=True, kw_only=True):
    """One quantity over time, at every second that the engine told: the mean distance, and both means."""

    name: str
    unit: str
    measured_mean: float
    simulated_mean: float
    mean_distance: float


class Curve(Struct, frozen=True, kw_only=True):
    """The points of one quantity, (s, value) each."""

    name: str
    unit: str
    measured: tuple[tuple[float, float], ...]
    simulated: tuple[tuple[float, float], ...]


def curves(run: MeasuredRun, made: Replay) -> tuple[Curve, ...]:
    """KV use where the engine told it, running and waiting requests."""
    quantities: list[tuple[str, str, Callable[[Tick], float], Callable[[PoolSample], float]]] = [
        ("running requests", "", lambda tick: tick.running, lambda sample: sample.running),
        ("waiting requests", "", lambda tick: tick.waiting, lambda sample: sample.waiting),
    ]
    if run.has_kv_use:
        quantities.insert(
            0,
            (
                "KV use",
                "%",
                lambda tick: tick.kv_percent,
                lambda sample: 100 * sample.used_blocks / made.usable_blocks,
            ),
        )
    return tuple(
        Curve(
            name=name,
            unit=unit,
            measured=tuple((tick.at_ps / PS_PER_S, of_tick(tick)) for tick in run.ticks),
            simulated=tuple((sample.at_ps / PS_PER_S, of_sample(sample)) for sample in made.samples),
        )
        for name, unit, of_tick, of_sample in quantities
        if run.ticks
    )


def curve_error(curve: Curve) -> CurveError:
    """At each measured instant against the last simulated state before it; after the end nothing is held."""
    times = [at for at, _ in curve.simulated]

    def state(at: float) -> float:
        place = bisect_right(times, at) - 1
        return 0.0 if place < 0 or at > times[-1] else curve.simulated[place][1]

    measured = [value for _, value in curve.measured]
    simulated = [state(at) for at, _ in curve.measured]
    return CurveError(
        name=curve.name,
        unit=curve.unit,
        measured_mean=fmean(measured),
        simulated_mean=fmean(simulated),
        mean_distance=fmean(abs(one - other) for one, other in zip(measured, simulated, strict=True)),
    )


def picture(title: str, drawn: Sequence[Curve]) -> str:
    """A panel for each quantity, measured over simulated, in SVG."""
    height = TOP + len(drawn) * (HEIGHT + 40)
    end = max(at for curve in drawn for points in (curve.measured, curve.simulated) for at, _ in points)
    parts = [
        _text(LEFT, 20, title, size=15),
        f'<rect x="{LEFT}" y="28" width="12" height="4" fill="{MEASURED}"/>',
        _text(LEFT + 18, 34, "measured, once a second"),
        f'<rect x="{LEFT + 180}" y="28" width="12" height="4" fill="{SIMULATED}"/>',
        _text(LEFT + 198, 34, "simulated"),
    ]
    for place, curve in enumerate(drawn):
        parts += _panel(curve, TOP + place * (HEIGHT + 40) + 14, end)
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n{lines}\n</svg>\n'
    )


def _panel(curve: Curve, top: int, end: float) -> Iterator[str]:
    most = (
        100.0 if curve.unit == "%" else max(value for _, value in (*curve.measured, *curve.simulated)) or 1.0
    )
    room = WIDTH - LEFT - 20
    yield _text(LEFT, top - 4, curve.name, size=12)
    for share in (0, 0.5, 1):
        y = top + HEIGHT * (1 - share)
        yield f'<line x1="{LEFT}" x2="{LEFT + room}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e3e3"/>'
        yield _text(LEFT - 6, y + 4, f"{most * share:.0f}{curve.unit}", anchor="end")
    for share in (0.25, 0.5, 0.75, 1):
        yield _text(LEFT + room * share, top + HEIGHT + 14, f"{end * share:.0f} s", anchor="middle")
    for points, colour in ((curve.simulated, SIMULATED), (curve.measured, MEASURED)):
        path = " ".join(
            f"{LEFT + room * max(at, 0) / end:.1f},{top + HEIGHT * (1 - value / most):.1f}"
            for at, value in points
        )
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.2"/>'


def _text(x: float, y: float, words: str, *, size: int = 11, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'
