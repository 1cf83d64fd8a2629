"""A difference as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.manifest.difference import Change, Difference
from vramledger.manifest.quantity import Group, Quantity, Unit, Value
from vramledger.manifest.thresholds import Judged, Outcome
from vramledger.report.text import Line, columns, line, wrapped
from vramledger.units import GIB, MIB

_STYLES = {Outcome.TRIPPED: "bad", Outcome.HELD: "good", Outcome.UNTOLD: "unsure"}


def diff_lines(
    found: Difference, judged: tuple[Judged, ...], *, before: str, after: str, width: int = 80
) -> Iterator[Line]:
    """The two sides, changes by group, conditions, and what became of the thresholds."""
    yield from wrapped(f"before: {before}", width, rest="  ", style="head")
    yield from wrapped(f"after:  {after}", width, rest="  ", style="head")
    if found.is_empty:
        yield line()
        yield line("nothing changed", "good")
    for group in Group:
        changes = [change for change in found.changes if change.group is group]
        if changes:
            yield line()
            yield line(group.value, "head")
            yield from _texts([change for change in changes if change.delta is None], width)
            yield from _numbers([change for change in changes if change.delta is not None], width)
    for title, texts in (("gone", found.conditions_gone), ("new", found.conditions_new)):
        if texts:
            yield line()
            yield line(f"conditions {title}", "head")
        for text in texts:
            yield from wrapped(text, width, first="  ", rest="    ")
    yield line()
    untold = f", {len(found.untold)} known on neither side" if found.untold else ""
    yield line(f"{len(found.changes)} changed, {len(found.same)} the same{untold}", "dim")
    for item in judged:
        text = f"{item.text}: {item.outcome.value}, {item.why}"
        yield from wrapped(text, width, first="--fail-if ", rest="  ", style=_STYLES[item.outcome])


def _numbers(changes: list[Change], width: int) -> Iterator[Line]:
    rows = [
        (
            f"  {change.name}",
            amount(change.before, change.unit),
            amount(change.after, change.unit),
            signed(change.delta, change.unit),
            _percent(change.percent),
        )
        for change in changes
    ]
    yield from columns(rows, right=(1, 2, 3, 4), width=width)


def _percent(value: float | None) -> str:
    """With two decimals; what would round to nothing says so."""
    if value is None:
        return ""
    return f"{value:+.2f}%" if abs(value) >= 0.005 else f"{'-' if value < 0 else '+'}<0.01%"


def _texts(changes: list[Change], width: int) -> Iterator[Line]:
    for change in changes:
        before, after = amount(change.before, change.unit), amount(change.after, change.unit)
        yield from wrapped(f"{before} -> {after}", width, first=f"  {change.name}: ", rest="    ")


def amount(value: Value, unit: Unit) -> str:
    """A value in the words of its unit; "not known" for None."""
    if value is None:
        return "not known"
    if isinstance(value, str):
        return value
    if unit is Unit.BYTES:
        return _bytes(value)
    if unit in (Unit.SECONDS, Unit.RATIO, Unit.RATE):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def signed(value: int | float | None, unit: Unit) -> str:
    """A change with its sign."""
    if value is None:
        return ""
    text = amount(abs(value), unit)
    return f"-{text}" if value < 0 else f"+{text}"


def _bytes(value: int | float) -> str:
    """Whole bytes below a MiB, so that no change rounds to nothing."""
    size = abs(value)
    if size >= GIB // 10:
        return f"{value / GIB:,.2f} GiB"
    return f"{value / MIB:,.2f} MiB" if size >= MIB else f"{value:,} B"


def quantity_lines(found: dict[str, Quantity], *, width: int = 80) -> Iterator[Line]:
    """Names that --fail-if knows, by group."""
    for group in Group:
        rows = [
            (f"  {item.name}", item.unit.value, item.about) for item in found.values() if item.group is group
        ]
        if rows:
            yield line(group.value, "head")
            yield from columns(rows, width=width, wrap_column=2)
