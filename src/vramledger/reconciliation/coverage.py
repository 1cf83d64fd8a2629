"""Which lines of a ledger a measured figure speaks of, and what they hold together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vramledger.answer import Plan
from vramledger.ledger import AFTER_LOAD, ZERO, ByteRange, Entry, Owner, Phase, RankLedger, total
from vramledger.measurement import Figure


def covers(figure: Figure, entry: Entry) -> bool:
    """Whether the figure speaks of the entry, at the time it was read."""
    if entry.owner not in figure.owners or (figure.inside_budget_only and not entry.inside_budget):
        return False
    if figure.entries and not entry.name.startswith(figure.entries):
        return False
    if figure.without and entry.name.startswith(figure.without):
        return False
    return is_alive(entry, figure.phase)


def is_alive(entry: Entry, phase: Phase | None) -> bool:
    """Whether an entry is held in `phase`; None stands for any time after load."""
    if entry.owner is Owner.HEADROOM:
        return False
    return bool(entry.phases & AFTER_LOAD) if phase is None else phase in entry.phases


def covered(figure: Figure, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if covers(figure, entry))


def together(entries: Sequence[Entry], phase: Phase | None, ledger: Sequence[Entry]) -> ByteRange:
    """What entries of `ledger` hold together in `phase`; None: in the phase after load in which they hold most.

    With the remainder and all other charged entries among them, the charged part is the budget and counts with its expected
    sum: the remainder is large only where the others are small.
    """
    if phase is None:
        found = ZERO
        for each in sorted(AFTER_LOAD):
            found = found.upper(together(entries, each, ledger))
        return found
    live = [entry for entry in entries if phase in entry.phases]
    charged = {entry.name for entry in ledger if phase in entry.phases and entry.inside_budget}
    inside = [entry for entry in live if entry.inside_budget]
    if any(entry.is_remainder for entry in inside) and charged <= {entry.name for entry in inside}:
        fixed = ByteRange.exact(sum(entry.bytes.expected for entry in inside))
        return fixed + total(entry.bytes for entry in live if not entry.inside_budget)
    return total(entry.bytes for entry in live)


def predicted(figure: Figure, ledger: Sequence[Entry]) -> ByteRange | None:
    """What a ledger has for a figure. Lines of no bytes are not in a ledger, so that an owner without any holds 0;
    None where the figure names lines that the ledger does not have, and states more than nothing for them."""
    found = covered(figure, ledger)
    if not found and figure.entries and figure.bytes.low > 0:
        return None
    return together(found, figure.phase, ledger)


def ledgers_of(plan: Plan, figure: Figure) -> tuple[RankLedger, ...]:
    """The kinds of rank that a figure may speak of: those of its ranks; of several kinds, where the source does not tell, the
    one that it is nearest to. None for a figure of host memory."""
    if figure.on_host:
        return ()
    if figure.ranks:
        told = tuple(rank for rank in plan.ranks if set(rank.ranks) & set(figure.ranks))
        return told or plan.ranks[:1]
    if len(plan.ranks) < 2:
        return plan.ranks
    return (min(plan.ranks, key=lambda rank: _distance(figure, rank)),)


def _distance(figure: Figure, rank: RankLedger) -> tuple[bool, int]:
    found = predicted(figure, rank.entries)
    return (True, 0) if found is None else (False, abs(found.expected - figure.bytes.expected))
