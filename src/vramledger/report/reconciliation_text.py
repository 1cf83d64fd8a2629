"""A reconciliation as a page: settings that differ, figures by section, reasons below what is outside, the recomputed budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from vramledger.reconciliation.result import (
    Budget,
    Interval,
    Line,
    Number,
    Reason,
    Reconciliation,
    Section,
    Standing,
    Unit,
)
from vramledger.report.text import Line as PageLine
from vramledger.report.text import line, ranks_text, wrapped
from vramledger.units import GIB, MIB, counted

_STYLES = {Standing.INSIDE: "good", Standing.OUTSIDE: "bad", Standing.UNTOLD: "dim"}
_MARKS = {Standing.INSIDE: "inside", Standing.OUTSIDE: "OUTSIDE", Standing.UNTOLD: ""}
_HEADS = ("low", "expected", "high", "measured", "differs")
_TITLES = {
    Section.LEDGER: "ledger",
    Section.POOL: "KV pool",
    Section.ALLOCATOR: "allocator: four values, none of which stands for another",
    Section.GRAPHS: "graph captures",
    Section.HOST: "host memory",
}
_LEAST_LABEL = 18
_MOST_REASONS = 4


def reconciliation_lines(found: Reconciliation, *, width: int, explain: bool = False) -> Iterator[PageLine]:
    """The page; with `explain` all reasons and what each measured figure was read from."""
    head = f"{found.model} · {found.engine} {found.engine_version} · {found.device}"
    yield from wrapped(head, width, rest="  ", style="head")
    if found.sources:
        yield from wrapped(f"measured: {', '.join(found.sources)}", width, rest="  ")
    yield from _settings(found, width)
    for section in Section:
        yield from _section(found.section(section), section, width, explain=explain)
    if found.budget is not None:
        yield from _budget(found.budget, width)
    for note in found.notes:
        yield from wrapped(note, width, first="note: ", rest="  ")
    yield from _standing(found, width)


def _settings(found: Reconciliation, width: int) -> Iterator[PageLine]:
    if found.differences:
        yield line("settings that differ, and so explain what follows", "head")
        for item in found.differences:
            text = f"{item.name}: planned {item.planned}, measured {item.measured}"
            yield from wrapped(text, width, first="  ", rest="    ", style="unsure")
    if found.agreeing:
        yield from wrapped(f"settings that agree: {', '.join(found.agreeing)}", width, rest="  ", style="dim")
    if found.unknown_settings:
        text = f"measured settings without a flag here: {counted(len(found.unknown_settings), 'name')}"
        yield from wrapped(f"{text} ({_some(found.unknown_settings)})", width, rest="  ", style="dim")


def _some(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ..."


def _section(lines: Sequence[Line], section: Section, width: int, *, explain: bool) -> Iterator[PageLine]:
    """One table for each kind of rank, units of the section's own scale."""
    for ranks in dict.fromkeys(item.ranks for item in lines):
        alike = [item for item in lines if item.ranks == ranks]
        scale = _scale(alike)
        of = f"{ranks_text(ranks)}: " if ranks else ""
        yield line(f"{of}{_TITLES[section]} ({_unit_name(scale)})", "head")
        numbers = [_numbers(item, scale) for item in alike]
        table = _Table(width, max(len(text) for row in numbers for text in row))
        yield line(table.row("", _HEADS, ""), "dim")
        above: tuple[str, ...] = ()
        for item in alike:
            yield from _row(item, table, scale)
            if explain and item.evidence is not None:
                yield from wrapped(
                    item.evidence.source, width, first="      from ", rest="        ", style="dim"
                )
            texts = tuple(reason.text for reason in item.reasons)
            if texts and texts == above:
                yield line("      for the same reasons", "dim")
            else:
                yield from _reasons(item, width, everything=explain)
            above = texts


class _Table:
    """Where the columns stand; `label` is what the page leaves for names."""

    def __init__(self, width: int, widest: int) -> None:
        self.number = max(10 if width >= 100 else 9, widest + 1)
        self.mark = 9
        self.label = max(width - 5 * self.number - self.mark, _LEAST_LABEL)

    def row(self, label: str, numbers: Sequence[str], mark: str) -> str:
        return f"{label:{self.label}}{''.join(text.rjust(self.number) for text in numbers)}  {mark}".rstrip()


