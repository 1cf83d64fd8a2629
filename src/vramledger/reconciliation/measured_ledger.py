"""Measured bytes in the place of calculated ones, line by line of a rank's ledger.

A figure over one line replaces its bytes. One over several lines becomes one measured line that stands for them: nothing is scaled
to fit. Lines that it covers and that live longer than all of them together stay, calculated, in the phases that are left. A wide figure that
contains narrower ones stands for what they leave of it; one that cuts across another is not used, and said so. Where a figure
covers charged and uncharged lines, the uncharged ones stay calculated and are taken off. Where a print is coarser than what was
calculated and allows it, the line holds what both allow, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from vramledger.evidence import Evidence, EvidenceKind, weakest
from vramledger.ledger import ALL_PHASES, ByteRange, Entry, Lifetime, Phase, total
from vramledger.measurement import Figure
from vramledger.reconciliation.coverage import covers
from vramledger.units import format_bytes


class MeasuredLedger(Struct, frozen=True, kw_only=True):
    """A rank's entries with measured ones among them. `measured` are their names, `notes` say which figures were not used and why."""

    entries: tuple[Entry, ...]
    measured: tuple[str, ...]
    notes: tuple[str, ...]


class _Claim(Struct, frozen=True, kw_only=True):
    """Lines, by their place in the ledger, and the bytes that stand for them."""

    lines: frozenset[int]
    bytes: ByteRange
    figure: Figure
    parts: str


def measured_ledger(
    entries: Sequence[Entry], figures: Iterable[Figure], *, for_budget: bool = False
) -> MeasuredLedger:
    """`figures` are those that speak of this kind of rank. Of two over the same lines, what is held counts, and `for_budget`
    what the engine charges (an estimate of graphs, where captures took something else)."""
    claims: list[_Claim] = []
    notes: list[str] = []
    for lines, figure in _narrowest_first(entries, figures, for_budget=for_budget):
        found = _claim(lines, figure, claims, entries)
        if isinstance(found, str):
            notes.append(f"{figure.name} is not put into the ledger: {found}")
        elif found is not None:
            claims.append(found)
    owner = {line: claim for claim in claims for line in claim.lines}
    out: list[Entry] = []
    names: list[str] = []
    for place, entry in enumerate(entries):
        claim = owner.get(place)
        if claim is None:
            out.append(entry)
            continue
        held = [entries[line] for line in sorted(claim.lines)]
        phases = frozenset.intersection(*(item.phases for item in held))
        if place == min(claim.lines):
            made = _entry(claim, held, phases)
            out.append(made)
            names.append(made.name)
        if entry.phases - phases:
            out.append(replace(entry, phases=entry.phases - phases))
    return MeasuredLedger(entries=tuple(out), measured=tuple(names), notes=tuple(notes))


def _narrowest_first(
    entries: Sequence[Entry], figures: Iterable[Figure], *, for_budget: bool
) -> list[tuple[frozenset[int], Figure]]:
    """Figures by how many lines they cover; of several over the same lines the wanted kind, the best known, the last."""
    best: dict[frozenset[int], Figure] = {}
    order = list(EvidenceKind)

    def rank(figure: Figure) -> tuple[bool, int]:
        return figure.inside_budget_only is not for_budget, order.index(figure.evidence.kind)

    for figure in figures:
        lines = frozenset(place for place, entry in enumerate(entries) if covers(figure, entry))
        known = best.get(lines)
        if lines and (known is None or rank(figure) <= rank(known)):
            best[lines] = figure
    return sorted(best.items(), key=lambda pair: (len(pair[0]), min(pair[0])))


def _claim(
    lines: frozenset[int], figure: Figure, claims: Sequence[_Claim], entries: Sequence[Entry]
) -> _Claim | str | None:
    """What the figure stands for; a text where it cannot be used, None where narrower figures say all of it."""
    size, parts = figure.bytes, ""
    left = lines
    for claim in claims:
        if not claim.lines & left:
            continue
        if not claim.lines <= lines:
            return f"it cuts across {claim.figure.name}"
        left -= claim.lines
        size -= claim.bytes
        parts += f" - {claim.figure.name} {format_bytes(claim.bytes.expected)}"
    inside = frozenset(line for line in left if entries[line].inside_budget)
    if inside and inside != left:
        outside = total(entries[line].bytes for line in left - inside)
        left, size = inside, size - outside
        parts += f" - calculated outside the budget {format_bytes(outside.expected)}"
    if not left:
        return None
    if size.expected < 0:
        return f"what it leaves beside other figures is {format_bytes(size.expected)}"
    if not frozenset.intersection(*(entries[line].phases for line in left)):
        return "its lines are never held together"
    return _Claim(
        lines=left, bytes=ByteRange(max(size.low, 0), size.expected, size.high), figure=figure, parts=parts
    )


def _entry(claim: _Claim, held: Sequence[Entry], phases: frozenset[Phase]) -> Entry:
    """The line that stands for what was held."""
    figure, first = claim.figure, held[0]
    largest = max(held, key=lambda item: item.bytes.expected)
    lifetimes = {item.lifetime for item in held}
    kinds = [figure.evidence.kind]
    if "calculated" in claim.parts:
        kinds.append(EvidenceKind.CALCULATED)
    names = " + ".join(f"{item.name} {item.bytes.expected} B" for item in held)
    said = f"{figure.name} {figure.bytes.expected} B{claim.parts}"
    size = narrowed(claim.bytes, total(item.bytes for item in held))
    if size != claim.bytes:
        said += f", printed as {claim.bytes.low} to {claim.bytes.high} B, of which the calculated bytes are a part"
    return Entry(
        owner=largest.owner,
        name=first.name if len(held) == 1 else _name(figure, claim),
        lifetime=lifetimes.pop() if len(lifetimes) == 1 else Lifetime.WORKER,
        phases=phases or ALL_PHASES,
        bytes=size,
        evidence=Evidence(
            kind=weakest(kinds),
            source=figure.evidence.source,
            formula=f"{said}; in place of the calculated {names}",
        ),
        inside_budget=first.inside_budget,
        is_remainder=any(item.is_remainder for item in held),
    )


def narrowed(printed: ByteRange, calculated: ByteRange) -> ByteRange:
    """The calculated range where the print's rounding allows all of it, else the print."""
    return calculated if printed.low <= calculated.low and calculated.high <= printed.high else printed


def _name(figure: Figure, claim: _Claim) -> str:
    return f"{figure.name}, the rest of it" if claim.parts else figure.name
