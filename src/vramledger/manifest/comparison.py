"""A manifest's measured figures against the entries of its plan that they cover."""

from __future__ import annotations

from msgspec import Struct

from vramledger.documents.measurement_reader import measurement_of
from vramledger.documents.plan_reader import plan_of
from vramledger.ledger import ByteRange, Owner
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.measured import weight_figures
from vramledger.measurement import Figure
from vramledger.reconciliation.coverage import ledgers_of, predicted


class Compared(Struct, frozen=True, kw_only=True):
    """One figure on one kind of rank, with what the plan holds of the same; `predicted` is None where the figure names
    entries that its ledger does not have."""

    figure: Figure
    ranks: tuple[int, ...]
    predicted: ByteRange | None

    @property
    def is_above(self) -> bool:
        """Whether the measured range lies above the predicted one by more than a unit of the print's last place: within
        that are sums of rounded figures and tensors too small for a line of their own."""
        return self.predicted is not None and self.figure.bytes.low - self._unit > self.predicted.high

    @property
    def is_below(self) -> bool:
        """The same below, where prints that are cut off lie."""
        return self.predicted is not None and self.figure.bytes.high + self._unit < self.predicted.low

    @property
    def _unit(self) -> int:
        return self.figure.bytes.high - self.figure.bytes.low

    @property
    def text(self) -> str:
        """ "rank 0, 1: weights 1,234 bytes measured, 1,230 to 1,240 planned"."""
        planned = "nothing of that name"
        if self.predicted is not None:
            low, high = self.predicted.low, self.predicted.high
            planned = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        where = ", ".join(map(str, self.ranks[:8])) + (", ..." if len(self.ranks) > 8 else "")
        return f"rank {where}: {self.figure.name} {self.figure.bytes.expected:,} bytes measured, {planned} planned"


def compared_weights(document: ManifestDocument) -> tuple[Compared, ...]:
    """The figures of the whole steady weights, or the parts that make them up, of every kind of rank that has them."""
    if document.measurement is None:
        return ()
    plan, measurement = plan_of(document.plan), measurement_of(document.measurement)
    return tuple(
        Compared(figure=figure, ranks=rank.ranks, predicted=predicted(figure, rank.entries))
        for rank in plan.ranks
        for figures in weight_figures(plan, measurement, rank)
        for figure in figures
    )


def compared(document: ManifestDocument, owner: Owner) -> tuple[Compared, ...]:
    """Every measured figure that covers entries of `owner`, on every kind of rank that it speaks of."""
    if document.measurement is None:
        return ()
    plan = plan_of(document.plan)
    return tuple(
        Compared(figure=figure, ranks=rank.ranks, predicted=predicted(figure, rank.entries))
        for figure in measurement_of(document.measurement).figures
        if owner in figure.owners and not figure.on_host
        for rank in ledgers_of(plan, figure)
    )
