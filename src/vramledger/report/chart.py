"""Lines and stacked areas over an axis, in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from vramledger.report.text import safe

WIDTH = 1000
LEFT, RIGHT = 80, 20
Point = tuple[float, float]


class Panel:
    """One chart of a picture: from `top` on, `height` high, its axes scaled to `most_x` and `most_y` (at least a little)."""

    def __init__(
        self,
        top: int,
        height: int,
        *,
        most_x: float,
        most_y: float,
        least_x: float = 0.0,
        least_y: float = 0.0,
    ) -> None:
        self.top, self.height = top, height
        self._least_x, self._least_y = least_x, least_y
        self._x = (WIDTH - LEFT - RIGHT) / max(most_x - least_x, 1e-12)
        self._y = height / max(most_y - least_y, 1e-12)
        self._most_x, self._most_y = most_x, most_y

    def x(self, value: float) -> float:
        return LEFT + (value - self._least_x) * self._x

    def y(self, value: float) -> float:
        return self.top + self.height - (value - self._least_y) * self._y

    def axes(self, title: str, unit_x: str, unit_y: str, *, percent: bool = False) -> Iterator[str]:
        """A frame, round marks on each axis, a title above."""
        bottom, right = self.top + self.height, WIDTH - RIGHT
        yield text(LEFT, self.top - 8, title, size=12)
        yield f'<rect x="{LEFT}" y="{self.top}" width="{right - LEFT}" height="{self.height}" fill="none" stroke="#999"/>'
        for value in round_marks(self._least_y, self._most_y):
            shown = f"{100 * value:.4g}%" if percent else _short(value)
            yield text(LEFT - 6, self.y(value) + 4, shown, anchor="end")
            if value > self._least_y:
                yield (
                    f'<line x1="{LEFT}" y1="{self.y(value):.1f}" x2="{right}" y2="{self.y(value):.1f}" '
                    f'stroke="#ddd" stroke-width="0.5"/>'
                )
        for value in round_marks(self._least_x, self._most_x):
            yield text(self.x(value), bottom + 15, _short(value), anchor="middle")
        yield text(right, bottom + 28, unit_x, anchor="end")
        if unit_y:
            yield text(right, self.top - 8, unit_y, anchor="end")

    def path(self, points: Sequence[Point], colour: str, *, width: float = 1.5, dash: str = "") -> str:
        """A line through points."""
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'

    def area(self, lower: Sequence[Point], upper: Sequence[Point], colour: str, opacity: float = 1.0) -> str:
        """What lies between two lines."""
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in (*upper, *reversed(lower)))
        return f'<polygon points="{places}" fill="{colour}" fill-opacity="{opacity}"/>'

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


def _short(value: float) -> str:
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / (1e3 if unit == 'k' else scale):.4g}{unit}"
    return f"{value:.4g}"
