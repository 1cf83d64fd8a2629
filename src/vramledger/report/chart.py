"""Lines and stacked areas over an axis, in SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from vramledger.report.text import safe

WIDTH = 1000
LEFT, RIGHT = 80, 20
LEAST = 1e-12
Point = tuple[float, float]
Shown = Callable[[float], str]


class Panel:
    """One chart of a picture: from `top` on, `height` high, its axes scaled to `most_x` and `most_y` (at least a little).

    `log_x` and `log_y` are axes of powers of ten: what is not above 0 there lies on the axis' beginning. `width`, `left` and `right` are the
    picture's width and the room beside the chart.
    """

    def __init__(
        self,
        top: int,
        height: int,
        *,
        most_x: float,
        most_y: float,
        least_x: float = 0.0,
        least_y: float = 0.0,
        width: int = WIDTH,
        left: int = LEFT,
        right: int = RIGHT,
        log_x: bool = False,
        log_y: bool = False,
    ) -> None:
        self.top, self.height = top, height
        self.left, self.right = left, width - right
        self._least_x, self._least_y = least_x, least_y
        self._most_x, self._most_y = most_x, most_y
        self._log_x, self._log_y = log_x, log_y
        self._x = (self.right - left) / max(self._over(most_x, least_x, log_x), LEAST)
        self._y = height / max(self._over(most_y, least_y, log_y), LEAST)

    def x(self, value: float) -> float:
        return self.left + self._over(value, self._least_x, self._log_x) * self._x

    def y(self, value: float) -> float:
        return self.top + self.height - self._over(value, self._least_y, self._log_y) * self._y

    @staticmethod
    def _over(value: float, least: float, is_log: bool) -> float:
        if not is_log:
            return value - least
        return math.log10(max(value, least, LEAST)) - math.log10(max(least, LEAST))

    def axes(self, title: str, unit_x: str, unit_y: str, *, percent: bool = False) -> Iterator[str]:
        """A frame, round marks on each axis, a title above."""
        left, bottom, right = self.left, self.top + self.height, self.right
        yield text(left, self.top - 8, title, size=12)
        yield f'<rect x="{left}" y="{self.top}" width="{right - left}" height="{self.height}" fill="none" stroke="#999"/>'
        for value in round_marks(self._least_y, self._most_y):
            shown = f"{100 * value:.4g}%" if percent else short(value)
            yield text(left - 6, self.y(value) + 4, shown, anchor="end")
            if value > self._least_y:
                yield (
                    f'<line x1="{left}" y1="{self.y(value):.1f}" x2="{right}" y2="{self.y(value):.1f}" '
                    f'stroke="#ddd" stroke-width="0.5"/>'
                )
        for value in round_marks(self._least_x, self._most_x):
            yield text(self.x(value), bottom + 15, short(value), anchor="middle")
        yield text(right, bottom + 28, unit_x, anchor="end")
        if unit_y:
            yield text(right, self.top - 8, unit_y, anchor="end")

    def grid(self, unit_x: str, *, shown_x: Shown | None = None, shown_y: Shown | None = None, marks_x: int = 6,
             marks_y: int = 6) -> Iterator[str]:  # fmt: skip
        """Light lines at round marks of the upright axis, a base line with round marks, and what that axis is in: axes of a page, whose
        colours it sets by names (`--ink`, `--dim`, `--grid`). At most so many marks each."""
        bottom = self.top + self.height
        for value in self._marks(self._least_y, self._most_y, self._log_y, marks_y):
            y = self.y(value)
            yield (
                f'<line x1="{self.left}" y1="{y:.1f}" x2="{self.right}" y2="{y:.1f}" stroke="var(--grid)"/>'
            )
            yield text(self.left - 6, y + 4, (shown_y or short)(value), anchor="end", colour="var(--dim)")
        yield f'<line x1="{self.left}" y1="{bottom}" x2="{self.right}" y2="{bottom}" stroke="var(--dim)"/>'
        for value in self._marks(self._least_x, self._most_x, self._log_x, marks_x):
            x = self.x(value)
            yield f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 4}" stroke="var(--dim)"/>'
            yield text(x, bottom + 17, (shown_x or short)(value), anchor="middle", colour="var(--dim)")
        if unit_x:
            yield text(self.right, bottom + 34, unit_x, anchor="end", colour="var(--dim)")

    @staticmethod
    def _marks(least: float, most: float, is_log: bool, count: int) -> list[float]:
        marks = powers(least, most) if is_log else round_marks(least, most)
        return thinned(marks, count) if count else []

    def path(self, points: Sequence[Point], colour: str, *, width: float = 1.5, dash: str = "") -> str:
        """A line through points."""
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'

    def area(
        self,
        lower: Sequence[Point],
        upper: Sequence[Point],
        colour: str,
        opacity: float = 1.0,
        *,
        title: str = "",
    ) -> str:
        """What lies between two lines."""
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in (*upper, *reversed(lower)))
        told = f"><title>{escape(safe(title))}</title></polygon>" if title else "/>"
        return f'<polygon points="{places}" fill="{colour}" fill-opacity="{opacity}"{told}'

    def bar(self, x: float, low: float, high: float, colour: str) -> str:
        """An upright line from `low` to `high`: where a value may lie."""
        return (
            f'<line x1="{self.x(x):.1f}" y1="{self.y(low):.1f}" x2="{self.x(x):.1f}" y2="{self.y(high):.1f}" '
            f'stroke="{colour}" stroke-width="1.5"/>'
        )

    def mark(self, x: float, colour: str, label: str) -> Iterator[str]:
        """A line from top to bottom at `x`."""
        yield (
            f'<line x1="{self.x(x):.1f}" y1="{self.top}" x2="{self.x(x):.1f}" y2="{self.top + self.height}" '
            f'stroke="{colour}" stroke-dasharray="4 3"/>'
        )
        yield text(self.x(x) + 4, self.top + 14, label, colour=colour)

    def dot(self, x: float, y: float, colour: str, title: str) -> str:
        """A point that tells of itself."""
        return (
            f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{colour}">'
            f"<title>{escape(safe(title))}</title></circle>"
        )

    def ring(self, x: float, y: float, colour: str, title: str) -> str:
        """A hollow point that tells of itself, on the page's ground."""
        return (
            f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.5" fill="var(--paper)" stroke="{colour}" '
            f'stroke-width="1.5"><title>{escape(safe(title))}</title></circle>'
        )

    def span(self, first: float, last: float, colour: str, *, opacity: float = 1.0, title: str = "") -> str:
        """A ground from top to bottom."""
        told = f"<title>{escape(safe(title))}</title>" if title else ""
        return (
            f'<rect x="{self.x(first):.1f}" y="{self.top}" width="{max(self.x(last) - self.x(first), 0.5):.1f}" '
            f'height="{self.height}" fill="{colour}" fill-opacity="{opacity}">{told}</rect>'
        )


