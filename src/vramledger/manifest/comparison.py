"""A measured figure against the entries of the plan that it covers."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from vramledger.documents.measurement import FigureDocument
from vramledger.documents.plan import ByteInterval, EntryDocument, RankDocument
from vramledger.ledger import Owner, Phase
from vramledger.manifest.document import ManifestDocument


class Compared(Struct, frozen=True, kw_only=True):
    """One figure on one kind of rank, with what the plan holds of the same; `predicted` is None where its ledger has no such
    entry."""

    figure: FigureDocument
    ranks: tuple[int, ...]
    predicted: ByteInterval | None

    @property
    def is_above(self) -> bool:
        """Whether the whole measured range lies above the predicted one; a thing the plan has not at all is above."""
        high = 0 if self.predicted is None else self.predicted.high
        return self.figure.bytes.low > high

    @property
    def is_below(self) -> bool:
        return self.predicted is not None and self.figure.bytes.high < self.predicted.low

    @property
    def text(self) -> str:
        """ "ranks 0, 1: weights 1,234 bytes measured, 1,230 to 1,240 planned"."""
        size, planned = self.figure.bytes, "nothing"
        if self.predicted is not None:
            low, high = self.predicted.low, self.predicted.high
            planned = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        where = ", ".join(map(str, self.ranks[:8])) + (", ..." if len(self.ranks) > 8 else "")
        return f"rank {where}: {self.figure.name} {size.expected:,} bytes measured, {planned} planned"


def compared(document: ManifestDocument, owner: Owner) -> tuple[Compared, ...]:
    """Every measured figure that covers entries of `owner`, on every kind of rank that it speaks of."""
    if document.measurement is None:
        return ()
    return tuple(
        Compared(figure=figure, ranks=rank.ranks, predicted=predicted(figure, rank))
        for figure in document.measurement.figures
        if owner in figure.owners
        for rank in _ranks(document, figure)
    )


def _ranks(document: ManifestDocument, figure: FigureDocument) -> Iterator[RankDocument]:
    """The kinds of ranks a figure speaks of: those it names, or the only one there is."""
    for rank in document.plan.ranks:
        if set(rank.ranks) & set(figure.ranks) or (not figure.ranks and len(document.plan.ranks) == 1):
            yield rank


def predicted(figure: FigureDocument, rank: RankDocument) -> ByteInterval | None:
    """What the entries hold that the figure covers: together in its phase, or in the phase where that is most."""
    entries = [entry for entry in rank.entries if _covers(figure, entry)]
    if not entries:
        return None
    phases = tuple(Phase) if figure.phase is None else (figure.phase,)
    sums = [_sum([entry for entry in entries if phase in entry.phases]) for phase in phases]
    return ByteInterval(
        low=max(item.low for item in sums),
        expected=max(item.expected for item in sums),
        high=max(item.high for item in sums),
    )


def _covers(figure: FigureDocument, entry: EntryDocument) -> bool:
    return (
        entry.owner in figure.owners
        and (not figure.entries or entry.name.startswith(figure.entries))
        and not entry.name.startswith(figure.without or ("\0",))
        and (entry.inside_budget or not figure.inside_budget_only)
    )


def _sum(entries: list[EntryDocument]) -> ByteInterval:
    return ByteInterval(
        low=sum(entry.bytes.low for entry in entries),
        expected=sum(entry.bytes.expected for entry in entries),
        high=sum(entry.bytes.high for entry in entries),
    )
