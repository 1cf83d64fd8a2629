"""Reasons outside the ledger: other processes, the smallest of several ranks, the rounding of a print."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.ledger import ByteRange, Owner
from vramledger.reconciliation.allocator_lines import BEFORE_LOAD
from vramledger.reconciliation.reason_facts import Facts, shared
from vramledger.reconciliation.result import Cause, Line, Reason, Section
from vramledger.units import format_bytes


def other_processes(line: Line, facts: Facts) -> Iterator[Reason]:
    """Memory of the device that neither is free nor belongs to the instance: what was missing before anything was loaded, or
    what the instance's own figures leave of what is taken."""
    of_device = line.section is Section.ALLOCATOR and line.name.startswith("device free")
    if not of_device and line.section is not Section.POOL and Owner.KV_CACHE not in line.owners:
        return
    found = _taken_before(line, facts) or _taken_beside(facts)
    if found is None:
        return
    others, evidence = found
    explains = -others if of_device else None
    yield Reason(
        cause=Cause.OTHER_PROCESSES,
        text=f"others hold {format_bytes(others)} of the device",
        evidence=(evidence,),
        explains=explains,
        share=None if explains is None else shared(line, explains),
    )


def _taken_before(line: Line, facts: Facts) -> tuple[int, str] | None:
    """What was missing of the device before the load, beyond what contexts and communicators may take."""
    for before in facts.lines:
        same = before.ranks == line.ranks or line.section is not Section.ALLOCATOR
        ours, theirs = before.predicted, before.measured
        if not before.name.startswith(tuple(f"device free at {point}" for point in BEFORE_LOAD)) or not same:
            continue
        if ours is not None and theirs is not None and theirs.high < ours.low:
            source = "" if before.evidence is None else f"{before.evidence.source}: "
            told = f"{format_bytes(int(theirs.expected))} free before the load, {format_bytes(int(ours.expected))} expected"
            return int(ours.expected - theirs.expected), f"{source}{told}"
    return None


def _taken_beside(facts: Facts) -> tuple[int, str] | None:
    """What is taken of the device less what the instance holds by its own figures."""
    for state in facts.measurement.allocator:
        total, free, held, outside = (
            state.device_total_bytes or facts.measurement.device_total_bytes,
            state.device_free_bytes,
            state.reserved_bytes,
            state.outside_bytes,
        )
        if total is None or free is None or held is None or outside is None:
            continue
        others = total - free - held - outside
        if others.low > 0:
            return others.expected, _shares_of_device(state.evidence.source, total, free, held, outside)
    return None


def _shares_of_device(
    source: str, total: ByteRange, free: ByteRange, held: ByteRange, outside: ByteRange
) -> str:
    told = f"{format_bytes(held.expected)} reserved, {format_bytes(outside.expected)} outside the allocator"
    return f"{source}: {format_bytes(total.expected)} less {format_bytes(free.expected)} free, {told}"


def smallest_rank(line: Line, facts: Facts) -> Iterator[Reason]:
    """The engine takes the smallest pool of its ranks."""
    count = sum(len(rank.ranks) for rank in facts.plan.ranks)
    told = line.evidence is not None and any(
        figure.ranks for figure in facts.measurement.figures if Owner.KV_CACHE in figure.owners
    )
    if line.section is Section.POOL and count > 1 and (line.difference or 0) < 0 and not told:
        yield Reason(
            cause=Cause.SMALLEST_RANK,
            text=f"the smallest of {count} ranks decides",
            evidence=("the measurement does not tell the ranks apart",),
        )


def print_rounding(line: Line, _facts: Facts) -> Iterator[Reason]:
    """A miss that is no larger than the rounding. A print that is cut off lies below what it stands for, never above."""
    if line.measured is None or line.beyond is None or line.measured.is_exact:
        return
    width = line.measured.high - line.measured.low
    if 0 < abs(line.beyond) <= width:
        below = "the print may be cut off instead of rounded, or is a sum of rounded figures"
        above = (
            "the print may be a sum of rounded figures, or count tensors too small for a line of their own"
        )
        yield Reason(
            cause=Cause.ROUNDING,
            text=below if line.beyond < 0 else above,
            evidence=(
                f"it misses by {line.beyond:+,.10g} {line.unit.value}, a unit of its last place is {width:,.10g}",
            ),
        )