def _row(item: Line, table: _Table, scale: int) -> Iterator[PageLine]:
    numbers = _numbers(item, scale)
    labels = wrap(
        item.name + (f" [{item.phase.value}]" if item.phase is not None else ""),
        table.label - 1,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
    if len(labels[0]) > table.label:
        yield line(labels[0])
        labels[0] = ""
    text = table.row(labels[0], numbers, "")
    mark = _MARKS[item.standing]
    width = table.label + 5 * table.number
    yield ((text.ljust(width), "" if mark else "dim"), (f"  {mark}", _STYLES[item.standing]))
    for more in labels[1:]:
        yield line(more)


def _numbers(item: Line, scale: int) -> tuple[str, str, str, str, str]:
    ours, theirs = item.predicted, item.measured
    if ours is None:
        low = expected = high = "" if theirs is None else "-"
        low, high = "", ""
    elif ours.is_exact:
        low, expected, high = "", _shown(ours.expected, item.unit, scale), ""
    else:
        low, expected, high = (
            _shown(size, item.unit, scale) for size in (ours.low, ours.expected, ours.high)
        )
    measured = "" if theirs is None else _shown(theirs.expected, item.unit, scale)
    difference = "" if item.difference is None else _shown(item.difference, item.unit, scale, sign=True)
    if _is_rounding(item):
        difference = "rounding"
    return low, expected, high, measured, difference


def _is_rounding(item: Line) -> bool:
    """Whether a difference inside is no larger than the print's last place."""
    if item.standing is not Standing.INSIDE or not item.difference or item.measured is None:
        return False
    return abs(item.difference) <= item.measured.high - item.measured.low


def _shown(value: Number, unit: Unit, scale: int, *, sign: bool = False) -> str:
    plus = "+" if sign and value > 0 else ""
    if unit is Unit.BYTES:
        size = value / scale
        text = f"{size:,.2f}"
        return (
            f"{plus}{text}"
            if text not in ("0.00", "-0.00") or not value
            else f"{'-' if value < 0 else plus}<0.01"
        )
    if unit is Unit.REQUESTS:
        return f"{plus}{value:,.2f}"
    return f"{plus}{int(value):,}"


def _scale(lines: Sequence[Line]) -> int:
    sizes = [
        abs(part.expected)
        for item in lines
        if item.unit is Unit.BYTES
        for part in (item.predicted, item.measured)
        if part is not None
    ]
    return GIB if max(sizes, default=GIB) >= GIB // 2 else MIB


def _unit_name(scale: int) -> str:
    return "GiB" if scale == GIB else "MiB"


def _reasons(item: Line, width: int, *, everything: bool) -> Iterator[PageLine]:
    shown = item.reasons if everything else item.reasons[:_MOST_REASONS]
    for number, reason in enumerate(shown, start=1):
        yield from wrapped(f"{number}. {_reason(reason)}", width, first="      ", rest="         ")
        for text in reason.evidence:
            yield from wrapped(text, width, first="         ", rest="           ", style="dim")
    if len(shown) < len(item.reasons):
        yield line(
            f"      and {counted(len(item.reasons) - len(shown), 'reason')} more with --explain", "dim"
        )


def _reason(reason: Reason) -> str:
    how = " (planned again)" if reason.is_tested else ""
    if reason.share is None:
        return f"{reason.cause.value}: {reason.text}"
    return f"{100 * reason.share:.0f} % {reason.cause.value}{how}: {reason.text}"


def _budget(budget: Budget, width: int) -> Iterator[PageLine]:
    yield line(f"the pool that the budget leaves with measured terms, {ranks_text(budget.ranks)}", "head")
    scale = GIB if budget.budget_bytes.expected >= GIB // 2 else MIB
    unit = _unit_name(scale)
    rows = (
        ("budget", _range(budget.budget_bytes, Unit.BYTES, scale), unit),
        ("planned pool", _range(budget.planned_bytes, Unit.BYTES, scale), unit),
        ("recomputed pool", _range(budget.pool_bytes, Unit.BYTES, scale), unit),
        ("blocks", _range(budget.num_blocks, Unit.BLOCKS, scale), ""),
        ("tokens", _range(budget.tokens, Unit.TOKENS, scale), ""),
        ("requests at once", _range(budget.max_concurrency, Unit.REQUESTS, scale), ""),
    )
    for name, text, of in rows:
        yield from wrapped(f"{name:17} {text} {of}".rstrip(), width, first="  ", rest="      ")
    for label, names in (("measured", budget.measured_terms), ("calculated", budget.calculated_terms)):
        if names:
            yield from wrapped(f"{label:17} {', '.join(names)}", width, first="  ", rest="      ")
    yield from wrapped(budget.rule, width, first="  ", style="dim")


def _range(found: Interval, unit: Unit, scale: int) -> str:
    middle = _shown(found.expected, unit, scale)
    low, high = _shown(found.low, unit, scale), _shown(found.high, unit, scale)
    return middle if low == high else f"{middle} ({low} to {high})"


def _standing(found: Reconciliation, width: int) -> Iterator[PageLine]:
    counts = {standing: sum(item.standing is standing for item in found.lines) for standing in Standing}
    if found.standing is Standing.UNTOLD:
        names = ", ".join(item.name for item in found.elsewhere)
        why = (
            f"weights were measured where the plan has none ({names}), and nothing where it has them"
            if names
            else "the measurement has no figure that the plan predicts"
        )
        yield from wrapped(f"cannot be told: {why}", width, style="unsure")
        return
    text = f"{counted(counts[Standing.INSIDE], 'figure')} inside, {counts[Standing.OUTSIDE]} outside"
    yield from wrapped(
        f"{text}, {counts[Standing.UNTOLD]} not told by both", width, style=_STYLES[found.standing]
    )
