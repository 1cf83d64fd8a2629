"""A device's ledger as a waterfall: owner after owner from nothing to what the device holds, planned and measured."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vramledger.ledger import ZERO, ByteRange, Entry, Owner, Phase, total
from vramledger.reconciliation.result import Section
from vramledger.report.chart import Panel, inline, text
from vramledger.report.experiment_evidence import Evidence
from vramledger.report.experiment_memory_picture import colour_of, holds_weights, measured_by_owner
from vramledger.report.experiment_picture import DIM, INK, NARROW, WIDE, Key, Picture
from vramledger.report.quantity_words import quantity_text
from vramledger.report.text import ranks_text
from vramledger.units import GIB, MIB

_ROW, _TOP = 40, 10


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One owner's bytes: planned, and measured where something was."""

    owner: Owner
    planned: ByteRange | None
    measured_bytes: int | None


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """Owners in order, and what there is in all: None where that is not known."""

    name: str
    shares: tuple[Share, ...]
    total_bytes: int | None


def ledger_pictures(evidence: Evidence) -> list[Picture]:
    """One for each kind of rank, and one for host memory where the plan has some."""
    return [_picture(found) for found in waterfalls(evidence)]


def waterfalls(evidence: Evidence) -> list[Waterfall]:
    """The plan's ledgers in the phase that binds, with what was measured; without a plan what was measured alone. Where a plan keeps its
    weights in host memory, so does what a log tells of."""
    plan, measured = evidence.plan, evidence.measurement
    out = []
    if plan is not None:
        elsewhere = bool(plan.host) and not holds_weights(plan)
        for rank in plan.ranks:
            live = [entry for entry in rank.entries if rank.binding_phase in entry.phases]
            shares = _shares(live, {} if elsewhere else _lines(evidence, rank.ranks))
            out.append(Waterfall(name=f"{ranks_text(rank.ranks)} in {rank.binding_phase.value}", shares=shares,
                                 total_bytes=rank.device_total_bytes))  # fmt: skip
        host = [entry for entry in plan.host if Phase.DECODE in entry.phases]
        if host:
            found = _lines(evidence, plan.ranks[0].ranks if plan.ranks else ()) if elsewhere else {}
            out.append(Waterfall(name="host memory in decode", shares=_shares(host, found), total_bytes=None))
    elif measured is not None:
        sizes = measured_by_owner(evidence, on_host=True)
        shares = tuple(
            Share(owner=owner, planned=None, measured_bytes=sizes[owner]) for owner in Owner if owner in sizes
        )
        total_bytes = None if measured.device_total_bytes is None else measured.device_total_bytes.expected
        if shares:
            out.append(Waterfall(name="measured", shares=shares, total_bytes=total_bytes))
    return out


def _lines(evidence: Evidence, ranks: tuple[int, ...]) -> dict[Owner, int]:
    """By owner what was measured, of lines that speak of one owner."""
    found = evidence.reconciliation
    sizes: dict[Owner, int] = {}
    for line in found.section(Section.LEDGER) if found is not None else ():
        if line.measured is not None and len(line.owners) == 1 and line.ranks == ranks:
            sizes[line.owners[0]] = sizes.get(line.owners[0], 0) + int(line.measured.expected)
    return sizes


def _shares(entries: Sequence[Entry], measured: dict[Owner, int]) -> tuple[Share, ...]:
    out = []
    for owner in Owner:
        planned = total(entry.bytes for entry in entries if entry.owner is owner)
        if planned != ZERO or owner in measured:
            out.append(
                Share(
                    owner=owner,
                    planned=planned if planned != ZERO else None,
                    measured_bytes=measured.get(owner),
                )
            )
    return tuple(out)