def key(top: int, labels: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Colours and what they mean, in a row."""
    x = LEFT
    for colour, label in labels:
        yield f'<rect x="{x}" y="{top}" width="12" height="12" fill="{colour}"/>'
        yield text(x + 16, top + 10, label)
        x += 30 + 7 * len(label)


def picture(height: int, parts: Sequence[str]) -> str:
    """The whole file."""
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{lines}\n</svg>\n'
    )


def inline(width: int, height: int, parts: Iterable[str], *, says: str, kind: str = "") -> str:
    """A picture within a page, which sets its colours; `says` is what it shows, for who does not see it."""
    lines = "\n".join(parts)
    return (
        f'<svg class="{kind}" role="img" aria-label="{escape(safe(says))}" viewBox="0 0 {width} {height}" '
        f'font-size="12">\n{lines}\n</svg>\n'
    )


def text(
    x: float, y: float, words: str, *, size: int = 11, anchor: str = "start", colour: str = "#222"
) -> str:
    """Words at a place; what a file named is escaped."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(safe(words))}</text>"
    )


def round_marks(least: float, most: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from `least` to `most`, four to eleven of them; none where there is no extent."""
    extent = most - least
    if not extent > 0:
        return []
    power = 10.0 ** math.floor(math.log10(extent / 4))
    step = max(factor * power for factor in (1, 2, 5) if factor * power <= extent / 4)
    first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def powers(least: float, most: float) -> list[float]:
    """1, 2 and 5 times powers of ten from `least` to `most`; powers alone where there are many."""
    if not 0 < least < most:
        return []
    span = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    factors = (1, 2, 5) if len(span) <= 3 else (1, 3) if len(span) <= 4 else (1,)
    marks = [factor * 10.0**power for power in span for factor in factors]
    return [mark for mark in marks if least * (1 - 1e-9) <= mark <= most * (1 + 1e-9)]


def thinned(marks: Sequence[float], most: int) -> list[float]:
    """Every n-th mark, so that there are at most `most`; 0 stays where it is one."""
    step = -(-len(marks) // max(most, 1)) or 1
    zero = next((place for place, mark in enumerate(marks) if abs(mark) < LEAST), 0)
    return [mark for place, mark in enumerate(marks) if (place - zero) % step == 0]


def extremes(points: Sequence[Point], cells: int) -> list[Point]:
    """A line of at most four points a cell of equal width, that looks the same: of each cell the first, least, most and last."""
    if len(points) <= 4 * cells:
        return list(points)
    first, last = points[0][0], points[-1][0]
    width = max(last - first, LEAST) / cells
    out: list[Point] = []
    for _, found in groupby(points, key=lambda point: min(int((point[0] - first) / width), cells - 1)):
        cell = list(found)
        least, most = min(cell, key=lambda point: point[1]), max(cell, key=lambda point: point[1])
        out += sorted({cell[0], least, most, cell[-1]})
    return out


def envelope(points: Sequence[Point], cells: int) -> tuple[list[Point], list[Point], list[Point]]:
    """Least, mean and most in each of `cells` of equal width, at their middles; of few points the points themselves, three times."""
    if len(points) <= 2 * cells:
        return list(points), list(points), list(points)
    first, width = points[0][0], max(points[-1][0] - points[0][0], LEAST) / cells
    low: list[Point] = []
    mean: list[Point] = []
    high: list[Point] = []
    for place, found in groupby(points, key=lambda point: min(int((point[0] - first) / width), cells - 1)):
        values = [y for _, y in found]
        x = first + (place + 0.5) * width
        low.append((x, min(values)))
        mean.append((x, sum(values) / len(values)))
        high.append((x, max(values)))
    return low, mean, high


def short(value: float) -> str:
    """A number in few signs: 12.5k, 3M."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / (1e3 if unit == 'k' else scale):.4g}{unit}"
    return f"{value:.4g}"
