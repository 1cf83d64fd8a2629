"""What pictures of an experiment share: their sizes, their colours by name, keys, and stretches of load behind a time axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from vramledger.experiment.plan import Kind
from vramledger.experiment.result import Experiment, StepState
from vramledger.report.chart import Panel, Point, text
from vramledger.report.quantity_words import figures

UNIT, WIDE, NARROW = 380, 1000, 380
"""Widths: one of several side by side, one over the whole page, the same on a phone."""
MEASURED, FORECAST, AIM, POINT, BAD = (
    "var(--measured)",
    "var(--forecast)",
    "var(--aim)",
    "var(--good)",
    "var(--bad)",
)
INK, DIM = "var(--ink)", "var(--dim)"
Mark = Literal["line", "dash", "area", "dot", "ring"]


class Key(msgspec.Struct, frozen=True):
    """A colour, how it is drawn, and what it means."""

    colour: str
    label: str
    mark: Mark = "line"


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture with its title and a sentence on what it shows. Of `drawings` the first is for a wide page and the second, if any, for a
    narrow one."""

    title: str
    words: str = ""
    keys: tuple[Key, ...] = ()
    drawings: tuple[str, ...]


class Clock(msgspec.Struct, frozen=True):
    """Seconds or minutes of an axis over spans of Unix time, in their order: what lies between two spans takes no room."""

    spans: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, times: Iterable[float], *, most_gap_s: float = 90.0) -> Clock:
        """An axis over these times, without the rests in which nothing was read: an experiment that went on a day later is one picture."""
        spans: list[list[float]] = []
        for at_s in sorted(times):
            if spans and at_s - spans[-1][1] <= most_gap_s:
                spans[-1][1] = at_s
            else:
                spans.append([at_s, at_s])
        return cls(tuple((first, last) for first, last in spans))

    @property
    def length_s(self) -> float:
        return max(sum(last - first for first, last in self.spans), 1.0)

    @property
    def unit_s(self) -> float:
        return 60.0 if self.length_s > 300 else 1.0

    @property
    def unit(self) -> str:
        return "minutes" if self.unit_s == 60.0 else "seconds"

    @property
    def end(self) -> float:
        return self.length_s / self.unit_s

    @property
    def cuts(self) -> tuple[float, ...]:
        """Where on the axis a rest was left out."""
        return tuple(self.at(first) for first, _ in self.spans[1:])

    def at(self, unix_s: float) -> float:
        """A time on the axis; one in a rest is at its beginning."""
        return sum(min(max(unix_s - first, 0.0), last - first) for first, last in self.spans) / self.unit_s


def pieces(points: Sequence[Point]) -> list[list[Point]]:
    """A line cut where readings are missing: where two are five times as far apart as they usually are."""
    gaps = sorted(later[0] - earlier[0] for earlier, later in pairwise(points))
    most = 5 * gaps[len(gaps) // 2] if gaps else 0.0
    out: list[list[Point]] = []
    for point in points:
        if out and point[0] - out[-1][-1][0] <= most:
            out[-1].append(point)
        else:
            out.append([point])
    return out


def loads_behind(panel: Panel, clock: Clock, found: Experiment, *, named: bool) -> Iterator[str]:
    """Stretches of load as grounds, every other one darker, told when pointed at; steps named above where there is room."""
    for number, stage in enumerate(found.stages):
        first, last = clock.at(stage.began_s), clock.at(stage.ended_s)
        if last > first:
            title = f"{stage.name}: {stage.kind.value}, {figures(stage.per_s)}/s"
            yield panel.span(first, last, "var(--load)", opacity=1.0 if number % 2 else 0.55, title=title)
    for cut in clock.cuts:
        x = panel.x(cut)
        yield (
            f'<line x1="{x:.1f}" y1="{panel.top}" x2="{x:.1f}" y2="{panel.top + panel.height}" stroke="var(--dim)" '
            'stroke-dasharray="1 3"><title>a rest is left out</title></line>'
        )
    if named:
        yield from _names(panel, clock, found.steps)


def _names(panel: Panel, clock: Clock, steps: Sequence[StepState]) -> Iterator[str]:
    """Steps that take room, at their beginnings; of two that are too near the longer one."""
    shown = [(clock.at(item.began_s), clock.at(item.ended_s or clock.spans[-1][1]), item.step.value)
             for item in steps if item.began_s is not None and item.state != "skipped"]  # fmt: skip
    free = 0.0
    for place, (first, last, name) in enumerate(shown):
        x = panel.x(first)
        room = 7.0 * len(name) + 10
        after = panel.x(shown[place + 1][0]) if place + 1 < len(shown) else panel.right
        if (
            x < free
            or last <= first
            or (after < x + room and panel.x(last) - x < 0.6 * room)
            or x + room > panel.right + 10
        ):
            continue
        yield f'<line x1="{x:.1f}" y1="{panel.top - 14}" x2="{x:.1f}" y2="{panel.top}" stroke="var(--edge)"/>'
        yield text(x + 3, panel.top - 5, name, size=11, colour=DIM)
        free = x + room


def shortened(words: str, most: int) -> str:
    """Words that have to fit beside a chart."""
    return words if len(words) <= most else words[: most - 1] + "…"


def kind_words(kind: Kind) -> str:
    """What the requests of a kind are like."""
    return {
        Kind.SHORT: "short requests",
        Kind.MIXED: "mixed lengths",
        Kind.PREFIX_HIT: "shared prefixes",
        Kind.PREFIX_MISS: "no shared prefix",
        Kind.BURST: "bursts",
        Kind.CANCELLED: "clients that leave",
        Kind.TOOLS: "tool pauses",
    }[kind]
