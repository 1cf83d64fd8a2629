"""What pictures of an experiment share: their sizes, their colours by name, keys, and stretches of load behind a time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from vramledger.experiment.plan import Kind
from vramledger.experiment.result import Stage
from vramledger.report.chart import Panel, text
from vramledger.report.experiment_words import figures

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
    """Seconds and minutes of an axis from the Unix time `first_s` on."""

    first_s: float
    last_s: float

    @property
    def unit_s(self) -> float:
        return 60.0 if self.last_s - self.first_s > 300 else 1.0

    @property
    def unit(self) -> str:
        return "minutes" if self.unit_s == 60.0 else "seconds"

    def at(self, unix_s: float) -> float:
        """A time on the axis."""
        return (min(max(unix_s, self.first_s), self.last_s) - self.first_s) / self.unit_s

    @property
    def end(self) -> float:
        return self.at(self.last_s)


def loads_behind(panel: Panel, clock: Clock, stages: Sequence[Stage], *, named: bool) -> Iterator[str]:
    """Stretches of load as grounds, every other one darker; named above where there is room, and all by themselves when pointed at."""
    free = 0.0
    for number, stage in enumerate(stages):
        first, last = clock.at(stage.began_s), clock.at(stage.ended_s)
        if last <= first:
            continue
        title = f"{stage.name}: {stage.kind.value}, {figures(stage.per_s)}/s"
        yield panel.span(first, last, "var(--load)", opacity=1.0 if number % 2 else 0.55, title=title)
        place, room = panel.x(first), panel.x(last) - panel.x(first)
        label = stage.step.value
        if named and place >= free and (number == 0 or stages[number - 1].step is not stage.step):
            if room < 10 and number + 1 < len(stages) and stages[number + 1].step is not stage.step:
                continue
            yield text(place + 2, panel.top - 5, label, size=11, colour=DIM)
            free = place + 7.0 * len(label) + 10


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
        Kind.CANCELLED: "clients that leave",
        Kind.TOOLS: "tool pauses",
    }[kind]
