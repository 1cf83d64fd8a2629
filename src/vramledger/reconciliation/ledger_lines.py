"""Measured figures beside the ledger's lines, and the lines of which nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.ledger import Entry, Owner, RankLedger
from vramledger.measurement import Figure, GraphCapture, Measurement
from vramledger.reconciliation.alike_ranks import one_figure
from vramledger.reconciliation.coverage import covered, covers, is_alive, ledgers_of, predicted, together
from vramledger.reconciliation.result import Line, Section, Standing, Unit, interval, standing_of


def ledger_lines(plan: Plan, measurement: Measurement) -> tuple[Line, ...]:
    """For each kind of rank the figures in the ledger's order, then by owner what was not told."""
    lines: list[Line] = []
    speaking = {
        id(rank): [item for item in measurement.figures if rank in ledgers_of(plan, item)]
        for rank in plan.ranks
    }
    for rank in plan.ranks:
        figures = one_figure(speaking[id(rank)])
        for figure in sorted(figures, key=_place):
            lines.append(figure_line(figure, rank))
        lines.extend(
            _untold(rank, figures, kv_is_told=any(pool.bytes is not None for pool in measurement.pools))
        )
    return tuple(lines)


def _place(figure: Figure) -> tuple[int, str]:
    owners = list(Owner)
    return min((owners.index(owner) for owner in figure.owners), default=len(owners)), figure.name


def figure_line(figure: Figure, rank: RankLedger) -> Line:
    """One figure beside what the ledger of a kind of rank has for it."""
    return line_of_figure(figure, rank.entries, Section.LEDGER, rank.ranks)


def line_of_figure(
    figure: Figure, entries: Sequence[Entry], section: Section, ranks: tuple[int, ...] = ()
) -> Line:
    """One figure beside what a ledger has for it."""
    size = predicted(figure, entries)
    ours = None if size is None else interval(size)
    theirs = interval(figure.bytes)
    return Line(
        section=section,
        name=figure.name,
        unit=Unit.BYTES,
        standing=standing_of(ours, theirs),
        predicted=ours,
        measured=theirs,
        ranks=ranks,
        owners=figure.owners,
        entries=tuple(entry.name for entry in covered(figure, entries)),
        phase=figure.phase,
        evidence=figure.evidence,
    )


def _untold(rank: RankLedger, figures: Sequence[Figure], *, kv_is_told: bool) -> Iterator[Line]:
    """What is left of every owner when the entries that figures speak of are taken away."""
    for owner in Owner:
        if owner is Owner.HEADROOM or (owner is Owner.KV_CACHE and kv_is_told):
            continue
        held = [entry for entry in rank.entries if entry.owner is owner]
        left = [entry for entry in held if not any(covers(figure, entry) for figure in figures)]
        if not left:
            continue
        name = owner.value if len(left) == len(held) else f"other {owner.value}"
        yield _line_of(name, owner, left, rank)


def _line_of(name: str, owner: Owner, entries: list[Entry], rank: RankLedger) -> Line:
    phase = None if any(is_alive(entry, None) for entry in entries) else next(iter(sorted(entries[0].phases)))
    return Line(
        section=Section.LEDGER,
        name=name,
        unit=Unit.BYTES,
        standing=Standing.UNTOLD,
        predicted=interval(together(entries, phase, rank.entries)),
        ranks=rank.ranks,
        owners=(owner,),
        entries=tuple(entry.name for entry in entries),
        phase=phase,
    )


def graph_lines(plan: Plan, measurement: Measurement) -> tuple[Line, ...]:
    """What each captured size took, and their sum beside the ledger's graphs where no figure states it."""
    if not measurement.graphs:
        return ()
    lines = [_capture(item) for item in measurement.graphs]
    told = any(figure.owners == (Owner.GRAPH_POOL,) for figure in measurement.figures)
    # One line for all further sizes of a kind does not say how many they are.
    told = told or any(item.shape.endswith("each further") for item in measurement.graphs)
    if not told and plan.ranks:
        increments = [item.increment_bytes for item in measurement.graphs]
        figure = Figure(
            owners=(Owner.GRAPH_POOL,),
            name=f"{len(increments)} captures together",
            bytes=sum(increments[1:], increments[0]),
            evidence=measurement.graphs[0].evidence,
        )
        (rank, *_) = ledgers_of(plan, figure)
        line = figure_line(figure, rank)
        lines.insert(0, replace(line, section=Section.GRAPHS))
    return tuple(lines)


def _capture(item: GraphCapture) -> Line:
    shared = {True: ", pool shared", False: ", pool of its own", None: ""}[item.shared_pool]
    return Line(
        section=Section.GRAPHS,
        name=f"capture of {item.shape}{shared}",
        unit=Unit.BYTES,
        standing=Standing.UNTOLD,
        measured=interval(item.increment_bytes),
        owners=(Owner.GRAPH_POOL,),
        evidence=item.evidence,
    )
