"""Lines of text with styles: tables, wrapping, colour. A page is lines; a line is spans of (text, style)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramledger.ledger import ByteRange

Span = tuple[str, str]
Line = tuple[Span, ...]

NARROWEST = 60
WIDE = 76  # columns from which tables have all of theirs
# Select Graphic Rendition codes (ECMA-48); a style is a name here, so that a page says what it means.
_CODES = {
    "": "",
    "head": "1",
    "dim": "2",
    "good": "1;32",
    "bad": "1;31",
    "unsure": "1;33",
    "weights": "34",
    "adapters": "94",
    "kv_cache": "32",
    "activation": "33",
    "workspace": "35",
    "collectives": "36",
    "graph_pool": "95",
    "runtime_context": "31",
    "allocator": "90",
    "headroom": "37",
}


def line(text: str = "", style: str = "") -> Line:
    """One line in one style."""
    return ((text, style),)


def render(lines: Iterable[Line], *, colour: bool) -> str:
    """The page, each line without trailing blanks and with a newline."""
    out = []
    for spans in lines:
        if colour:
            out.append("".join(_coloured(safe(text), style) for text, style in spans).rstrip())
        else:
            out.append("".join(safe(text) for text, _ in spans).rstrip())
    return "\n".join(out) + "\n"


def safe(text: str) -> str:
    """`text` with "?" for what a terminal would obey instead of showing (names come from files)."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def _coloured(text: str, style: str) -> str:
    code = _CODES[style]
    return f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text


def wrapped(
    text: str, width: int, *, first: str = "", rest: str | None = None, style: str = ""
) -> list[Line]:
    """`text` over lines of at most `width`, the first after `first`, others after `rest` (blanks as wide).

    No word is broken: one that is longer than the line makes the line longer.
    """
    indent = " " * len(first) if rest is None else rest
    parts = wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line(part, style) for part in parts or [first.rstrip()]]


def columns(
    rows: Sequence[Sequence[str]],
    *,
    right: Iterable[int] = (),
    styles: Sequence[str] = (),
    width: int = 0,
    wrap_column: int = 0,
) -> list[Line]:
    """Rows with columns as wide as their widest cell, two blanks between; `right` are the numbers of columns
    set to the right, `styles` one for each row.

    Where that is wider than `width` (0: no limit), the texts of `wrap_column` go over several lines.
    """
    if not rows:
        return []
    count = max(len(row) for row in rows)
    wide = [max(len(row[i]) if i < len(row) else 0 for row in rows) for i in range(count)]
    over = sum(wide) + 2 * (count - 1) - width
    if width and over > 0:
        words = [
            len(word) + len(_indent(row[wrap_column])) for row in rows for word in row[wrap_column].split()
        ]
        wide[wrap_column] = max(wide[wrap_column] - over, *words)
    to_right = frozenset(right)
    out = []
    for number, row in enumerate(rows):
        style = styles[number] if number < len(styles) else ""
        parts = _parts(row[wrap_column], wide[wrap_column]) if wrap_column < len(row) else [""]
        for index, part in enumerate(parts):
            cells = [part if i == wrap_column else "" if index else cell for i, cell in enumerate(row)]
            set_out = [
                cell.rjust(wide[i]) if i in to_right else cell.ljust(wide[i]) for i, cell in enumerate(cells)
            ]
            out.append(line("  ".join(set_out).rstrip(), style))
    return out


def columns_within(
    rows: Sequence[Sequence[str]], width: int, *, drop: Sequence[int], styles: Sequence[str] = ()
) -> list[Line]:
    """Figures in columns set to the right of their names, without those of `drop`, the first first, that make them too wide."""
    left = list(range(max(map(len, rows))))
    for number in (*drop, None):
        shown = [[row[place] for place in left if place < len(row)] for row in rows]
        wide = [max(len(row[place]) for row in shown if place < len(row)) for place in range(len(left))]
        if number is None or sum(wide) + 2 * (len(left) - 1) <= width:
            break
        left.remove(number)
    return columns(shown, right=range(1, len(left)), styles=styles)


def _parts(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return wrap(
        cell, width, subsequent_indent=_indent(cell), break_on_hyphens=False, break_long_words=False
    ) or [""]


def _indent(cell: str) -> str:
    """What stands before the second line of a cell that is set in: a little more than before its first."""
    blanks = len(cell) - len(cell.lstrip())
    return " " * (blanks + 2) if blanks else ""


def utc_text(at_s: float) -> str:
    """Unix time as "2026-11-30 01:02:03 UTC"; as seconds where it is no date."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))
    except (OverflowError, ValueError, OSError):
        return f"{at_s:.3f} s"


def gib(size_bytes: int) -> str:
    """GiB with two decimals and no unit; what would round to nothing as "<0.01"."""
    value = size_bytes / 2**30
    return f"{value:.2f}" if not 0 < abs(value) < 0.005 else "<0.01"


def spread(low: int, high: int, shown: str, ends: tuple[str, str]) -> str:
    """`shown`, followed by its ends where they differ."""
    return shown if low == high else f"{shown} ({ends[0]} to {ends[1]})"


def gib_range(size: ByteRange) -> str:
    """GiB, followed by its ends where they differ."""
    return spread(size.low, size.high, gib(size.expected), (gib(size.low), gib(size.high)))


def billions(count: int) -> str:
    """ "8.03B", "596M"; a parameter count as the field writes it."""
    for scale, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= scale:
            return f"{count / scale:.2f}{unit}"
    return str(count)


def runs_text(runs: Iterable[tuple[int, int]]) -> str:
    """ "0-2, 4-6, 9"."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def ranks_text(ranks: tuple[int, ...]) -> str:
    """ "rank 0", "ranks 0-7", "ranks 0-3, 8-11"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = runs_text((first, last) for first, last in runs)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
