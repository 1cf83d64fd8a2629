"""The ledgers of a plan's ranks as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from msgspec import Struct

from vramledger.ledger import ByteRange, Entry, Owner, RankLedger, total
from vramledger.report.bar import FILLS, memory_bar
from vramledger.report.text import WIDE, Line, gib, gib_range, line, ranks_text, wrapped

_EVIDENCE = len("calculated")
_SHORTEST_LABEL = 16  # where figures leave less of a narrow page, its lines are longer


class _Columns(Struct, frozen=True, kw_only=True):
    """Where things stand in the table. `label` is the room for a text, `gap` what follows it and the numbers.

    A page that is too narrow for all columns has no lifetimes, smaller gaps, and entries closer under their owner.
    """

    label: int
    gap: int
    lifetime: int
    number: int
    expected: int
    indent: int

    def row(self, label: str, *, lifetime: str = "", sizes: tuple[str, str, str], evidence: str = "") -> str:
        """One line of the table."""
        low, expected, high = sizes
        numbers = low.rjust(self.number) + expected.rjust(self.expected) + high.rjust(self.number)
        lives = f"{'':{self.gap}}{lifetime:{self.lifetime}}" if self.lifetime else ""
        return f"{label:{self.label}}{lives}{numbers}{'':{self.gap}}{evidence}"


def ledger_lines(rank: RankLedger, budget_bytes: int, *, width: int, explain: bool = False) -> Iterator[Line]:
    """One kind of rank: what is held in the phase that binds, each entry, the peaks, the weights' three figures."""
    binding = rank.binding_phase
    yield from wrapped(
        f"{ranks_text(rank.ranks)}: {gib(rank.peak(binding).expected)} of {gib(rank.device_total_bytes)} GiB held in "
        f"{binding.value}; the engine's budget is {gib(budget_bytes)}",
        width,
        style="head",
    )
    yield memory_bar(rank, binding, width)
    table = _columns(width, [*rank.entries], [peak.occupied for peak in rank.peaks])
    yield from _owners(rank.entries, table, width, explain=explain)
    yield line("  peaks (GiB)", "dim")
    for item in rank.peaks:
        binds = item.phase is binding
        label = " " * table.indent + item.phase.value
        text = table.row(label, sizes=_sizes(item.occupied), evidence="binds" if binds else "")
        yield line(text, "head" if binds else "")
    weights = rank.weights
    yield from wrapped(
        f"weights: on disk {gib(weights.disk_bytes)}, host peak {gib_range(weights.host_peak_bytes)}, "
        f"device steady {gib_range(weights.device_bytes)} GiB",
        width,
        first="  ",
        rest="    ",
    )
    if not all(entry.inside_budget for entry in rank.entries):
        text = "* outside the engine's budget, still on the device"
        yield from wrapped(text, width, first="  ", style="dim")


def host_lines(entries: Sequence[Entry], *, width: int, explain: bool = False) -> Iterator[Line]:
    """What an instance keeps in host memory: its sum, and each entry."""
    held = total(entry.bytes for entry in entries)
    text = f"host memory: {gib_range(held)} GiB over all processes of the instance"
    yield from wrapped(text, width, style="head")
    yield from _owners(entries, _columns(width, entries, [held]), width, explain=explain)


def _owners(entries: Iterable[Entry], table: _Columns, width: int, *, explain: bool) -> Iterator[Line]:
    """Entries by owner, under the heads of the table."""
    heads = ("low", "expected", "high")
    yield line(table.row("  owner / entry", lifetime="lifetime", sizes=heads, evidence="evidence"), "dim")
    for owner, group in groupby(sorted(entries, key=_place), key=lambda entry: entry.owner):
        alike = list(group)
        if len(alike) > 1:
            together = _sizes(total(entry.bytes for entry in alike)) if _together(alike) else ("", "", "")
            yield _led_by_letter(table.row(f"{FILLS[owner]} {owner.value}", sizes=together), owner)
        for entry in alike:
            yield from _entry(entry, table, alone=len(alike) == 1)
            if explain:
                yield from _explained(entry, width)


def _columns(page: int, entries: Sequence[Entry], sums: Sequence[ByteRange]) -> _Columns:
    longest = max(len(gib(size.high)) for size in (*(entry.bytes for entry in entries), *sums))
    if page >= WIDE:
        number = max(9, longest + 2)
        gap, lifetime, expected, indent = 2, 9, number, 4
    else:
        number = max(7, longest + 1)
        gap, lifetime, expected, indent = 1, 0, max(number, len(" expected")), 2
    rest = 2 * number + expected + gap + _EVIDENCE + (gap + lifetime if lifetime else 0)
    return _Columns(
        label=max(page - rest, _SHORTEST_LABEL),
        gap=gap,
        lifetime=lifetime,
        number=number,
        expected=expected,
        indent=indent,
    )


def _place(entry: Entry) -> int:
    return list(Owner).index(entry.owner)


def _together(entries: list[Entry]) -> bool:
    """Whether the entries are all alive at once, so that their sum means something."""
    return len({entry.phases for entry in entries}) == 1


def _entry(entry: Entry, table: _Columns, *, alone: bool) -> Iterator[Line]:
    """The entry's name over as many lines as it needs, its figures on the first that has room for them."""
    star = "" if entry.inside_budget else " *"
    lead = " " * table.indent
    text = f"{entry.name}{star}"
    labels = wrap(
        f"{FILLS[entry.owner]} {entry.owner.value}: {text}" if alone else text,
        table.label,
        initial_indent="" if alone else lead,
        subsequent_indent=lead if alone else lead + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    if len(labels[0]) > table.label:
        yield _led_by_letter(labels[0], entry.owner)
        labels[0] = ""
    row = table.row(
        labels[0],
        lifetime=entry.lifetime.value,
        sizes=_sizes(entry.bytes),
        evidence=entry.evidence.kind.value,
    )
    yield _led_by_letter(row, entry.owner)
    yield from map(line, labels[1:])


def _explained(entry: Entry, width: int) -> Iterator[Line]:
    if entry.evidence.formula:
        yield from wrapped(entry.evidence.formula, width, first="      = ", style="dim")
    yield from wrapped(entry.evidence.source, width, first="      source: ", rest="        ", style="dim")


def _led_by_letter(text: str, owner: Owner) -> Line:
    """The letter of the bar, where the line begins with one, in the bar's colour."""
    return line(text) if text[0] == " " else ((text[0], owner.value), (text[1:], ""))


def _sizes(size: ByteRange) -> tuple[str, str, str]:
    if size.is_exact:
        return "", gib(size.expected), ""
    return gib(size.low), gib(size.expected), gib(size.high)