def _picture(found: Waterfall) -> Picture:
    sizes = [_size(share) for share in found.shares]
    held = sum(sizes)
    most = max(held, found.total_bytes or 0)
    unit = GIB if most >= GIB else MIB
    drawings = []
    for width in (WIDE, NARROW):
        rows = len(found.shares) + (1 if found.total_bytes is not None else 0)
        height = _ROW * rows
        panel = Panel(
            _TOP, height, most_x=most * 1.02 / unit, most_y=float(rows), width=width, left=8, right=8
        )
        parts = [*panel.grid("GiB" if unit == GIB else "MiB", marks_x=8 if width == WIDE else 5, marks_y=0)]
        below = 0
        for place, (share, size) in enumerate(zip(found.shares, sizes, strict=True)):
            parts += _bar(panel, place, share, below, size, unit)
            below += size
        if found.total_bytes is not None:
            free = found.total_bytes - held
            label = f"left: {quantity_text(free, 'bytes')} of {quantity_text(found.total_bytes, 'bytes')}"
            parts += _free(panel, len(found.shares), held, found.total_bytes, unit, label)
        drawings.append(
            inline(
                width,
                _TOP + height + 44,
                parts,
                says=_says(found, held),
                kind="wide" if width == WIDE else "narrow",
            )
        )
    keys = (Key(DIM, "planned: expected, and its range", "area"), Key(INK, "measured", "line"))
    return Picture(
        title=f"ledger, {found.name}", words=_says(found, held), keys=keys, drawings=tuple(drawings)
    )


def _size(share: Share) -> int:
    if share.planned is not None:
        return share.planned.expected
    return share.measured_bytes or 0


def _says(found: Waterfall, held: int) -> str:
    words = f"{quantity_text(held, 'bytes')} held"
    if found.total_bytes is not None:
        words += f" of {quantity_text(found.total_bytes, 'bytes')}"
    return words


def _bar(panel: Panel, place: int, share: Share, below: int, size: int, unit: int) -> list[str]:
    top = panel.top + place * _ROW
    first, last = panel.x(below / unit), panel.x((below + size) / unit)
    label = f"{share.owner.value.replace('_', ' ')}: {quantity_text(size, 'bytes')}"
    if share.planned is None:
        label += " measured, not planned"
    elif share.measured_bytes is not None:
        label += f" planned, {quantity_text(share.measured_bytes, 'bytes')} measured"
    out = [_rectangle(first, last, top + 18, 16, colour_of(share.owner), 0.85 if share.planned else 0.45)]
    planned = share.planned
    if planned is not None and not planned.is_exact:
        low, high = panel.x((below + planned.low) / unit), panel.x((below + planned.high) / unit)
        out.append(_rectangle(low, min(high, panel.right), top + 24, 4, INK, 0.45))
    if share.measured_bytes is not None:
        x = panel.x((below + share.measured_bytes) / unit)
        out.append(
            f'<line x1="{x:.1f}" y1="{top + 14}" x2="{x:.1f}" y2="{top + 38}" stroke="{INK}" stroke-width="2.5"/>'
        )
    anchored = first < panel.left + 0.55 * (panel.right - panel.left)
    out.append(
        text(
            first if anchored else panel.right,
            top + 13,
            label,
            anchor="start" if anchored else "end",
            colour=INK,
        )
    )
    return out


def _free(panel: Panel, place: int, held: int, total_bytes: int, unit: int, label: str) -> list[str]:
    top = panel.top + place * _ROW
    first, last = sorted((panel.x(held / unit), panel.x(total_bytes / unit)))
    over = held > total_bytes
    return [
        _rectangle(first, last, top + 18, 16, "var(--bad)" if over else "var(--headroom)", 0.6),
        text(panel.right, top + 13, label, anchor="end", colour="var(--bad)" if over else INK),
    ]


def _rectangle(first: float, last: float, top: float, height: float, colour: str, opacity: float) -> str:
    return (
        f'<rect x="{first:.1f}" y="{top:.1f}" width="{max(last - first, 1):.1f}" height="{height}" fill="{colour}" '
        f'fill-opacity="{opacity}"/>'
    )
